//! `tokenizer.json` of the Hugging Face hub, as far as models that generate text use it: BPE over bytes (GPT-2, Llama 3, Qwen) or
//! over characters (Llama 2, Mistral, Gemma), and unigram models (T5, mBART, Marian).
//!
//! In: the text of the file. Out: a [`Hub`], which gives the tokens that the `tokenizers` library gives; or the part of the file
//! that is not supported. The library itself is not used: little more than this file and a regular expression engine is needed, and
//! the library would take three times as long to build (45 seconds of CPU time instead of 15).

use super::bpe::Bpe;
use super::pieces::{Normalizer, Splitter, bounded, bytes_of, list, named, refuse};
use super::unigram::Unigram;
use serde_json::Value;
use std::collections::HashMap;

/// What divides a piece into tokens.
#[derive(Debug)]
enum Model {
    Bpe(Bpe),
    Unigram(Unigram),
}

impl Model {
    fn read(model: &Value) -> Result<Model, String> {
        match &model["type"] {
            Value::String(kind) if kind == "BPE" => bpe(model).map(Model::Bpe),
            Value::String(kind) if kind == "Unigram" => unigram(model).map(Model::Unigram),
            // Older files omit the type; only BPE has merges.
            Value::Null if model["merges"].is_array() => bpe(model).map(Model::Bpe),
            Value::Null => Err("it has no `model.type`: it is not a tokenizer.json".to_string()),
            other => Err(refuse("model.type", other, "\"BPE\" or \"Unigram\"")),
        }
    }

    /// What each token adds to a text.
    fn bytes(&self, decode: &Decode) -> HashMap<u32, Vec<u8>> {
        match self {
            Model::Bpe(bpe) => bpe.vocabulary.iter().map(|(text, token)| (*token, decode(text))).collect(),
            Model::Unigram(unigram) => unigram.texts().map(|(text, token)| (token, decode(text))).collect(),
        }
    }

    fn encode(&self, piece: &str, tokens: &mut Vec<u32>) -> Result<(), String> {
        match self {
            Model::Bpe(bpe) => bpe.encode(piece, tokens),
            Model::Unigram(unigram) => unigram.encode(piece, tokens),
        }
    }
}

/// A tokenizer read from a file.
#[derive(Debug)]
pub struct Hub {
    model: Model,
    normalizers: Vec<Normalizer>,
    splitters: Vec<Splitter>,
    /// Added tokens, longest text first.
    added: Vec<Added>,
    /// Tokens before a text, and those after it.
    around: (Vec<u32>, Vec<u32>),
    /// What each token adds to a text.
    bytes: HashMap<u32, Vec<u8>>,
    vocabulary: u64,
}

/// A text that is a token wherever it occurs.
#[derive(Debug)]
struct Added {
    text: String,
    token: u32,
    /// Does it absorb the whitespace before it, and that after it?
    takes: (bool, bool),
}

impl Hub {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// What is wrong with it, or not supported, in words.
    pub(super) fn read(text: &str) -> Result<Hub, String> {
        let file: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let model = Model::read(&file["model"])?;
        let normalizers = Normalizer::all(&file["normalizer"])?;
        let splitters = Splitter::all(&file["pre_tokenizer"])?;
        let mut bytes = model.bytes(&decoder(&file["decoder"])?);
        let mut added = Vec::new();
        for (at, one) in list(&file["added_tokens"]).iter().enumerate() {
            let place = |field: &str| format!("added_tokens[{at}].{field}");
            let (Some(text), Some(token)) = (one["content"].as_str(), number(&one["id"])) else {
                return Err(format!("`added_tokens[{at}]` has no `content` and `id`"));
            };
            if one["single_word"] == true {
                return Err(refuse(&place("single_word"), &one["single_word"], "false"));
            }
            let is_special = one["special"] == true;
            bytes.insert(token, if is_special { Vec::new() } else { text.as_bytes().to_vec() });
            let takes = (one["lstrip"] == true, one["rstrip"] == true);
            if !text.is_empty() {
                added.push(Added { text: text.to_string(), token, takes });
            }
        }
        added.sort_by_key(|one| usize::MAX - one.text.len());
        let around = around(&file["post_processor"], &|token| bytes.contains_key(&token))?;
        let vocabulary = bytes.keys().max().map_or(0, |most| u64::from(*most) + 1);
        Ok(Hub { model, normalizers, splitters, added, around, bytes, vocabulary })
    }

