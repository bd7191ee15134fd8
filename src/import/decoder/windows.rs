//! Sliding-window attention: which layers use it, and its size.
//!
//! In: the fields of the hub (`layer_types`, `sliding_window`, and their older equivalents). Out:
//! the size of the window and a rule on the layer's number; and, in the language, the condition,
//! and the loops over layers of both kinds ([`Rule::through`]).

use super::{Config, Refusal};

/// A sliding window: keys `size` or more positions back are hidden.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) size: i64,
    /// The layers with a window.
    pub(super) rule: Rule,
}

const KNOWN: &str = "full_attention or sliding_attention for each layer: one kind for all, one up to a layer and the other after it, or one \
    of them every n-th layer";

/// The windows of a model with this many layers.
pub(super) fn window(config: &Config, family: &str, layers: i64) -> Result<Option<Window>, Refusal> {
    let qwen = family.starts_with("qwen");
    let used = config.flag_or("use_sliding_window", !qwen && family != "smollm3")?;
    let first = config.token("max_window_layers")?;
    let period = match config.has("sliding_window_pattern") {
        true => config.size("sliding_window_pattern")?,
        false => config.size_or("_sliding_window_pattern", 6)?,
    };
    if family == "gpt_neo" {
        return by_types(config, layers);
    }
    // Other families may have the field, but no windows.
    if !(qwen || ["mistral", "gemma2", "gemma3_text", "phi3", "starcoder2", "mixtral", "smollm3"].contains(&family)) {
        config.has("sliding_window");
        config.texts("layer_types")?;
        return Ok(None);
    }
    let size = match config.has("sliding_window") && used {
        true => Some(config.size("sliding_window")?),
        // The default of its class.
        false if family == "gemma3_text" && config.present("sliding_window").is_err() => Some(4096),
        false => None,
    };
    let Some(kinds) = config.texts("layer_types")? else {
        let Some(size) = size else { return Ok(None) };
        let rule = match family {
            "gemma2" => periodic(layers, 2),
            "gemma3_text" => periodic(layers, period),
            // Qwen's windows start at a given layer.
            _ if qwen => from(first.unwrap_or(28), layers),
            _ => Rule::All,
        };
        return Ok(rule.of_size(size));
    };
    let local: Option<Vec<bool>> = kinds
        .iter()
        .map(|kind| match kind.as_str() {
            "sliding_attention" => Some(true),
            "full_attention" => Some(false),
            _ => None,
        })
        .collect();
    let rule = local.filter(|local| local.len() as i64 == layers).and_then(|local| rule(&local));
    let rule = rule.ok_or_else(|| config.refuse("layer_types", KNOWN))?;
    match (&rule, size) {
        (Rule::None, _) => Ok(None),
        (_, Some(size)) => Ok(rule.of_size(size)),
        (_, None) => Err(config.refuse("sliding_window", "a size, where layers are of the kind sliding_attention")),
    }
}

/// The windows of GPT-Neo: groups of kinds, each with the number of times that it is repeated.
fn by_types(config: &Config, layers: i64) -> Result<Option<Window>, Refusal> {
    let size = config.size_or("window_size", 256)?;
    let mut local = Vec::new();
    for (kinds, times) in config.groups("attention_types")?.unwrap_or_default() {
        let kinds: Vec<bool> = kinds.iter().map(|kind| kind == "local").collect();
        for _ in 0..times {
            if kinds.is_empty() || local.len() as i64 > layers.min(super::MAX_MIXED) {
                break;
            }
            local.extend(&kinds);
        }
    }
    let rule = Some(local).filter(|local| local.len() as i64 == layers).and_then(|local| rule(&local));
    let rule = rule.ok_or_else(|| {
        config.refuse(
            "attention_types",
            "global or local for each layer: one kind for all, or one of them every n-th layer",
        )
    })?;
    Ok(rule.of_size(size))
}

/// The rule for layers with rotary positions, where some have none.
pub(super) fn unrotated(config: &Config, family: &str, layers: i64) -> Result<Option<Rule>, Refusal> {
    if family != "smollm3" {
        return Ok(None);
    }
    let period = config.size_or("no_rope_layer_interval", 4)?;
    let found = match config.numbers("no_rope_layers")? {
        // 1 is for a layer with them.
        Some(list) if list.len() as i64 == layers => rule(&list.iter().map(|n| *n != 0).collect::<Vec<bool>>()),
        Some(_) => None,
        None => Some(periodic(layers, period)),
    };
    let found =
        found.ok_or_else(|| config.refuse("no_rope_layers", "0 for one layer of each period, 1 for the others"))?;
    Ok((found != Rule::All).then_some(found))
}

/// The layers with a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    None,
    All,
    /// The layers before `at`, or all others.
    Change {
        first_near: bool,
        at: i64,
    },
    /// Layers `at`, `at + period` and so on are of one kind, all others of the other.
    Periodic {
        alone_near: bool,
        period: i64,
        at: i64,
    },
}

/// The loops over layers of both kinds. Their caches are not in the layers, but in two arrays,
/// `rings` for layers with a window and `caches` for the others.
pub(super) struct Through {
    /// Number of layers with a window.
    pub(super) rings: usize,
    /// Number of layers without a window.
    pub(super) caches: usize,
    /// Statements that transform `x`, the tokens, which follow `past` others.
    pub(super) lines: Vec<String>,
}

impl Rule {
    fn of_size(self, size: i64) -> Option<Window> {
        (self != Rule::None).then_some(Window { size, rule: self })
    }

