//! Decoders of the Llama kind: Llama, Mistral, Qwen 2 and 3, Gemma 1, 2 and 3.
//!
//! They share RMSNorm before attention and feed-forward, rotary positions ([`rope`]), grouped
//! queries and a gated feed-forward, and differ in biases, norms of heads, sliding windows
//! ([`windows`]), soft caps, and additional norms. With a head, they have a key-value cache and
//! generate text. A layer with a window has a ring buffer of that size, other layers keep all
//! tokens.

mod rope;
mod windows;

use super::{Config, Names, Refusal, Template, activation, number};
use rope::Rope;

/// A tensor of divisors of the rotary frequencies.
pub(super) const FACTORS: &str = "rope_freqs.weight";

/// Default length of the cache of a program: caches for today's contexts (131072 tokens) would take
/// more memory than the weights.
const MAX_ROOM: i64 = 4096;

/// Maximum number of layers of a model with two kinds: its program may name each layer of a period.
const MAX_MIXED: i64 = 10_000;

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    made(config, names, &["model.", ""])
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
    let program = made(&text, names, &["language_model.model.", "model.language_model."])?;
    text.all_known()
        .map_err(|refusal| Refusal { message: format!("{}, in `text_config`", refusal.message), help: None })?;
    Ok(program)
}

