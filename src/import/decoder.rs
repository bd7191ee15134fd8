//! Decoders: one template, whose parts are chosen by a table of families ([`kinds`]) and by fields
//! of the configuration.
//!
//! They share pre-norm blocks of attention and feed-forward, and differ in norms, positions
//! ([`rope`]), the layout of projections, biases, sliding windows ([`windows`]), multipliers and
//! soft caps. With a head, they have a key-value cache and generate text. A layer with a window has
//! a ring buffer of that size, other layers keep all tokens.

mod kinds;
mod parts;
mod rope;
mod windows;

use super::{Config, Names, Refusal, Template, activation, named, number};
use kinds::{DecoderFamily, Feed, HeadNorms, KINDS, Norm, Positions, Residual, Switch};
use parts::{BlockParts, Experts, identifier, lines};
use rope::Rope;

/// A tensor of divisors of the rotary frequencies.
pub(super) const FACTORS: &str = "rope_freqs.weight";

/// Default length of the cache of a program: caches for today's contexts (131072 tokens) would take
/// more memory than the weights.
const MAX_ROOM: i64 = 4096;

/// Maximum number of layers of a model with two kinds: its program may name each layer of a period.
const MAX_MIXED: i64 = 10_000;

/// The families' names.
pub(super) fn families() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.family)
}

/// The program of a configuration, if it is of one of these families.
pub(super) fn program(family: &str, config: &Config, names: &Names) -> Option<Result<String, Refusal>> {
    let kind = KINDS.iter().find(|kind| kind.family == family)?;
    Some(Decoder { kind, config, names }.made(kind.prefixes))
}

/// The text model of a Gemma 3 checkpoint that also accepts images.
pub(super) fn beside_images(config: &Config, names: &Names) -> Result<String, Refusal> {
    config.architecture("Gemma3", &["ForConditionalGeneration"])?;
    for of_images in ["vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index"]
    {
        config.has(of_images);
    }
    config.only("tie_word_embeddings", true)?;
    let Some(text) = config.object("text_config")? else {
        return Err(config.refuse("text_config", "the configuration of its part for text"));
    };
    let family = text.text("model_type")?;
    let Some(kind) = KINDS.iter().find(|kind| kind.family == family) else {
        return Err(text.refuse("model_type", "gemma3_text, in `text_config`"));
    };
    let program = Decoder { kind, config: &text, names }.made(&["language_model.model.", "model.language_model."])?;
    text.all_known()
        .map_err(|refusal| Refusal { message: format!("{}, in `text_config`", refusal.message), help: None })?;
    Ok(program)
}

/// A decoder to be written.
struct Decoder<'c> {
    kind: &'static DecoderFamily,
    config: &'c Config,
    names: &'c Names,
}

