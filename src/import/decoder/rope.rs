//! Rotary positions of a configuration: their frequencies, and how these are scaled for longer
//! contexts.
//!
//! In: the fields of the hub, current (`rope_parameters`) and older ones (`rope_theta`,
//! `rope_scaling`). Out: the words and flags of the template's layer `Rotary`.

use super::kinds::{DecoderFamily, Positions};
use super::{Config, Refusal, Template, number};

/// The supported values of `rope_type`, for messages.
const KINDS: &str = "a rope_type of default, linear, llama3, yarn or longrope";

/// Rotary frequencies.
#[derive(Clone, Debug)]
pub(super) struct Rope {
    theta: f64,
    /// The base of layers with a window, if it differs.
    near: Option<f64>,
    /// How many elements of a head are rotated.
    width: i64,
    scaling: Scaling,
}

/// How frequencies are scaled to extend the context.
#[derive(Clone, Debug)]
enum Scaling {
    None,
    /// Divides all positions by this.
    Linear(f64),
    /// Llama 3.1: factor, bounds in periods per context, original context.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        context: f64,
    },
    /// YaRN: factor, the first frequency that is changed and the last that is interpolated, the
    /// scale of queries and keys.
    Yarn {
        factor: f64,
        low: f64,
        high: f64,
        stretch: f64,
    },
    /// LongRoPE, for texts as long as in training: a divisor of each frequency, the context, the
    /// scale of queries and keys.
    Long {
        divisors: Vec<f64>,
        context: i64,
        stretch: f64,
    },
}

impl Rope {
    /// For a model without rotary positions.
    pub(super) fn none() -> Rope {
        Rope { theta: 1.0, near: None, width: 2, scaling: Scaling::None }
    }

    /// For a model with one kind of layers; `e` is the width of a head.
    pub(super) fn from_config(config: &Config, kind: &DecoderFamily, e: i64) -> Result<Rope, Refusal> {
        // `rope_parameters` exists since version 5 of transformers; before, it was `rope_theta` and
        // `rope_scaling`.
        let theta = config.positive_or("rotary_emb_base", config.positive_or("rope_theta", kind.theta)?)?;
        let (field, inner) = match config.object("rope_parameters")? {
            Some(inner) => {
                if config.object("rope_scaling")?.is_some_and(|other| !other.says_the_same(&inner)) {
                    return Err(config.refuse("rope_scaling", "what rope_parameters says"));
                }
                ("rope_parameters", Some(inner))
            }
            None => ("rope_scaling", config.object("rope_scaling")?),
        };
        let share = config.positive_or("partial_rotary_factor", config.positive_or("rotary_pct", kind.rotated)?)?;
        let share = match &inner {
            Some(inner) => inner.positive_or("partial_rotary_factor", share)?,
            None => share,
        };
        let width = match config.has("rotary_dim") && kind.positions == Positions::RotaryPairs {
            true => config.size("rotary_dim")?,
            false => (e as f64 * share) as i64,
        };
        if width > e || width < 2 || width % 2 != 0 {
            let named = ["rotary_dim", "partial_rotary_factor", "rotary_pct"].into_iter().find(|name| config.has(name));
            return Err(config.refuse(named.unwrap_or(field), "an even part of each head that is rotated"));
        }
        match inner {
            Some(inner) => Rope::said(config, field, &inner, theta, width),
            None => Ok(Rope { theta, near: None, width, scaling: Scaling::None }),
        }
    }

    /// For Gemma 3, whose layers with a window have a base of their own. `local`: all layers have a
    /// window, none has, or there are both kinds (`None`).
    pub(super) fn of_two_kinds(config: &Config, e: i64, local: Option<bool>) -> Result<Rope, Refusal> {
        let (far, near) =
            (config.positive_or("rope_theta", 1_000_000.0)?, config.positive_or("rope_local_base_freq", 10_000.0)?);
        let (mut far, mut near) =
            [far, near].map(|theta| Rope { theta, near: None, width: e, scaling: Scaling::None }).into();
        if let Some(inner) = config.object("rope_scaling")? {
            far = Rope::said(config, "rope_scaling", &inner, far.theta, e)?;
        }
        if let Some(both) = config.object("rope_parameters")? {
            for (kind, rope) in [("full_attention", &mut far), ("sliding_attention", &mut near)] {
                if let Some(inner) = both.object(kind)? {
                    *rope = Rope::said(config, "rope_parameters", &inner, rope.theta, e)?;
                }
            }
            let wanted = "what full_attention and sliding_attention say";
            both.all_known().map_err(|_| config.refuse("rope_parameters", wanted))?;
        }
        match (local, &far.scaling, &near.scaling) {
            (Some(true), ..) => Ok(near),
            (Some(false), ..) => Ok(far),
            (None, Scaling::None | Scaling::Linear(_), Scaling::None) => Ok(Rope { near: Some(near.theta), ..far }),
            _ => {
                let field = if config.has("rope_parameters") { "rope_parameters" } else { "rope_scaling" };
                Err(config.refuse(
                    field,
                    "a rope_type of default or linear for full_attention, and default for sliding_attention",
                ))
            }
        }
    }