    pub(super) fn vocabulary(&self) -> u64 {
        self.vocabulary
    }

    pub(super) fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        self.bytes.get(&token).cloned()
    }

    /// The tokens of a text that goes on, or of a whole one: then those after it are there too.
    pub(super) fn encode(&self, text: &str, is_whole: bool) -> Result<Vec<u32>, String> {
        let (before, after) = &self.around;
        let mut tokens = before.clone();
        let mut rest = text;
        let mut is_first = true;
        // Where each added token occurs next; it is searched for again only from there on.
        let mut next: Vec<Option<usize>> = self.added.iter().map(|one| text.find(one.text.as_str())).collect();
        while !rest.is_empty() {
            let begin = text.len() - rest.len();
            for (place, one) in next.iter_mut().zip(&self.added).filter(|(place, _)| place.is_some_and(|at| at < begin))
            {
                *place = rest.find(one.text.as_str()).map(|at| begin + at);
            }
            let found = next.iter().zip(&self.added).filter_map(|(place, one)| Some(((*place)? - begin, one)));
            // The first place; there, the longest.
            let Some((at, one)) = found.min_by_key(|(at, _)| *at) else {
                self.part(rest, is_first, &mut tokens)?;
                break;
            };
            let before = if one.takes.0 { rest[..at].trim_end() } else { &rest[..at] };
            self.part(before, is_first, &mut tokens)?;
            tokens.push(one.token);
            rest = &rest[at + one.text.len()..];
            rest = if one.takes.1 { rest.trim_start() } else { rest };
            is_first = false;
        }
        if is_whole {
            tokens.extend(after);
        }
        Ok(tokens)
    }

    /// The tokens of a text without added ones.
    fn part(&self, text: &str, is_first: bool, tokens: &mut Vec<u32>) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let text = self.normalizers.iter().try_fold(text.to_string(), |text, one| one.apply(&text))?;
        if text.is_empty() {
            return Ok(());
        }
        let mut pieces = vec![text];
        for splitter in &self.splitters {
            let mut parts = Vec::new();
            for (at, piece) in pieces.iter().enumerate() {
                splitter.split(piece, is_first && at == 0, &mut parts)?;
            }
            pieces = parts;
        }
        pieces.iter().try_for_each(|piece| self.model.encode(piece, tokens))
    }
}

fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

/// A unigram model.
fn unigram(model: &Value) -> Result<Unigram, String> {
    let Some(list) = model["vocab"].as_array() else { return Err("`model.vocab` is not a list".to_string()) };
    let mut vocabulary = Vec::with_capacity(list.len());
    for (at, one) in list.iter().enumerate() {
        let found = one.as_array().and_then(|pair| match pair.as_slice() {
            [text, score] => Some((text.as_str()?.to_string(), score.as_f64()?)),
            _ => None,
        });
        vocabulary.push(found.ok_or_else(|| format!("`model.vocab[{at}]` is {one}; expected a text and its score"))?);
    }
    let unknown = match &model["unk_id"] {
        Value::Null => None,
        id => Some(number(id).ok_or_else(|| refuse("model.unk_id", id, "a number of a token"))?),
    };
    Unigram::new(vocabulary, unknown, model["byte_fallback"] == true)
}

/// A BPE model.
fn bpe(model: &Value) -> Result<Bpe, String> {
    for field in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model[field].as_str().is_some_and(|text| !text.is_empty()) {
            return Err(refuse(&format!("model.{field}"), &model[field], "null"));
        }
    }
    let Some(words) = model["vocab"].as_object() else { return Err("`model.vocab` is not an object".to_string()) };
    let mut vocabulary = HashMap::with_capacity(words.len());
    for (word, token) in words {
        let token = number(token).ok_or_else(|| format!("`model.vocab` has no number for {word:?}"))?;
        vocabulary.insert(word.clone(), token);
    }
    let mut merges = HashMap::new();
    for (rank, merge) in list(&model["merges"]).iter().enumerate() {
        let pair = match merge {
            Value::String(both) => both.split_once(' '),
            Value::Array(both) => match both.as_slice() {
                [Value::String(left), Value::String(right)] => Some((left.as_str(), right.as_str())),
                _ => None,
            },
            _ => None,
        };
        let known = |text: &str| vocabulary.get(text).copied();
        let made =
            pair.and_then(|(left, right)| Some(((known(left)?, known(right)?), known(&format!("{left}{right}"))?)));
        let (pair, made) =
            made.ok_or_else(|| format!("`model.merges[{rank}]` is {merge}, which is not in `model.vocab`"))?;
        merges.entry(pair).or_insert((rank, made));
    }
    let is = |field: &str| model[field] == true;
    let unknown = model["unk_token"].as_str();
    let unknown = unknown.and_then(|text| vocabulary.get(text)).map(|token| (*token, is("fuse_unk")));
    Ok(Bpe { falls_back: is("byte_fallback"), whole_first: is("ignore_merges"), unknown, vocabulary, merges })
}

