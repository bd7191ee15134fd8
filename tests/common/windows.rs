//! Unit tests of `src/import/decoder/windows.rs`: does a rule hold for the layers of its list, and do the loops go through all of them?

use super::*;

/// Evaluates the rule's condition, as written, for layer i.
fn holds(rule: &Rule, i: i64) -> bool {
    let text = rule.condition();
    let words: Vec<&str> = text.split(' ').collect();
    let number = |at: usize| words[at].parse::<i64>().expect("a number");
    match words.as_slice() {
        ["true"] => true,
        ["false"] => false,
        ["i", "<", _] => i < number(2),
        ["i", ">=", _] => i >= number(2),
        ["i", "%", _, "==", _] => i % number(2) == number(4),
        ["i", "%", _, "!=", _] => i % number(2) != number(4),
        _ => panic!("{text}"),
    }
}

/// The layers that the statements go through, and the indices in `rings` (true) and `caches`.
fn gone_through(lines: &[String]) -> Vec<(i64, bool, i64)> {
    // `4`, `i`, `i - 3`, `3*g + 1`.
    let number = |formula: &str, counter: i64| {
        let terms = formula.replace(" - ", " + -");
        let term = |term: &str| match term.split_once('*') {
            Some((factor, _)) => factor.parse::<i64>().expect("a factor") * counter,
            None if ["i", "g"].contains(&term) => counter,
            None => term.parse().expect("a number"),
        };
        terms.split(" + ").map(term).sum::<i64>()
    };
    let within = |line: &str, before: &str| {
        let rest = line.split_once(before).expect("an index").1;
        rest.split_once(']').expect("its end").0.to_owned()
    };
    let (mut gone, mut at) = (Vec::new(), 0);
    while let Some(line) = lines.get(at) {
        let (counters, body) = match line.strip_prefix("for ") {
            Some(head) => {
                let range = head[5..].trim_end_matches(" {");
                let (from, to) = range.split_once("..").expect("a range");
                let length = lines[at..].iter().position(|line| line == "}").expect("its end");
                (from.parse().expect("a number")..to.parse().expect("a number"), at + 1..at + length)
            }
            None => (0..1, at..at + 2),
        };
        for counter in counters {
            for pair in lines[body.clone()].chunks(2) {
                let near = pair[1].contains("rings[");
                let cache = within(&pair[1], if near { "rings[" } else { "caches[" });
                let layer = within(&pair[0], "layers[");
                assert_eq!(layer, within(&pair[1], "layers["));
                assert!(pair[0].ends_with(if near { ", near)" } else { ", far)" }), "{pair:?}");
                gone.push((number(&layer, counter), near, number(&cache, counter)));
            }
        }
        at = body.end + usize::from(line.starts_with("for "));
    }
    gone
}

/// Checks that each layer occurs once, in order, with the next index in its kind's array; and
/// in few statements.
fn goes_through(rule: &Rule, layers: i64) {
    let through = rule.through("layers", layers, |near| if near { ", near" } else { ", far" }.to_owned());
    let mut used = [0, 0];
    for (i, gone) in (0..).zip(gone_through(&through.lines)) {
        let place = &mut used[usize::from(holds(rule, i))];
        assert_eq!(gone, (i, holds(rule, i), *place), "{rule:?}: {:?}", through.lines);
        *place += 1;
    }
    assert_eq!(used.map(|n| n as usize), [through.caches, through.rings]);
    assert_eq!(used[0] + used[1], layers);
}

#[test]
fn depth_makes_no_more_statements() {
    for (rule, few) in [(periodic(26, 6), 18), (from(20, 26), 8), (periodic(26, 2), 6)] {
        let lines = rule.through("layers", 26, |_| String::new()).lines;
        assert_eq!(lines.len(), few, "{lines:#?}");
    }
    assert_eq!(periodic(6002, 6).through("layers", 6002, |_| String::new()).lines.len(), 18);
}

/// The rule for a list with `l` for local and `f` for full; checks it.
fn from_letters(list: &str) -> Option<Rule> {
    let found = rule(&list.chars().map(|c| c == 'l').collect::<Vec<bool>>());
    for (i, c) in (0..).zip(list.chars()) {
        assert!(found.as_ref().is_none_or(|rule| holds(rule, i) == (c == 'l')), "{list}: {found:?} of layer {i}");
    }
    if let Some(rule) = found.as_ref().filter(|rule| rule.is_mixed()) {
        goes_through(rule, list.len() as i64);
    }
    found
}

#[test]
fn rules_say_what_their_lists_say() {
    let those = |text: &str| Some(text.to_owned());
    for (list, wanted) in [
        ("lll", those("true")),
        ("f", those("false")),
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
        assert_eq!(from_letters(list).map(|rule| rule.condition()), wanted, "{list}");
    }
    // All lists of up to eight layers.
    for n in 1..=8u32 {
        for bits in 0..1u32 << n {
            from_letters(&(0..n).map(|i| if bits >> i & 1 == 1 { 'l' } else { 'f' }).collect::<String>());
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
