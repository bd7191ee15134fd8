//! The course (`docs/book`) and the examples, embedded when attnc is built.
//!
//! In: what the page opens first, and the exercises. Out: JSON for the page. It knows nothing of
//! what a chapter says.

use serde_json::{Value, json};

include!(concat!(env!("OUT_DIR"), "/course.rs"));

/// A picture of a chapter, by its file name.
pub(super) fn picture(name: &str) -> Option<&'static str> {
    find(PICTURES, name)
}

fn find(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    list.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}

/// A chapter by its number or its name.
pub(super) fn chapter(name: &str) -> Option<&'static str> {
    let number = |text: &str| text.split('-').next().and_then(|n| n.parse::<usize>().ok());
    let wanted = name.parse::<usize>().ok();
    let is_it = |own: &str| own == name || wanted.is_some() && number(own) == wanted;
    CHAPTERS.iter().map(|(own, _)| *own).find(|own| is_it(own))
}

/// Everything that the page shows of the course.
pub(super) fn all(start: &Value, exercises: &Value) -> Value {
    let list = |list: &[(&str, &str)]| -> Value {
        list.iter().map(|(name, text)| json!({ "name": name, "text": text })).collect()
    };
    json!({ "start": start, "chapters": list(CHAPTERS), "exercises": exercises, "examples": list(EXAMPLES) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chapters_have_numbers_and_names() {
        assert_eq!(chapter("4"), Some("04-attention"));
        assert_eq!(chapter("04-attention"), Some("04-attention"));
        assert_eq!((chapter("0"), chapter("99"), chapter("")), (None, None, None));
        assert!(CHAPTERS.iter().any(|(name, _)| *name == "index"));
        assert!(picture("attention.svg").is_some_and(|text| text.contains("<svg")) && picture("x").is_none());
    }
}
