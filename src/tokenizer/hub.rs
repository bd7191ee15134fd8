//! `tokenizer.json` of the Hugging Face hub, as far as models that generate text use it: BPE over
//! bytes (GPT-2, Llama 3, Qwen) or over characters (Llama 2, Mistral, Gemma), unigram models (T5,
//! mBART, Marian), and WordPiece (BERT).
//!
//! In: the text of the file. Out: a [`Hub`], which produces the same tokens as the `tokenizers`
//! library; or the part of the file that is not supported. The library itself is not used: little
//! more than this file and a regular expression engine is needed, while the library would triple
//! the build time (45 seconds of CPU time instead of 15), and limits neither work nor memory.

use super::Marks;
use super::added::{Added, AddedTokens};
use super::bpe::Bpe;
use super::budget::Budget;
use super::normalize::{Normalizer, TextPart, bounded};
use super::pieces::{Pieces, Splitter, bytes_of, list, named, refuse, shown};
use super::unigram::Unigram;
use super::words::WordPiece;
use serde_json::Value;
use std::collections::HashMap;

/// Maximum number of JSON values in a file: each takes memory, however short it is.
const MAX_VALUES: usize = 1 << 23;
/// Maximum number of tokens that a post-processor may add.
const MAX_AROUND: usize = 1 << 10;

/// The algorithm that divides a piece into tokens.
#[derive(Debug)]
enum Model {
    Bpe(Bpe),
    Unigram(Unigram),
    WordPiece(WordPiece),
}

impl Model {
    fn read(model: &Value, budget: &Budget) -> Result<Model, String> {
        match &model["type"] {
            Value::String(kind) if kind == "BPE" => bpe(model).map(Model::Bpe),
            Value::String(kind) if kind == "Unigram" => unigram(model, budget).map(Model::Unigram),
            Value::String(kind) if kind == "WordPiece" => word_piece(model).map(Model::WordPiece),
            // Older files omit the type; only BPE has merges, and only WordPiece a length of words.
            Value::Null if model["merges"].is_array() => bpe(model).map(Model::Bpe),
            Value::Null if model["max_input_chars_per_word"].is_u64() => word_piece(model).map(Model::WordPiece),
            Value::Null => Err("it has no `model.type`: it is not a tokenizer.json".to_string()),
            other => Err(refuse("model.type", other, "\"BPE\", \"Unigram\" or \"WordPiece\"")),
        }
    }

    /// The bytes that each token adds to a text.
    fn bytes(&self, decoder: &Decoder, budget: &Budget) -> Result<HashMap<u32, Vec<u8>>, String> {
        let decoded = |(text, token)| Ok((token, decoder.decode(text, budget)?));
        match self {
            Model::Bpe(bpe) => bpe.vocabulary.iter().map(|(text, token)| decoded((text, *token))).collect(),
            Model::Unigram(unigram) => unigram.texts().map(decoded).collect(),
            Model::WordPiece(words) => words.vocabulary.iter().map(|(text, token)| decoded((text, *token))).collect(),
        }
    }

    fn encode(&self, piece: &str, tokens: &mut Vec<u32>, budget: &Budget) -> Result<(), String> {
        match self {
            Model::Bpe(bpe) => bpe.encode(piece, tokens, budget),
            Model::Unigram(unigram) => unigram.encode(piece, tokens, budget),
            Model::WordPiece(words) => words.encode(piece, tokens, budget),
        }
    }
}

/// A tokenizer read from a file.
#[derive(Debug)]
pub struct Hub {
    model: Model,
    normalizers: Vec<Normalizer>,
    splitters: Vec<Splitter>,
    /// Added tokens that are matched in the original text.
    plain: AddedTokens,
    /// Normalized added tokens, which are matched in the normalized text.
    normal: AddedTokens,
    /// Tokens added before a text, and after it.
    around: (Vec<u32>, Vec<u32>),
    /// The bytes that each token adds to a text.
    bytes: HashMap<u32, Vec<u8>>,
    vocabulary: u64,
}

