//! Which layers see only what is near.
//!
//! In: the fields of the hub (`layer_types`, `sliding_window`, and what stood for them before). Out: the size of the window and a rule
//! of the layer's number, as the language says it.

use super::{Config, Refusal};

/// What a window hides: keys `size` or more positions back.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) size: i64,
    /// In which layers: a condition on `i`, the number of the layer; all of them if there is none.
    pub(super) rule: Option<String>,
}

const KNOWN: &str = "full_attention or sliding_attention for each layer: one kind for all, one up to a layer and the other from there on, or one \
    of them once in each so many layers";

/// The windows of a model of so many layers.
pub(super) fn window(config: &Config, family: &str, layers: i64) -> Result<Option<Window>, Refusal> {
    let qwen = family.starts_with("qwen");
    let used = config.flag_or("use_sliding_window", !qwen)?;
    let first = config.token("max_window_layers")?;
    let period = match config.has("sliding_window_pattern") {
        true => config.size("sliding_window_pattern")?,
        false => config.size_or("_sliding_window_pattern", 6)?,
    };
    // Others have the field, perhaps, and no windows.
    if !(qwen || ["mistral", "gemma2", "gemma3_text"].contains(&family)) {
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
            // Qwen's windows begin with a layer.
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

/// Which layers have a window.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    None,
    All,
    /// Those for which this holds of `i`.
    Those(String),
}

impl Rule {
    fn of_size(self, size: i64) -> Option<Window> {
        match self {
            Rule::None => None,
            Rule::All => Some(Window { size, rule: None }),
            Rule::Those(rule) => Some(Window { size, rule: Some(rule) }),
        }
    }
}

/// All layers but each `period`-th.
fn periodic(layers: i64, period: i64) -> Rule {
    match period {
        1 => Rule::None,
        _ if period > layers => Rule::All,
        _ => Rule::Those(format!("i % {period} != {}", period - 1)),
    }
}

/// The layers from the `first` on.
fn from(first: i64, layers: i64) -> Rule {
    match first {
        0 => Rule::All,
        _ if first >= layers => Rule::None,
        _ => Rule::Those(format!("i >= {first}")),
    }
}

/// The rule of a list that says of each layer whether it has a window.
fn rule(local: &[bool]) -> Option<Rule> {
    let (begins, n) = (*local.first()?, local.len());
    let Some(change) = local.iter().position(|l| *l != begins) else {
        return Some(if begins { Rule::All } else { Rule::None });
    };
    if local.iter().skip(change).all(|l| *l != begins) {
        return Some(Rule::Those(format!("i {} {change}", if begins { "<" } else { ">=" })));
    }
    // One of the kinds stands alone, each so many layers.
    [false, true].into_iter().find_map(|alone| {
        let mut places = (0..n).filter(|i| local.get(*i) == Some(&alone));
        let at = places.next()?;
        // Of one place any longer period would do; the usual rule is the last of so many.
        let once = if 2 * at + 1 >= n { at + 1 } else { n };
        let period = places.next().map_or(once, |next| next - at);
        let holds = at < period && local.iter().enumerate().all(|(i, l)| (*l == alone) == (i % period == at));
        holds.then(|| Rule::Those(format!("i % {period} {} {at}", if alone { "==" } else { "!=" })))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has layer i a window?
    fn holds(rule: &Rule, i: i64) -> bool {
        let Rule::Those(text) = rule else { return *rule == Rule::All };
        let words: Vec<&str> = text.split(' ').collect();
        let number = |at: usize| words[at].parse::<i64>().expect("a number");
        match words.as_slice() {
            ["i", "<", _] => i < number(2),
            ["i", ">=", _] => i >= number(2),
            ["i", "%", _, "==", _] => i % number(2) == number(4),
            ["i", "%", _, "!=", _] => i % number(2) != number(4),
            _ => panic!("{text}"),
        }
    }

    /// The rule of a list written with `l` for local and `f` for full, which it must hold for.
    fn of(list: &str) -> Option<Rule> {
        let found = rule(&list.chars().map(|c| c == 'l').collect::<Vec<bool>>());
        for (i, c) in (0..).zip(list.chars()) {
            assert!(found.as_ref().is_none_or(|rule| holds(rule, i) == (c == 'l')), "{list}: {found:?} of layer {i}");
        }
        found
    }

    #[test]
    fn rules_say_what_their_lists_say() {
        let those = |text: &str| Some(Rule::Those(text.to_owned()));
        for (list, wanted) in [
            ("lll", Some(Rule::All)),
            ("f", Some(Rule::None)),
            ("ffll", those("i >= 2")),
            ("llf", those("i < 2")),
            ("lflf", those("i % 2 != 1")),
            ("flflf", those("i % 2 != 0")),
            ("lllllflllllfll", those("i % 6 != 5")),
            ("fflfflf", those("i % 3 == 2")),
            ("llfll", those("i % 3 != 2")),
            ("llflll", those("i % 6 != 2")),
            ("lffll", None),
            ("llflf", None),
            ("", None),
        ] {
            assert_eq!(of(list), wanted, "{list}");
        }
        // Every list of up to eight layers.
        for n in 1..=8u32 {
            for bits in 0..1u32 << n {
                of(&(0..n).map(|i| if bits >> i & 1 == 1 { 'l' } else { 'f' }).collect::<String>());
            }
        }
    }

    #[test]
    fn what_stood_for_lists_before() {
        for layers in 1..9 {
            for n in 0..9 {
                for i in 0..layers {
                    assert_eq!(holds(&from(n, layers), i), i >= n, "{n} {layers} {i}");
                    assert!(n == 0 || holds(&periodic(layers, n), i) == ((i + 1) % n != 0), "{n} {layers} {i}");
                }
            }
        }
    }
}