/// Makes the program. The tensors' names begin with one of these prefixes.
fn made(config: &Config, names: &Names, prefixes: &[&'static str]) -> Result<String, Refusal> {
    let family = config.text("model_type")?;
    let (gemma, gemma3) = (family.starts_with("gemma"), family == "gemma3_text");
    // Gemma 3's configurations omit fields with default values.
    let size = |name: &str, default: i64| if gemma3 { config.size_or(name, default) } else { config.size(name) };
    let (d, h) = (size("hidden_size", 2304)?, size("num_attention_heads", 8)?);
    let k = config.size_or("num_key_value_heads", if gemma3 { 4 } else { h })?;
    if h % k != 0 {
        return Err(config.refuse("num_key_value_heads", &format!("a divisor of num_attention_heads, {h}")));
    }
    let e = config.size_or("head_dim", if gemma { 256 } else { d / h })?;
    if e % 2 != 0 || (!config.has("head_dim") && !gemma && d % h != 0) {
        let wanted = format!("a divisor of hidden_size, {d}, such that each head has an even size");
        return Err(match config.has("head_dim") {
            true => config.refuse("head_dim", "an even size"),
            false => config.refuse("num_attention_heads", &wanted),
        });
    }
    // Their defaults are not what a reader would expect.
    for field in match family.as_str() {
        "gemma2" => {
            &["attn_logit_softcapping", "final_logit_softcapping", "sliding_window", "query_pre_attn_scalar"][..]
        }
        "mistral" => &["sliding_window", "num_key_value_heads"],
        "qwen2" => &["num_key_value_heads"],
        "qwen3" => &["num_key_value_heads", "head_dim"],
        _ => &[],
    } {
        config.present(field)?;
    }
    let layers = size("num_hidden_layers", 26)?;
    let window = windows::window(config, &family, layers)?;
    let mixed = window.as_ref().is_some_and(|window| window.rule.is_mixed());
    if mixed && layers > MAX_MIXED {
        let wanted = format!("at most {MAX_MIXED}, where only some layers have a window");
        return Err(config.refuse("num_hidden_layers", &wanted));
    }
    let rope = match gemma3 {
        true => Rope::of_two_kinds(config, e, (!mixed).then_some(window.is_some()))?,
        false => Rope::from_config(config, e)?,
    };
    // GGUF files have a tensor instead of a scaling rule; see `Rope::from_config`.
    let factors = names.has(FACTORS);
    if factors && !rope.takes_factors() {
        let message =
            format!("it has the tensor `{FACTORS}`, and its configuration scales rotary frequencies by a rule");
        return Err(Refusal::checkpoint(message));
    }
    let name = match family.as_str() {
        "llama" => "Llama",
        "mistral" => "Mistral",
        "qwen2" => "Qwen2",
        "qwen3" => "Qwen3",
        "gemma" => "Gemma",
        "gemma2" => "Gemma2",
        _ => "Gemma3",
    };
    let bases = if gemma3 { ["ForCausalLM", "TextModel"] } else { ["ForCausalLM", "Model"] };
    let head = config.architecture(name, &bases)? == "ForCausalLM";
    let prefix = names.prefix(prefixes, "embed_tokens.weight")?;
    let own_head = own_head(config, head, gemma, names)?;
    config.only("mlp_bias", false)?;
    config.padding()?;

    let bias = config.flag_or("attention_bias", false)?;
    let (qkv_bias, out_bias) = if family == "qwen2" { (true, false) } else { (bias, bias) };
    let linear = |bias| if bias { "Linear" } else { "LinearNoBias" };
    let eps = number(config.epsilon_or("rms_norm_eps", 1e-6)?);
    let norm = |size: &str| {
        if gemma { format!("Norm<{size}>") } else { format!("RMSNorm<{size}, eps = {eps}>") }
    };
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
    let scale = match capped {
        true => format!("* {}", number(config.positive_or("query_pre_attn_scalar", 256.0)?.powf(-0.5))),
        false => "/ sqrt(E)".to_owned(),
    };
    let act = match family.as_str() {
        // Gemma's first configurations say `gelu` but mean the tanh approximation.
        "gemma" => {
            let old = match activation(config, "hidden_act", "gelu_pytorch_tanh")? {
                "gelu" => "gelu_tanh",
                other => other,
            };
            let new = if config.has("hidden_activation") { activation(config, "hidden_activation", "")? } else { old };
            if config.has("hidden_act") && new != old {
                return Err(config.refuse("hidden_activation", "the same function as hidden_act"));
            }
            new
        }
        "gemma2" | "gemma3_text" => activation(config, "hidden_activation", "gelu_pytorch_tanh")?,
        _ => activation(config, "hidden_act", "silu")?,
    };
    if capped {
        // An alias of `hidden_activation`, which takes precedence.
        config.text_or("hidden_act", "")?;
        config.only("use_bidirectional_attention", false)?;
    }
    let longest = size("max_position_embeddings", 131_072)?;
    let head_norms = gemma3 || family == "qwen3";

    // Layers with a window keep only the visible tokens, in a ring buffer. If all layers have a
    // window shorter than the context, there are only ring buffers.
    let ring = head && window.as_ref().is_some_and(|w| w.rule.is_mixed() || (w.size < longest && w.size <= MAX_ROOM));
    let uniform = head && !mixed;
    let size_of_window = window.as_ref().map(|window| window.size.to_string()).unwrap_or_default();
    // Factors exist only if all layers have one base.
    let of_factors = if factors { ", factors" } else { "" };
    let through = match &window {
        Some(window) if mixed => Some(window.rule.through(layers, |near| match (rope.is_of_two_kinds(), near) {
            (false, _) => of_factors,
            (true, true) => ", true",
            (true, false) => ", false",
        })),
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
        (true, false, false) => (format!(", C = {room}, Kept = f32"), ", C <= T".to_owned(), ", C, Kept = f32", "C"),
    };
    let template = Template::new(include_str!("llama.attn"))
        .word("Name", name)
        .word("L", layers)
        .word("D", d)
        .word("H", h)
        .word("K", k)
        .word("E", e)
        .word("F", size("intermediate_size", 9216)?)
        .word("V", size("vocab_size", 262_208)?)
        .word("T", longest)
        .word("cache", cache)
        .word("fits", fits)
        .word("rooms", rooms)
        .word("room", rooms.trim_end_matches(" = f32"))
        .word("Cache", if ring { "Ring<H, K, E, W, Kept>" } else { "Cache<H, K, E, C, Kept>" })
        .word("most", most)
        .word("eps", &eps)
        .word("Norm", norm("D"))
        .word("HeadNorm", norm("E"))
        .word("query", if head_norms { "q_norm(q)" } else { "q" })
        .word("key", if head_norms { "k_norm(k)" } else { "k" })
        .word("Qkv", linear(qkv_bias))
        .word("Out", linear(out_bias))
        .word("act", act)
        .word("scale", scale)
        .word("prefix", prefix)
        .word("embed_scale", if gemma { " * sqrt(D)" } else { "" })
        .word("reach", if ring { "W" } else { &size_of_window })
        .word("window", &size_of_window)
        .word("rule", window.as_ref().map(|window| window.rule.condition()).unwrap_or_default())
        .word("rings", through.as_ref().map_or(0, |through| through.rings))
        .word("caches", through.as_ref().map_or(0, |through| through.caches))
        .word("through", through.map(|through| through.lines.join("\n        ")).unwrap_or_default())
        .word(
            "kind",
            [if mixed { ", local: bool" } else { "" }, if factors { ", factors: f32[E/2]" } else { "" }].concat(),
        )
        .word("local", [if mixed { ", local" } else { "" }, of_factors].concat())
        .word(
            "heads_kind",
            [
                if rope.is_of_two_kinds() { ", local: bool" } else { "" },
                if factors { ", factors: f32[E/2]" } else { "" },
            ]
            .concat(),
        )
        .word("heads_local", [if rope.is_of_two_kinds() { ", local" } else { "" }, of_factors].concat())
        .word("turned", if rope.is_of_two_kinds() { ", local" } else { of_factors })
        .word("factors", of_factors)
        .word("cap", cap_scores.clone().unwrap_or_default())
        .word("cap_logits", cap_logits.clone().unwrap_or_default())
        .flag("factors", factors)
        .flag("plus_one", gemma)
        .flag("grouped", h != k)
        .flag("head_norms", head_norms)
        .flag("window", window.is_some())
        .flag("mixed", mixed)
        .flag("uniform", uniform)
        .flag("ring", ring)
        .flag("full", head && (mixed || !ring))
        .flag("distant", window.is_some() && !mixed)
        .flag("cap", cap_scores.is_some())
        .flag("cap_logits", cap_logits.is_some())
        .flag("sandwich", capped)
        .flag("head", head)
        .flag("own_head", own_head);
    Ok(rope.fill(template).program())
}

/// Are the logits computed with a separate matrix, rather than with the embeddings? If a checkpoint
/// has `lm_head.weight` in spite of tied embeddings, it has the same numbers.
fn own_head(config: &Config, head: bool, gemma: bool, names: &Names) -> Result<bool, Refusal> {
    let own = !config.flag_or("tie_word_embeddings", gemma)? && head;
    if own && !names.has("lm_head.weight") {
        let message = "the checkpoint has no tensor `lm_head.weight`, and `tie_word_embeddings` is false".to_owned();
        return Err(Refusal::checkpoint(message));
    }
    Ok(own)
}
