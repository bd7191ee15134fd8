//! The patterns of `rearrange` and `einsum`, parsed and checked: `"s (n h d) -> n h s d"`.
//!
//! In: a string. Out: its sides as lists of items, or a message that names the invalid part.
//! Matching names with a tensor is the type checker's task.

use std::fmt;

/// One entry of a side of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// `..`: all axes without an entry of their own.
    Rest,
    /// An axis: one name, the number 1, or several in parentheses, outermost first.
    Axis(Vec<Atom>),
}

/// A factor of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Atom {
    /// The name of a length.
    Name(String),
    /// An axis of length 1.
    One,
}

/// One side of a pattern.
pub type Side = Vec<Item>;

/// A pattern of `rearrange`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rearrange {
    /// The axes of the operand.
    pub left: Side,
    /// The axes of the result.
    pub right: Side,
}

/// A pattern of `einsum`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Einsum {
    /// The axes of each operand.
    pub inputs: Vec<Side>,
    /// The axes of the result.
    pub output: Side,
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Name(name) => f.write_str(name),
            Atom::One => f.write_str("1"),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Rest => f.write_str(".."),
            Item::Axis(atoms) => match atoms.as_slice() {
                [atom] => write!(f, "{atom}"),
                _ => {
                    let names: Vec<String> = atoms.iter().map(Atom::to_string).collect();
                    write!(f, "({})", names.join(" "))
                }
            },
        }
    }
}

/// The names of a side, in order.
pub fn names(side: &[Item]) -> impl Iterator<Item = &str> {
    side.iter()
        .flat_map(|item| match item {
            Item::Rest => &[][..],
            Item::Axis(atoms) => atoms.as_slice(),
        })
        .filter_map(|atom| match atom {
            Atom::Name(name) => Some(name.as_str()),
            Atom::One => None,
        })
}

/// Parses a pattern of `rearrange`.
///
/// # Errors
/// A message about the pattern.
pub fn rearrange(text: &str) -> Result<Rearrange, String> {
    let (left, right) = halves(text)?;
    let (left, right) = (side(left)?, side(right)?);
    for side in [&left, &right] {
        unique(side)?;
    }
    if let Some(name) = names(&right).find(|name| !names(&left).any(|other| other == *name)) {
        return Err(format!("`{name}` is on the right, but not on the left"));
    }
    if let Some(name) = names(&left).find(|name| !names(&right).any(|other| other == *name)) {
        return Err(format!(
            "`{name}` is on the left, but not on the right; remove an axis with a reduction such as `sum`"
        ));
    }
    if left.contains(&Item::Rest) != right.contains(&Item::Rest) {
        return Err("`..` must be on both sides".to_string());
    }
    Ok(Rearrange { left, right })
}

/// Parses a pattern of `einsum`.
///
/// # Errors
/// A message about the pattern.
pub fn einsum(text: &str) -> Result<Einsum, String> {
    let (left, right) = halves(text)?;
    let inputs = left.split(',').map(side).collect::<Result<Vec<Side>, String>>()?;
    let output = side(right)?;
    for side in inputs.iter().chain([&output]) {
        unique(side)?;
        if side.iter().any(|item| matches!(item, Item::Axis(atoms) if !matches!(atoms.as_slice(), [Atom::Name(_)]))) {
            return Err("an axis of `einsum` is one name, without parentheses or numbers".to_string());
        }
    }
    if let Some(name) = names(&output).find(|name| !inputs.iter().any(|side| names(side).any(|n| n == *name))) {
        return Err(format!("`{name}` is on the right, but in no operand"));
    }
    if inputs.iter().any(|side| side.contains(&Item::Rest)) != output.contains(&Item::Rest) {
        return Err("`..` must be on both sides".to_string());
    }
    Ok(Einsum { inputs, output })
}

fn halves(text: &str) -> Result<(&str, &str), String> {
    let mut parts = text.split("->");
    match (parts.next(), parts.next(), parts.next()) {
        (Some(left), Some(right), None) => Ok((left, right)),
        (_, None, _) => Err("there is no `->` between the axes before and after".to_string()),
        (_, Some(_), _) => Err("there is more than one `->`".to_string()),
    }
}

fn unique(side: &[Item]) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    match names(side).find(|name| !seen.insert(*name)) {
        Some(name) => Err(format!("`{name}` occurs twice on one side")),
        None if side.iter().filter(|item| **item == Item::Rest).count() > 1 => {
            Err("`..` occurs twice on one side".to_string())
        }
        None => Ok(()),
    }
}

fn side(text: &str) -> Result<Side, String> {
    let mut items = Side::new();
    let mut group: Option<Vec<Atom>> = None;
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '(' => {
                if group.is_some() {
                    return Err("parentheses cannot be nested".to_string());
                }
                group = Some(Vec::new());
                1
            }
            ')' => {
                let atoms = group.take().ok_or("`)` without `(`")?;
                items.push(Item::Axis(if atoms.is_empty() { vec![Atom::One] } else { atoms }));
                1
            }
            '.' => {
                let len = if rest.starts_with("...") { 3 } else { 2 };
                if !rest.starts_with("..") {
                    return Err("`.` is not an axis; `..` stands for all remaining axes".to_string());
                }
                if group.is_some() {
                    return Err("`..` cannot be in parentheses".to_string());
                }
                items.push(Item::Rest);
                len
            }
            c if c.is_alphanumeric() || c == '_' => {
                let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                let word = rest.get(..len).unwrap_or_default();
                let atom = if word == "1" {
                    Atom::One
                } else if c.is_numeric() {
                    return Err(format!("`{word}` is not an axis; the only number is 1, for an axis of length 1"));
                } else {
                    Atom::Name(word.to_string())
                };
                match &mut group {
                    Some(atoms) => atoms.push(atom),
                    None => items.push(Item::Axis(vec![atom])),
                }
                len
            }
            c => return Err(format!("`{c}` is not part of a pattern")),
        };
        rest = rest.get(len..).unwrap_or_default().trim_start();
    }
    if group.is_some() {
        return Err("`(` is not closed".to_string());
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_groups_rest_and_ones() {
        let pattern = rearrange(".. s (n h d) -> n .. h 1 (s d)").unwrap();
        let show = |side: &Side| side.iter().map(Item::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(show(&pattern.left), ".. s (n h d)");
        assert_eq!(show(&pattern.right), "n .. h 1 (s d)");
        let pattern = einsum(".. h s d, .. h t d -> .. h s t").unwrap();
        assert_eq!(pattern.inputs.len(), 2);
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("s d", "no `->`"),
            ("s -> s -> s", "more than one"),
            ("s d -> d", "`s` is on the left"),
            ("s -> s d", "`d` is on the right"),
            ("s s -> s", "twice"),
            ("(s d -> s d", "not closed"),
            ("s) -> s", "without"),
            ("((s)) -> s", "nest"),
            (".. s -> s", "both sides"),
            ("s 2 -> s", "`2`"),
            ("s + d -> s d", "`+`"),
            ("(.. s) -> s", "parentheses"),
        ] {
            let message = rearrange(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert!(einsum("(a b) -> a b").unwrap_err().contains("parentheses"));
        assert!(einsum("a, b -> c").unwrap_err().contains("no operand"));
    }
}