    /// The frequencies described by an object in the field; `theta` is the default base.
    fn said(config: &Config, field: &str, inner: &Config, theta: f64, e: i64) -> Result<Rope, Refusal> {
        let theta = inner.positive_or("rope_theta", theta)?;
        let kind = inner.text_or("rope_type", &inner.text_or("type", "default")?)?;
        inner.text_or("type", "")?;
        let scaling = match kind.as_str() {
            "default" => Scaling::None,
            "linear" => Scaling::Linear(inner.positive_or("factor", 1.0)?),
            "llama3" => {
                let (low, high) =
                    (inner.positive_or("low_freq_factor", 1.0)?, inner.positive_or("high_freq_factor", 4.0)?);
                if high <= low {
                    return Err(config.refuse(field, "a high_freq_factor above the low_freq_factor"));
                }
                let factor = inner.positive_or("factor", 8.0)?;
                let context = inner.positive_or("original_max_position_embeddings", 8192.0)?;
                Scaling::Llama3 { factor, low, high, context }
            }
            "yarn" => yarn(config, field, inner, theta, e)?,
            // The first name that it had.
            "longrope" | "su" => long(config, field, inner, e)?,
            _ => return Err(config.refuse(field, KINDS)),
        };
        inner.all_known().map_err(|_| config.refuse(field, &format!("{KINDS} without further fields")))?;
        Ok(Rope { theta, near: None, width: e, scaling })
    }

    /// The longest text that the frequencies are for, if that is less than the model's.
    pub(super) fn longest(&self) -> Option<i64> {
        if let Scaling::Long { context, .. } = self.scaling { Some(context) } else { None }
    }

    /// Do layers with a window have a base of their own?
    pub(super) fn is_of_two_kinds(&self) -> bool {
        self.near.is_some()
    }

    /// Can its frequencies be divided by a tensor of factors? Not if they are scaled individually,
    /// or if there are two bases.
    pub(super) fn takes_factors(&self) -> bool {
        self.near.is_none() && matches!(self.scaling, Scaling::None | Scaling::Linear(_))
    }

    /// Substitutes words and flags in a template.
    pub(super) fn fill<'t>(&self, template: Template<'t>, e: i64) -> Template<'t> {
        let (mut linear, mut stretch) = (String::new(), String::new());
        let [mut factor, mut low, mut high, mut context] = [1.0; 4];
        let mut divisors = String::new();
        match self.scaling {
            Scaling::Long { divisors: ref each, stretch: times, .. } => {
                linear = " / divisors".to_owned();
                stretch = format!(" * {}", number(times));
                let runs = each.chunk_by(|a, b| a == b);
                let runs = runs.map(|run| format!("full({}, [{}])", number(run[0]), run.len()));
                let runs: Vec<String> = runs.collect();
                divisors = if runs.len() == 1 { runs.concat() } else { format!("concat({})", runs.join(", ")) };
            }
            Scaling::None => {}
            Scaling::Linear(by) => linear = format!(" / {}", number(by)),
            Scaling::Llama3 { factor: by, low: least, high: most, context: trained } => {
                (factor, low, high, context) = (by, least, most, trained);
            }
            Scaling::Yarn { factor: by, low: first, high: last, stretch: times } => {
                (factor, low, high) = (by, first, last);
                if times != 1.0 {
                    stretch = format!(" * {}", number(times));
                }
            }
        }
        let (llama3, yarn) =
            (matches!(self.scaling, Scaling::Llama3 { .. }), matches!(self.scaling, Scaling::Yarn { .. }));
        let partial = self.width < e;
        template
            .word("R", if partial { self.width.to_string() } else { "E".to_owned() })
            .word("partner", if partial { format!("i + {}", self.width / 2) } else { "i + E/2".to_owned() })
            .word(
                "even",
                match (partial, self.longest()) {
                    (true, _) => format!("{} <= E", self.width),
                    (false, Some(_)) => format!("E == {e}"),
                    (false, None) => "E % 2 == 0".to_owned(),
                },
            )
            .word("rotated", if partial { format!("x[.., 0..{}]", self.width) } else { "x".to_owned() })
            .word("divisors", divisors)
            .word("theta", number(self.theta))
            .word("near_theta", self.near.map(number).unwrap_or_default())
            .word("linear", linear)
            .word("stretch", stretch)
            .word("factor", number(factor))
            .word("low", number(low))
            .word("high", number(high))
            .word("context", number(context))
            .word("longest", number(context / low))
            .word("shortest", number(context / high))
            .flag("long", self.longest().is_some())
            .flag("partial", partial)
            .flag("two_bases", self.is_of_two_kinds())
            .flag("blended", llama3 || yarn)
            .flag("llama3", llama3)
            .flag("yarn", yarn)
    }
}