    /// Does layer `i` have a window?
    fn is_near(&self, i: i64) -> bool {
        match *self {
            Rule::None => false,
            Rule::All => true,
            Rule::Change { first_near, at } => first_near == (i < at),
            Rule::Periodic { alone_near, period, at } => alone_near == (i % period == at),
        }
    }

    /// Are there layers with a window and layers without?
    pub(super) fn is_mixed(&self) -> bool {
        matches!(self, Rule::Change { .. } | Rule::Periodic { .. })
    }

    /// The condition on `i`, the number of a layer, for having a window.
    pub(super) fn condition(&self) -> String {
        match self {
            Rule::None => "false".to_owned(),
            Rule::All => "true".to_owned(),
            Rule::Change { first_near, at } => format!("i {} {at}", if *first_near { "<" } else { ">=" }),
            Rule::Periodic { alone_near, period, at } => {
                format!("i % {period} {} {at}", if *alone_near { "==" } else { "!=" })
            }
        }
    }

    /// The loops over the layers of this array. `arguments` are the arguments of `heads` after `x`,
    /// in layers with and without a window.
    ///
    /// A period that occurs at least twice becomes one loop, and so do adjacent layers of one kind
    /// elsewhere: the program does not grow with its depth.
    pub(super) fn through(&self, array: &str, layers: i64, arguments: impl Fn(bool) -> String) -> Through {
        let near: Vec<bool> = (0..layers).map(|i| self.is_near(i)).collect();
        let before = |i: usize, kind: bool| near.iter().take(i).filter(|near| **near == kind).count();
        let mut lines = Vec::new();
        let mut begin = 0;
        if let Rule::Periodic { period, .. } = *self
            && let period = usize::try_from(period).unwrap_or(usize::MAX)
            && near.len() / period > 1
        {
            let groups = near.len() / period;
            lines.push(format!("for g in 0..{groups} {{"));
            for (i, kind) in near.iter().take(period).enumerate() {
                let times = |n: usize| if n == 1 { "g".to_owned() } else { format!("{n}*g") };
                let plus = |n: usize| if n == 0 { String::new() } else { format!(" + {n}") };
                let layer = times(period) + &plus(i);
                let cache = times(before(period, *kind)) + &plus(before(i, *kind));
                lines.extend(one(array, *kind, &layer, &cache, &arguments(*kind)).map(|line| format!("    {line}")));
            }
            lines.push("}".to_owned());
            begin = groups * period;
        }
        while let Some(kind) = near.get(begin) {
            let end = begin + near.iter().skip(begin).take_while(|near| *near == kind).count();
            // Index of the first one in the array of its kind.
            let first = before(begin, *kind);
            if end - begin == 1 {
                lines.extend(one(array, *kind, &begin.to_string(), &first.to_string(), &arguments(*kind)));
            } else {
                let cache = if first == begin { "i".to_owned() } else { format!("i - {}", begin - first) };
                lines.push(format!("for i in {begin}..{end} {{"));
                lines.extend(one(array, *kind, "i", &cache, &arguments(*kind)).map(|line| format!("    {line}")));
                lines.push("}".to_owned());
            }
            begin = end;
        }
        let rings = before(near.len(), true);
        Through { rings, caches: near.len() - rings, lines }
    }
}

/// The statements for one layer, by its number and the index of its cache.
fn one(layers: &str, near: bool, layer: &str, cache: &str, arguments: &str) -> [String; 2] {
    let array = if near { "rings" } else { "caches" };
    [
        format!("let (q, k, v) = {layers}[{layer}].heads(x{arguments})"),
        format!("x = {layers}[{layer}].rest(x, {array}[{cache}].attend(q, k, v, past))"),
    ]
}

/// All layers except each `period`-th.
fn periodic(layers: i64, period: i64) -> Rule {
    match period {
        1 => Rule::None,
        _ if period > layers => Rule::All,
        _ => Rule::Periodic { alone_near: false, period, at: period - 1 },
    }
}

/// The layers starting at `first`.
fn from(first: i64, layers: i64) -> Rule {
    match first {
        0 => Rule::All,
        _ if first >= layers => Rule::None,
        _ => Rule::Change { first_near: false, at: first },
    }
}

/// The rule for a list that says for each layer whether it has a window.
fn rule(local: &[bool]) -> Option<Rule> {
    let (begins, n) = (*local.first()?, local.len());
    let Some(change) = local.iter().position(|l| *l != begins) else {
        return Some(if begins { Rule::All } else { Rule::None });
    };
    if local.iter().skip(change).all(|l| *l != begins) {
        return Some(Rule::Change { first_near: begins, at: change as i64 });
    }
    // One kind is isolated, with a constant period.
    [false, true].into_iter().find_map(|alone| {
        let mut places = (0..n).filter(|i| local.get(*i) == Some(&alone));
        let at = places.next()?;
        // With a single occurrence, any longer period fits; the usual rule is the last of each
        // period.
        let once = if 2 * at + 1 >= n { at + 1 } else { n };
        let period = places.next().map_or(once, |next| next - at);
        let holds = at < period && local.iter().enumerate().all(|(i, l)| (*l == alone) == (i % period == at));
        holds.then_some(Rule::Periodic { alone_near: alone, period: period as i64, at: at as i64 })
    })
}

#[cfg(test)]
#[path = "../../../tests/common/windows.rs"]
mod tests;
