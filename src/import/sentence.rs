//! Sentence encoders: how `sentence-transformers` makes one vector of the hidden states of a text.
//!
//! In: the text of a checkpoint's `modules.json`, and of the configuration of its pooling
//! (`1_Pooling/config.json`). Out: a [`Pooling`], which an encoder's program gets as `embed`.

use super::config::{Pooling, Refusal};
use serde_json::Value;

/// The modules of a sentence encoder, after the encoder itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modules {
    /// The folder of the pooling, beside `modules.json`.
    pub pooling: String,
    normalises: bool,
}

/// The names of modes, in the order of their results, and what each does with `x: f32[S, D]`.
const MODES: [(&str, &str, &str); 5] = [
    ("cls", "cls_token", "x[0]"),
    ("max", "max_tokens", "max(x, axis = 0)"),
    ("mean", "mean_tokens", "mean(x, axis = 0)"),
    ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens", "sum(x, axis = 0) / sqrt(cast<f32>(S))"),
    ("lasttoken", "lasttoken", "x[S-1]"),
];

fn parsed(text: &str) -> Result<Value, Refusal> {
    serde_json::from_str(text).map_err(|error| Refusal::checkpoint(format!("it is not JSON: {error}")))
}

impl Modules {
    /// Reads a `modules.json`; `None` if there is no pooling.
    ///
    /// # Errors
    /// A module that is unknown, or a folder that is not beside the file.
    pub fn parse(text: &str) -> Result<Option<Modules>, Refusal> {
        let file = parsed(text)?;
        let mut made: Option<Modules> = None;
        for one in file.as_array().into_iter().flatten() {
            let kind = one["type"].as_str().unwrap_or_default();
            match (kind.rsplit('.').next().unwrap_or_default(), &mut made) {
                ("Transformer", None) => {}
                ("Pooling", None) => {
                    let pooling = one["path"].as_str().unwrap_or_default().to_owned();
                    if pooling.is_empty() || pooling.starts_with('.') || pooling.contains(['/', '\\', '\0']) {
                        return Err(Refusal::checkpoint(format!(
                            "the path of its pooling, {pooling:?}, is not a folder"
                        )));
                    }
                    made = Some(Modules { pooling, normalises: false });
                }
                ("Normalize", Some(made)) => made.normalises = true,
                _ => {
                    let message =
                        format!("its module {kind:?} is not one of Transformer, Pooling and Normalize, in this order");
                    return Err(Refusal::checkpoint(message));
                }
            }
        }
        Ok(made)
    }

    /// With the configuration of the pooling.
    ///
    /// # Errors
    /// A mode that is unknown, or none.
    pub fn pooled_by(&self, text: &str) -> Result<Pooling, Refusal> {
        let file = parsed(text)?;
        let field = |name: &str| format!("pooling_mode_{name}");
        // Newer files have one name, or several joined by `+`, instead of a truth value for each.
        let named: Option<Vec<&str>> = file["pooling_mode"].as_str().map(|names| names.split('+').collect());
        let is_on = |(name, long, _): &&(&str, &str, &str)| match &named {
            Some(names) => names.contains(name),
            None => file[field(long)] == true,
        };
        let modes: Vec<&'static str> = MODES.iter().filter(is_on).map(|(.., made)| *made).collect();
        let unknown = match &named {
            Some(names) => names.len() > modes.len(),
            None => file[field("weightedmean_tokens")] == true,
        };
        if unknown || modes.is_empty() {
            let known = MODES.map(|(name, ..)| name).join(", ");
            return Err(Refusal::checkpoint(format!("its pooling is not made of {known}")));
        }
        let made = match modes.as_slice() {
            [one] => (*one).to_owned(),
            several => format!("concat({}, axis = 0)", several.join(", ")),
        };
        let body = match self.normalises {
            true => format!("let y = {made}\n        y / maximum(sqrt(sum(y * y)), 1e-12)"),
            false => made,
        };
        Ok(Pooling { count: modes.len(), body })
    }
}