impl Hub {
    /// Parses a file.
    ///
    /// # Errors
    /// A message about an invalid or unsupported part.
    pub(super) fn read(text: &str) -> Result<Hub, String> {
        let budget = Budget::for_length(text.len())?;
        if values(text) > MAX_VALUES {
            return Err(format!("it has more than {MAX_VALUES} values, the limit"));
        }
        let file: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let model = Model::read(&file["model"], &budget)?;
        let normalizers = Normalizer::all(&file["normalizer"], &budget)?;
        let splitters = Splitter::all(&file["pre_tokenizer"], &budget)?;
        let mut bytes = model.bytes(&Decoder::read(&file["decoder"])?, &budget)?;
        let (mut plain, mut normal) = (Vec::new(), Vec::new());
        for (at, one) in list(&file["added_tokens"]).iter().enumerate() {
            let (Some(text), Some(token)) = (one["content"].as_str(), number(&one["id"])) else {
                return Err(format!("`added_tokens[{at}]` has no `content` and `id`"));
            };
            let is_special = one["special"] == true;
            bytes.insert(token, if is_special { Vec::new() } else { text.as_bytes().to_vec() });
            if text.is_empty() {
                continue;
            }
            let (is_word, takes) = (one["single_word"] == true, (one["lstrip"] == true, one["rstrip"] == true));
            let text = text.to_string();
            if one["normalized"] == true {
                let text = normalized(&normalizers, TextPart { text, first: 0 }, &budget)?.text;
                // The library would match it between all characters.
                if text.is_empty() {
                    return Err(format!("`added_tokens[{at}]` has no text left after its `normalizer`"));
                }
                normal.push(Added { text, token, is_word, takes });
            } else {
                plain.push(Added { text, token, is_word, takes });
            }
        }
        let (plain, normal) = (AddedTokens::new(plain, &budget)?, AddedTokens::new(normal, &budget)?);
        let around = around(&file["post_processor"], &|token| bytes.contains_key(&token))?;
        let vocabulary = bytes.keys().max().map_or(0, |most| u64::from(*most) + 1);
        Ok(Hub { model, normalizers, splitters, plain, normal, around, bytes, vocabulary })
    }

    pub(super) fn vocabulary(&self) -> u64 {
        self.vocabulary
    }

    pub(super) fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        self.bytes.get(&token).cloned()
    }

    /// The tokens of a text.
    pub(super) fn encode(&self, text: &str, marks: Marks) -> Result<Vec<u32>, String> {
        let budget = Budget::for_length(text.len())?;
        let (before, after) = &self.around;
        let mut tokens = if marks == Marks::None { Vec::new() } else { before.clone() };
        for (range, token) in self.plain.divide(text, &budget)? {
            let first = if range.start == 0 { text.chars().next().map_or(0, char::len_utf8) } else { 0 };
            let text = text.get(range).unwrap_or_default().to_string();
            match token {
                Some(token) => tokens.push(token),
                None => self.part(TextPart { text, first }, &mut tokens, &budget)?,
            }
        }
        if marks == Marks::Both {
            tokens.extend(after);
        }
        Ok(tokens)
    }

    /// Encodes a part of the text between tokens of `plain`.
    fn part(&self, part: TextPart, tokens: &mut Vec<u32>, budget: &Budget) -> Result<(), String> {
        let is_first = part.first > 0;
        let TextPart { text, first } = normalized(&self.normalizers, part, budget)?;
        // Text inserted at the start of a later part does not come from the first character.
        let first = if is_first { first } else { 0 };
        for (range, token) in self.normal.divide(&text, budget)? {
            if let Some(token) = token {
                tokens.push(token);
                continue;
            }
            let first = first.saturating_sub(range.start);
            let mut pieces = Pieces::whole(text.get(range).unwrap_or_default().to_string(), first);
            self.splitters.iter().try_for_each(|splitter| splitter.split(&mut pieces, budget))?;
            pieces.texts().try_for_each(|piece| self.model.encode(piece, tokens, budget))?;
        }
        Ok(())
    }
}

/// Applies all normalizers.
fn normalized(normalizers: &[Normalizer], mut part: TextPart, budget: &Budget) -> Result<TextPart, String> {
    normalizers.iter().try_for_each(|one| one.apply(&mut part, budget))?;
    budget.keep(part.text.len())?;
    Ok(part)
}

/// An upper bound of the number of values in a JSON text; an object counts as ten, since it takes
/// as much memory.
fn values(text: &str) -> usize {
    let weight = |byte: u8| match byte {
        b',' | b'[' => 1,
        b'{' => 10,
        _ => 0,
    };
    text.bytes().map(weight).sum()
}

fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

/// A unigram model.
fn unigram(model: &Value, budget: &Budget) -> Result<Unigram, String> {
    let Some(list) = model["vocab"].as_array() else { return Err("`model.vocab` is not a list".to_string()) };
    let mut vocabulary = Vec::with_capacity(list.len());
    for (at, one) in list.iter().enumerate() {
        let found = one.as_array().and_then(|pair| match pair.as_slice() {
            [text, score] => Some((text.as_str()?.to_string(), score.as_f64()?)),
            _ => None,
        });
        vocabulary.push(
            found.ok_or_else(|| format!("`model.vocab[{at}]` is {}; expected a text and its score", shown(one)))?,
        );
    }
    let unknown = match &model["unk_id"] {
        Value::Null => None,
        id => Some(number(id).ok_or_else(|| refuse("model.unk_id", id, "a number of a token"))?),
    };
    Unigram::new(vocabulary, unknown, model["byte_fallback"] == true, budget)
}

/// Tokens by their texts.
fn vocabulary(model: &Value) -> Result<HashMap<String, u32>, String> {
    let Some(words) = model["vocab"].as_object() else { return Err("`model.vocab` is not an object".to_string()) };
    let number_of = |(word, token): (&String, &Value)| {
        let token = number(token).ok_or_else(|| format!("`model.vocab` has no number for {word:?}"))?;
        Ok((word.clone(), token))
    };
    words.iter().map(number_of).collect()
}