impl Decoder<'_> {
    /// The field that this family has for one of Llama's; of alternatives the first that is there.
    fn name(&self, common: &'static str) -> &'static str {
        let names = named(self.kind.fields, common).unwrap_or(common);
        let there = names.split('/').find(|name| !name.is_empty() && self.config.has(name));
        there.or(names.split('/').next()).unwrap_or(common)
    }

    /// A size, with a default.
    fn size(&self, common: &'static str, default: impl Into<Option<i64>>) -> Result<i64, Refusal> {
        match (self.name(common), default.into()) {
            ("", Some(default)) => Ok(default),
            (name, Some(default)) => self.config.size_or(name, default),
            (name, None) => self.config.size(name),
        }
    }

    fn has(&self, common: &'static str) -> bool {
        let name = self.name(common);
        !name.is_empty() && self.config.has(name)
    }

    /// The name of a tensor or layer.
    fn at(&self, role: &'static str) -> &'static str {
        let usual = match role {
            "embed" => "embed_tokens",
            "attention" => "self_attn",
            "output" => "o_proj",
            "gate" => "gate_proj",
            "widen" => "up_proj",
            "narrow" => "down_proj",
            "input_norm" => "input_layernorm",
            "middle_norm" if self.kind.residual == Residual::Around => "pre_feedforward_layernorm",
            "middle_norm" | "attention_norm" => "post_attention_layernorm",
            "output_norm" => "post_feedforward_layernorm",
            _ => role,
        };
        named(self.kind.tensors, role).map_or(usual, |own| own.trim_start_matches('.'))
    }

    fn switch(&self, switch: Switch) -> Result<bool, Refusal> {
        match switch {
            Switch::No => Ok(false),
            Switch::Yes => Ok(true),
            Switch::Field(name, default) => self.config.flag_or(name, default),
        }
    }

    /// The layer of a matrix.
    fn linear(&self, bias: bool) -> &'static str {
        if bias { self.kind.linear } else { "LinearNoBias" }
    }

    /// The type of a norm.
    fn norm(&self, size: &str, eps: &str) -> String {
        match self.kind.norm {
            Norm::Rms => format!("RMSNorm<{size}, eps = {eps}>"),
            Norm::Layer => format!("LayerNorm<{size}, eps = {eps}>"),
            Norm::PlusOne | Norm::Weight | Norm::Bare => format!("Norm<{size}>"),
        }
    }

    /// The name of the activation function.
    fn act(&self) -> Result<&'static str, Refusal> {
        let (config, usual) = (self.config, self.kind.act);
        let field = self.name("hidden_act");
        match self.kind.family {
            // Gemma's first configurations say `gelu` but mean the tanh approximation.
            "gemma" => {
                let old = match activation(config, "hidden_act", usual)? {
                    "gelu" => "gelu_tanh",
                    other => other,
                };
                let new =
                    if config.has("hidden_activation") { activation(config, "hidden_activation", "")? } else { old };
                if config.has("hidden_act") && new != old {
                    return Err(config.refuse("hidden_activation", "the same function as hidden_act"));
                }
                Ok(new)
            }
            "gemma2" | "gemma3_text" => {
                // An alias, which `hidden_activation` takes precedence over.
                config.text_or("hidden_act", "")?;
                activation(config, "hidden_activation", usual)
            }
            _ if field.is_empty() => Ok("gelu_tanh"),
            _ => activation(config, field, usual),
        }
    }

    /// A multiplier of the configuration, as the rest of a product; nothing for 1.
    fn times(&self, sign: &str, name: &str) -> Result<String, Refusal> {
        let by = self.config.number_or(name, 1.0)?;
        Ok(if by == 1.0 { String::new() } else { format!(" {sign} {}", number(by)) })
    }

    /// Makes the program. The tensors' names begin with one of these prefixes.
    fn made(&self, prefixes: &'static [&'static str]) -> Result<String, Refusal> {
        let Decoder { kind, config, names } = *self;
        let family = kind.family;
        let (gemma, gemma3) = (family.starts_with("gemma"), family == "gemma3_text");
        for field in kind.needed {
            config.present(field)?;
        }
        for (field, wanted) in kind.only {
            config.only(field, *wanted)?;
        }
        for field in kind.unused {
            config.has(field);
        }
        // Gemma 3's configurations omit fields with default values.
        let size = |name, default: i64| self.size(name, gemma3.then_some(default));
        let (d, h) = (size("hidden_size", 2304)?, size("num_attention_heads", 8)?);
        let k = match family {
            "falcon" => self.falcon_heads(h)?,
            _ => self.size("num_key_value_heads", if gemma3 { 4 } else { h })?,
        };
        if h % k != 0 {
            return Err(config.refuse("num_key_value_heads", &format!("a divisor of num_attention_heads, {h}")));
        }
        let rotary = matches!(kind.positions, Positions::Rotary | Positions::RotaryPairs)
            && !(family == "falcon" && config.flag_or("alibi", false)?);
        let e = self.size("head_dim", if gemma { 256 } else { d / h })?;
        if (rotary && e % 2 != 0) || (!self.has("head_dim") && !gemma && d % h != 0) {
            let even = if rotary { " such that each head has an even size" } else { "" };
            let wanted = format!("a divisor of {}, {d},{even}", self.name("hidden_size"));
            return Err(match self.has("head_dim") {
                true => config.refuse("head_dim", "an even size"),
                false => config.refuse(self.name("num_attention_heads"), wanted.trim_end_matches(',')),
            });
        }
        if family == "opt" && config.size_or("word_embed_proj_dim", d)? != d {
            return Err(config.refuse("word_embed_proj_dim", "hidden_size"));
        }
        let layers = size("num_hidden_layers", 26)?;
        let window = windows::window(config, family, layers)?;
        let mixed = window.as_ref().is_some_and(|window| window.rule.is_mixed());
        let unrotated = windows::unrotated(config, family, layers)?;
        let by_number = mixed || unrotated.is_some();
        if by_number && layers > MAX_MIXED {
            let wanted = format!("at most {MAX_MIXED}, where only some layers have a window");
            return Err(config.refuse(self.name("num_hidden_layers"), &wanted));
        }
        let rope = match rotary {
            true if gemma3 => Rope::of_two_kinds(config, e, (!mixed).then_some(window.is_some()))?,
            true => Rope::from_config(config, kind, e)?,
            false => {
                // Fields of rotary positions, which this model has not.
                for field in ["rope_parameters", "rope_theta", "rope_scaling"].iter().filter(|_| family == "falcon") {
                    config.has(field);
                }
                Rope::none()
            }
        };
        // GGUF files have a tensor instead of a scaling rule; see `Rope::from_config`.
        let factors = rotary && names.has(FACTORS);
        if factors && !rope.takes_factors() {
            let message =
                format!("it has the tensor `{FACTORS}`, and its configuration scales rotary frequencies by a rule");
            return Err(Refusal::checkpoint(message));
        }
        let head = config.architecture(kind.class, &kind.ends)? == kind.ends[0];
        let prefix = names.prefix(prefixes, &format!("{}.weight", self.at("embed")))?;
        let own_head = self.own_head(head)?;
        config.padding()?;

        let eps = match self.name("rms_norm_eps") {
            "" => number(kind.eps),
            name => number(config.epsilon_or(name, kind.eps)?),
        };
        let norm = |size: &str| self.norm(size, &eps);
        let capped = family == "gemma2" || gemma3;
        let cap = |name: &str| -> Result<Option<String>, Refusal> {
            let there = capped && config.has(name);
            there.then(|| config.positive_or(name, 1.0).map(number)).transpose()
        };
        let (cap_scores, cap_logits) = (cap("attn_logit_softcapping")?, cap("final_logit_softcapping")?);
        if gemma3 && cap_scores.is_some() {
            // The field exists, but `transformers` does not use it.
            return Err(config.refuse("attn_logit_softcapping", "only null"));
        }
        if capped {
            config.only("use_bidirectional_attention", false)?;
        }
        let scale = match family {
            "gpt2" if !config.flag_or("scale_attn_weights", true)? => String::new(),
            "gpt_neo" => String::new(),
            "granite" => self.times("*", "attention_multiplier")?,
            _ if capped => format!(" * {}", number(config.positive_or("query_pre_attn_scalar", 256.0)?.powf(-0.5))),
            _ => " / sqrt(E)".to_owned(),
        };
        let act = self.act()?;
        let longest = match family {
            "bloom" | "falcon" => self.size("max_position_embeddings", 2048)?,
            _ => size("max_position_embeddings", 131_072)?,
        };
        let longest = rope.longest().map_or(longest, |context| context.min(longest));
        // Layers with a window keep only the visible tokens, in a ring buffer. If all layers have a
        // window shorter than the context, there are only ring buffers.
        let ring =
            head && window.as_ref().is_some_and(|w| w.rule.is_mixed() || (w.size < longest && w.size <= MAX_ROOM));
        let uniform = head && !mixed;
        let size_of_window = window.as_ref().map(|window| window.size.to_string()).unwrap_or_default();
        // Factors exist only if all layers have one base.
        let of_factors = if factors { ", factors" } else { "" };
        let two_ropes = rope.is_of_two_kinds() || unrotated.is_some();
        let past = if rotary { ", past" } else { "" };
        let through = match &window {
            Some(window) if mixed => {
                Some(window.rule.through(self.at("layers"), layers, |near| match (two_ropes, near) {
                    (false, _) => [past, of_factors].concat(),
                    (true, near) => format!("{past}, {near}"),
                }))
            }
            _ => None,
        };
        let room = longest.min(MAX_ROOM);
        let (cache, fits, rooms, most) = match (head, mixed, ring) {
            (false, ..) => (String::new(), String::new(), "", ""),
            (true, true, _) => (
                format!(", C = {room}, W = {size_of_window}, Kept = f32"),
                format!(", L == {layers}, 1 <= C, C <= T, W >= 1"),
                ", W",
                "C",
            ),
            (true, false, true) => {
                (format!(", W = {size_of_window}, Kept = f32"), ", W >= 1".to_owned(), ", W, Kept = f32", "T")
            }
            (true, false, false) => {
                (format!(", C = {room}, Kept = f32"), ", C <= T".to_owned(), ", C, Kept = f32", "C")
            }
        };
        // Whether a layer has a window, or rotates, is an argument of its functions.
        let which = if unrotated.is_some() { "rotates" } else { "local" };
        let flag_kind = if by_number { format!(", {which}: bool") } else { String::new() };
        let flag = if by_number { format!(", {which}") } else { String::new() };
        let (turns_kind, turns) = if two_ropes { (&flag_kind[..], &flag[..]) } else { ("", "") };
        let factors_kind = if factors { ", factors: f32[E/2]" } else { "" };
        let rule = match (&unrotated, &window) {
            (Some(rule), _) => rule.condition(),
            (None, Some(window)) => window.rule.condition(),
            (None, None) => String::new(),
        };
        let reach = if ring { "W" } else { &size_of_window };
        let rule_doc = match unrotated {
            Some(_) => format!("Layers for which `{rule}` rotate queries and keys; the others do not know positions."),
            None => format!("Layers for which `{rule}` see only the last {reach} positions."),
        };

        let head_weights = family == "cohere" && config.flag_or("use_qk_norm", false)?;
        let head_norms = if head_weights { HeadNorms::All } else { kind.head_norms };
        let qkv_bias = self.switch(kind.qkv_bias)?;
        let parts = BlockParts {
            rotary,
            norm: norm("D"),
            head_norm: norm("E"),
            head_norms,
            all_norms: match head_weights {
                true => ["HeadNorm<H, E>", "HeadNorm<K, E>"].map(str::to_owned),
                false => [norm("H*E"), norm("K*E")],
            },
            clip: match config.has("clip_qkv") && family == "olmo" {
                true => Some(number(config.positive_or("clip_qkv", 1.0)?)),
                false => None,
            },
            turned: if two_ropes { turns.to_owned() } else { of_factors.to_owned() },
            qkv: self.linear(qkv_bias),
            out: self.linear(self.switch(kind.out_bias)?),
            feed: self.linear(self.switch(kind.feed_bias)?),
            residual: self.residual()?,
            times: if family == "granite" { self.times("*", "residual_multiplier")? } else { String::new() },
            act,
            grouped: h != k,
            room: rooms.trim_end_matches(" = f32").to_owned(),
        };
        let attention = identifier(self.at("attention"));
        let first = if rotary { ", 0" } else { "" };
        let forward = parts.block(self, &|x| format!("{attention}({x}{flag}{of_factors})"));
        let cached = parts.block(self, &|x| format!("{attention}.cached({x}, past{turns}{of_factors})"));
        let rest = parts.block(self, &|_| format!("{attention}.{}(seen)", self.at("output")));
        // New tokens are a matrix, which a mixture of experts needs to divide them.
        let mlp = identifier(self.at("mlp"));
        let [cached, rest] = [cached, rest].map(|lines| match kind.feed {
            Feed::Experts => {
                lines.iter().map(|line| line.replace(&format!("{mlp}("), &format!("{mlp}.sparse("))).collect()
            }
            _ => lines,
        });

        let embed = self.at("embed");
        let embed_scale = match family {
            _ if gemma => " * sqrt(D)".to_owned(),
            "granite" => self.times("*", "embedding_multiplier")?,
            _ => String::new(),
        };
        let embed_norm = named(kind.tensors, "embed_norm").is_some();
        let unused_rows = if let Positions::Learned(unused) = kind.positions { Some(unused) } else { None };
        let embedded = |begin: &str, end: &str| {
            let tokens = format!("{embed}(tokens){embed_scale}");
            match unused_rows {
                Some(_) => format!("{tokens} + {}.weight[{begin}..{end}]", self.at("positions")),
                None if embed_norm => format!("{}({tokens})", self.at("embed_norm")),
                None => tokens,
            }
        };
        let (now, later) = match unused_rows {
            None | Some(0) => (embedded("0", "S"), embedded("past", "past+S")),
            Some(n) => {
                (embedded(&n.to_string(), &format!("S+{n}")), embedded(&format!("past+{n}"), &format!("past+S+{n}")))
            }
        };
        let logits = {
            let plain = match own_head {
                true => format!("{}(x)", self.at("lm_head")),
                false => format!("x @ {embed}.weight.T"),
            };
            let scaled = match family {
                "granite" => plain + &self.times("/", "logits_scaling")?,
                "cohere" => {
                    let by = config.number_or("logit_scale", 0.0625)?;
                    format!("{plain} * {}", number(by))
                }
                _ => plain,
            };
            match &cap_logits {
                Some(cap) => format!("{cap} * tanh({scaled} / {cap})"),
                None => scaled,
            }
        };
        let alibi = match kind.positions {
            Positions::Alibi { scaled } => Some(scaled),
            _ if family == "falcon" && !rotary => Some(false),
            _ => None,
        };
        let scores = |k: &str, length: &str| match alibi {
            None => format!("q @ {k}.T{scale}"),
            Some(true) => format!("q @ {k}.T{scale} + alibi(q, iota({length}))"),
            Some(false) => format!("(q @ {k}.T + alibi(q, iota({length}))){scale}"),
        };
        let slopes = 1_i64 << h.ilog2();
        let experts = if kind.feed == Feed::Experts { Some(Experts::from_config(config)?) } else { None };
        let is = |wanted: Norm| kind.norm == wanted;
        let (feed_fields, feed) = parts.feed(self);
        let (banned, banned_first) = match head {
            true => (config.banned(None)?, config.banned_first()?),
            false => (String::new(), String::new()),
        };
        let template = Template::new(include_str!("decoder.attn"))
            .word("Name", kind.class.replace("GPT2", "Gpt2"))
            .word("L", layers)
            .word("D", d)
            .word("H", h)
            .word("K", k)
            .word("E", e)
            .word("F", if family == "bloom" { d.saturating_mul(4) } else { self.inner(d)? })
            .word("V", size("vocab_size", 262_208)?)
            .word("T", longest)
            .word("cache", cache)
            .word("fits", fits)
            .word("rooms", rooms)
            .word("room", &parts.room)
            .word("Cache", if ring { "Ring<H, K, E, W, Kept>" } else { "Cache<H, K, E, C, Kept>" })
            .word("most", most)
            .word("eps", &eps)
            .word("Norm", norm("D"))
            .word("scale", &scale)
            .word("scores", scores("k", "S"))
            .word("scores_cached", scores("cast<f32>(k)", "N"))
            .word("slopes", number(slopes as f64))
            .word("exponent", number(-8.0 / slopes as f64))
            .word("prefix", prefix)
            .word("embed", embed)
            .word("positions", self.at("positions"))
            .word(
                "rows",
                unused_rows.map_or(String::new(), |n| if n == 0 { "T".to_owned() } else { format!("T + {n}") }),
            )
            .word("embed_norm", self.at("embed_norm"))
            .word("embedded", now)
            .word("embedded_later", later)
            .word("layers", self.at("layers"))
            .word("norm", self.at("norm"))
            .word("lm_head", self.at("lm_head"))
            .word("Head", if kind.head_bias { "Linear" } else { "LinearNoBias" })
            .word("logits", logits)
            .word("reach", reach)
            .word("window", &size_of_window)
            .word("rule", &rule)
            .word("rule_doc", rule_doc)
            .word("which", which)
            .word("rings", through.as_ref().map_or(0, |through| through.rings))
            .word("caches", through.as_ref().map_or(0, |through| through.caches))
            .word("through", through.map(|through| through.lines.join("\n        ")).unwrap_or_default())
            .word("kind", [&flag_kind, factors_kind].concat())
            .word("heads_kind", if rotary { format!(", past: i32{turns_kind}{factors_kind}") } else { String::new() })
            .word("heads_given", format!("{past}{turns}{of_factors}"))
            .word("heads_first", format!("{first}{turns}{of_factors}"))
            .word("cached_kind", [turns_kind, factors_kind].concat())
            .word("cached_given", of_factors)
            .word("factors", of_factors)
            .word("cap", cap_scores.clone().unwrap_or_default())
            .word("with_positions", if rotary { " with rotary positions" } else { "" })
            .word("rotated_keys", if rotary { ", already rotated," } else { "" })
            .word("after", if rotary { ", after `past` others" } else { "" })
            .word(
                "even_heads",
                match (rotary, rope.longest()) {
                    (false, _) => String::new(),
                    (true, Some(_)) => format!(", E == {e}"),
                    (true, None) => ", E % 2 == 0".to_owned(),
                },
            )
            .word("attention_fields", lines(1, &parts.attention(self)))
            .word("heads", lines(2, &parts.heads(self)))
            .word("out", self.at("output"))
            .word("attn", attention)
            .word(
                "mlp_doc",
                if matches!(kind.feed, Feed::Plain) {
                    "/// The feed-forward: D -> F -> D."
                } else {
                    "/// The gated feed-forward: D -> F -> D."
                },
            )
            .word("mlp_fields", lines(1, &feed_fields))
            .word("mlp", lines(2, &feed))
            .word("X", experts.as_ref().map_or(0, |experts| experts.count))
            .word("top", experts.as_ref().map_or(0, |experts| experts.top))
            .word("G", experts.as_ref().and_then(|experts| experts.shared).unwrap_or(0))
            .word("experts", if experts.is_some() { ", X" } else { "" })
            .word(
                "experts_default",
                experts.as_ref().map_or(String::new(), |experts| format!(", X = {}", experts.count)),
            )
            .word("chosen", experts.as_ref().map_or(String::new(), |experts| format!(", X >= {}", experts.top)))
            .word(
                "unchosen",
                match experts.as_ref().and_then(|experts| experts.shared) {
                    Some(_) => "sigmoid(shared_expert_gate(x)) * shared_expert(x)",
                    None => "0.0 * x",
                },
            )
            .flag("experts", experts.is_some())
            .flag("shared", experts.as_ref().is_some_and(|experts| experts.shared.is_some()))
            .flag("shares", experts.as_ref().is_some_and(|experts| experts.shares))
            .word("block_doc", parts.residual.doc())
            .word("block_fields", lines(1, &parts.block_fields(self)))
            .word("entering", parts.entering(self))
            .word("block", lines(2, &forward))
            .word("block_cached", lines(2, &cached))
            .word("block_rest", lines(2, &rest))
            .flag("factors", factors)
            .flag("plus_one", is(Norm::PlusOne))
            .flag("weight_only", is(Norm::Weight))
            .flag("bare", is(Norm::Bare))
            .flag("centred", is(Norm::Weight) || is(Norm::Bare))
            .flag("head_weights", head_weights)
            .flag("alibi", alibi.is_some())
            .flag("odd_slopes", alibi.is_some() && slopes != h)
            .flag("coarse", alibi == Some(false))
            .flag("learned", unused_rows.is_some())
            .flag("embed_norm", embed_norm)
            .flag("rotary", rotary)
            .flag("pairs", kind.positions == Positions::RotaryPairs)
            .flag("unrotated", unrotated.is_some())
            .flag("two_ropes", two_ropes)
            .flag("inline", self.inline())
            .flag("by_number", by_number)
            .flag("grouped", parts.grouped)
            .flag("window", window.is_some())
            .flag("mixed", mixed)
            .flag("uniform", uniform)
            .flag("ring", ring)
            .flag("full", head && (mixed || !ring))
            .flag("distant", window.is_some() && !mixed)
            .flag("cap", cap_scores.is_some())
            .flag("head", head)
            .word("banned", &banned)
            .word("banned_first", &banned_first)
            .flag("banned", !banned.is_empty())
            .flag("banned_first", !banned_first.is_empty())
            .flag("own_head", own_head);
        Ok(rope.fill(template, e).program())
    }

    /// Does the block itself have the fields of the feed-forward?
    fn inline(&self) -> bool {
        named(self.kind.tensors, "widen").is_some_and(|name| name.starts_with('.'))
    }

    /// The width of the feed-forward.
    fn inner(&self, d: i64) -> Result<i64, Refusal> {
        match self.kind.family {
            "gemma3_text" => self.size("intermediate_size", 9216),
            "gpt2" | "gptj" | "gpt_neo" | "falcon" => self.size("intermediate_size", d.saturating_mul(4)),
            _ => self.size("intermediate_size", None),
        }
    }

    /// The number of heads of keys of a Falcon.
    fn falcon_heads(&self, h: i64) -> Result<i64, Refusal> {
        let config = self.config;
        let many = config.flag_or("new_decoder_architecture", false)?;
        let one = config.flag_or("multi_query", true)?;
        let said = config.size_or("num_kv_heads", h)?;
        config.size_or("n_head_kv", h)?;
        Ok(if many {
            said
        } else if one {
            1
        } else {
            h
        })
    }

    /// The order of norms and sums, where a field chooses it.
    fn residual(&self) -> Result<Residual, Refusal> {
        let config = self.config;
        Ok(match self.kind.family {
            "gpt_neox" if !config.flag_or("use_parallel_residual", true)? => Residual::Before,
            "stablelm" if config.flag_or("use_parallel_residual", false)? => Residual::Parallel,
            "falcon" => {
                let two = config.flag_or("new_decoder_architecture", false)?;
                let parallel = config.flag_or("parallel_attn", true)?;
                match config.size_or("num_ln_in_parallel_attn", if two { 2 } else { 1 })? {
                    2 if two => Residual::ParallelTwo,
                    _ if two || parallel => Residual::Parallel,
                    _ => Residual::Before,
                }
            }
            _ => self.kind.residual,
        })
    }

    /// Are the logits computed with a separate matrix, rather than with the embeddings? If a
    /// checkpoint has a head in spite of tied embeddings, it has the same numbers.
    fn own_head(&self, head: bool) -> Result<bool, Refusal> {
        let own = !self.config.flag_or("tie_word_embeddings", self.kind.tied)? && head;
        let name = format!("{}.weight", self.at("lm_head"));
        if own && !self.names.has(&name) {
            let message = format!("the checkpoint has no tensor `{name}`, and `tie_word_embeddings` is false");
            return Err(Refusal::checkpoint(message));
        }
        Ok(own)
    }
}