/// The divisors of LongRoPE (Ding et al. 2024) for texts as long as in training. For longer
/// texts, others would change the keys that a cache has already.
fn long(config: &Config, field: &str, inner: &Config, e: i64) -> Result<Scaling, Refusal> {
    let longest = config.size("max_position_embeddings")?;
    let context = match config.has("original_max_position_embeddings") {
        true => config.size("original_max_position_embeddings")?,
        false => inner.size_or("original_max_position_embeddings", longest)?,
    };
    inner.has("original_max_position_embeddings");
    inner.floats("long_factor")?;
    let divisors = inner.floats("short_factor")?.unwrap_or_default();
    if divisors.len() as i64 != e / 2 || divisors.iter().any(|divisor| *divisor <= 0.0) {
        return Err(config.refuse(field, &format!("a short_factor of {} numbers above 0", e / 2)));
    }
    let factor = inner.positive_or("factor", longest as f64 / context as f64)?;
    let usual = if factor <= 1.0 || context < 2 { 1.0 } else { (1.0 + factor.ln() / (context as f64).ln()).sqrt() };
    let stretch = if inner.has("attention_factor") { inner.positive_or("attention_factor", 1.0)? } else { usual };
    Ok(Scaling::Long { divisors, context, stretch })
}

/// YaRN's bounds, and the scale of queries and keys ("YaRN", Peng et al. 2023).
fn yarn(config: &Config, field: &str, inner: &Config, theta: f64, e: i64) -> Result<Scaling, Refusal> {
    let longest = config.size("max_position_embeddings")? as f64;
    let context = inner.positive_or("original_max_position_embeddings", longest)?;
    let factor = inner.positive_or("factor", longest / context)?;
    let (fast, slow) = (inner.positive_or("beta_fast", 32.0)?, inner.positive_or("beta_slow", 1.0)?);
    // The index of the frequency with this many periods in the context.
    let at = |periods: f64| e as f64 * (context / (periods * std::f64::consts::TAU)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (at(fast), at(slow));
    if !low.is_finite() || !high.is_finite() {
        return Err(config.refuse(field, "a rope_theta and betas with which yarn has bounds"));
    }
    if inner.flag_or("truncate", true)? {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(e as f64 - 1.0));
    if low == high {
        high += 0.001;
    }
    let scale = |more: f64| if factor <= 1.0 { 1.0 } else { 0.1 * more * factor.ln() + 1.0 };
    let (one, all) = (inner.number_or("mscale", 0.0)?, inner.number_or("mscale_all_dim", 0.0)?);
    let usual = if one != 0.0 && all != 0.0 { scale(one) / scale(all) } else { scale(1.0) };
    let stretch = if inner.has("attention_factor") { inner.positive_or("attention_factor", 1.0)? } else { usual };
    if !(stretch as f32).is_finite() || stretch <= 0.0 {
        return Err(config.refuse(field, "an attention_factor above 0"));
    }
    Ok(Scaling::Yarn { factor, low, high, stretch })
}