/// A WordPiece model.
fn word_piece(model: &Value) -> Result<WordPiece, String> {
    let vocabulary = vocabulary(model)?;
    let unknown = model["unk_token"].as_str().and_then(|text| vocabulary.get(text)).copied();
    let unknown = unknown.ok_or_else(|| refuse("model.unk_token", &model["unk_token"], "a token of the vocabulary"))?;
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or("##").to_owned();
    let longest = model["max_input_chars_per_word"].as_u64().unwrap_or(100);
    Ok(WordPiece { vocabulary, unknown, prefix, longest: usize::try_from(longest).unwrap_or(usize::MAX) })
}

/// A BPE model.
fn bpe(model: &Value) -> Result<Bpe, String> {
    for field in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model[field].as_str().is_some_and(|text| !text.is_empty()) {
            return Err(refuse(&format!("model.{field}"), &model[field], "null"));
        }
    }
    let vocabulary = vocabulary(model)?;
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
            made.ok_or_else(|| format!("`model.merges[{rank}]` is {}, which is not in `model.vocab`", shown(merge)))?;
        merges.entry(pair).or_insert((rank, made));
    }
    let is = |field: &str| model[field] == true;
    let unknown = model["unk_token"].as_str();
    let unknown = unknown.and_then(|text| vocabulary.get(text)).map(|token| (*token, is("fuse_unk")));
    let byte = |b: u8| vocabulary.get(&format!("<0x{b:02X}>")).copied();
    let bytes = is("byte_fallback").then(|| (0..=u8::MAX).map(byte).collect());
    Ok(Bpe { bytes, whole_first: is("ignore_merges"), unknown, vocabulary, merges })
}

/// Replacements of the library in words, in this order.
const TIDIED: [(&str, &str); 11] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

/// How the bytes that a token adds to a text are computed from the token's string.
enum Decoder {
    /// By [`bytes_of`] its characters.
    Bytes,
    /// A word gets a blank, unless it has the prefix; with `tidies`, punctuation gets none.
    Words { prefix: String, tidies: bool },
    /// By string replacements in order; with `falls_back`, `<0x0A>` is a byte.
    Replace { replaced: Vec<(String, String)>, falls_back: bool },
}

impl Decoder {
    fn read(decoder: &Value) -> Result<Decoder, String> {
        let mut replaced: Vec<(String, String)> = Vec::new();
        let mut falls_back = false;
        for (place, one) in named("decoder", "decoders", decoder) {
            match one["type"].as_str() {
                Some("ByteLevel") => return Ok(Decoder::Bytes),
                Some("WordPiece") => {
                    let prefix = one["prefix"].as_str().unwrap_or("##").to_owned();
                    return Ok(Decoder::Words { prefix, tidies: one["cleanup"] != false });
                }
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
                // Tokens are concatenated anyway, and only the start of a whole text is stripped.
                Some("Fuse" | "Strip") => {}
                _ => {
                    return Err(refuse(
                        &place,
                        one,
                        "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip, WordPiece",
                    ));
                }
            }
        }
        bounded("decoder", replaced.iter().map(|(from, to)| (from.as_str(), to.as_str())))?;
        Ok(Decoder::Replace { replaced, falls_back })
    }

    fn decode(&self, text: &str, budget: &Budget) -> Result<Vec<u8>, String> {
        let (replaced, falls_back) = match self {
            Decoder::Replace { replaced, falls_back } => (replaced, falls_back),
            Decoder::Bytes => {
                budget.work(4 * text.len())?;
                return Ok(bytes_of(text));
            }
            Decoder::Words { prefix, tidies } => {
                budget.keep(16 * (text.len() + 1))?;
                let word = text.strip_prefix(prefix.as_str()).map_or_else(|| format!(" {text}"), str::to_owned);
                let tidied = TIDIED.iter().filter(|_| *tidies);
                return Ok(tidied.fold(word, |word, (from, to)| word.replace(from, to)).into_bytes());
            }
        };
        budget.work((16 + text.len()) * (1 + replaced.len()))?;
        let byte = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|_| *falls_back);
        if let Some(byte) = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            return Ok(vec![byte]);
        }
        let bytes = replaced.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to)).into_bytes();
        budget.keep(bytes.len())?;
        Ok(bytes)
    }
}

/// The tokens that a post-processor adds before and after a text; each must be in the vocabulary.
fn around(processor: &Value, is_token: &dyn Fn(u32) -> bool) -> Result<(Vec<u32>, Vec<u32>), String> {
    let mut found = None;
    for (place, one) in named("post_processor", "processors", processor) {
        let known = |name: &str, id: &Value, field: &str| {
            let wrong = || format!("`{place}.{field}`: the id {id} of {name:?} is not a token of the vocabulary");
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
                    if own.len() > MAX_AROUND {
                        return Err(format!("`{place}.single` has more than {MAX_AROUND} tokens, the limit"));
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
        // The library uses the first processor's parts for pairs of texts.
        if found.replace(both).is_some() {
            return Err(format!("`{place}` is the second processor that adds tokens; expected at most one"));
        }
    }
    Ok(found.unwrap_or_default())
}