/// Gives the bytes that a token adds to a text, from the token's own text.
type Decode = Box<dyn Fn(&str) -> Vec<u8>>;

fn decoder(decoder: &Value) -> Result<Decode, String> {
    let mut replaced: Vec<(String, String)> = Vec::new();
    let mut falls_back = false;
    for (place, one) in named("decoder", "decoders", decoder) {
        match one["type"].as_str() {
            Some("ByteLevel") => return Ok(Box::new(bytes_of)),
            Some("Replace") => {
                let (Some(from), Some(to)) = (one["pattern"]["String"].as_str(), one["content"].as_str()) else {
                    return Err(refuse(&format!("{place}.pattern"), &one["pattern"], "a `String`"));
                };
                replaced.push((from.to_string(), to.to_string()));
            }
            Some("Metaspace") => {
                replaced.push((one["replacement"].as_str().unwrap_or("\u{2581}").to_string(), " ".to_string()));
            }
            Some("ByteFallback") => falls_back = true,
            // Tokens are concatenated anyway, and only the beginning of a whole text is stripped.
            Some("Fuse" | "Strip") => {}
            _ => return Err(refuse(&place, one, "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip")),
        }
    }
    bounded("decoder", replaced.iter().map(|(from, to)| (from.as_str(), to.as_str())))?;
    Ok(Box::new(move |text| {
        let byte = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|_| falls_back);
        if let Some(byte) = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            return vec![byte];
        }
        replaced.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to)).into_bytes()
    }))
}

/// The tokens that a post-processor puts before a text and after it, each of which must be one of the vocabulary.
fn around(processor: &Value, is_token: &dyn Fn(u32) -> bool) -> Result<(Vec<u32>, Vec<u32>), String> {
    let mut found = None;
    for (place, one) in named("post_processor", "processors", processor) {
        let known = |name: &str, id: &Value, field: &str| {
            let wrong = || format!("`{place}.{field}`: the id {id} of {name:?} is no token of the vocabulary");
            number(id).filter(|token| is_token(*token)).ok_or_else(wrong)
        };
        let both = match one["type"].as_str() {
            Some("ByteLevel") => continue,
            Some("TemplateProcessing") => {
                let (mut own, mut end) = (Vec::new(), None);
                for part in list(&one["single"]) {
                    if !part["Sequence"].is_null() {
                        if end.replace(own.len()).is_some() {
                            return Err(format!("`{place}.single` has the text twice"));
                        }
                        continue;
                    }
                    let name = part["SpecialToken"]["id"].as_str().unwrap_or_default();
                    let ids = list(&one["special_tokens"][name]["ids"]);
                    if ids.is_empty() {
                        return Err(format!("`{place}.special_tokens` has no ids of {name:?}"));
                    }
                    for id in ids {
                        own.push(known(name, id, "special_tokens")?);
                    }
                }
                let behind = own.split_off(end.ok_or_else(|| format!("`{place}.single` has no text"))?);
                (own, behind)
            }
            Some("RobertaProcessing" | "BertProcessing") => {
                let edge = |field: &str| known(one[field][0].as_str().unwrap_or_default(), &one[field][1], field);
                (vec![edge("cls")?], vec![edge("sep")?])
            }
            _ => {
                let wanted = "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing";
                return Err(refuse(&place, one, wanted));
            }
        };
        // The library takes the parts of the first for a pair of texts.
        if found.replace(both).is_some() {
            return Err(format!("`{place}` is the second processor that adds tokens; expected at most one"));
        }
    }
    Ok(found.unwrap_or_default())
}
