//! Decoders of the Llama kind: Llama, Mistral, Qwen 2 and 3, Gemma 1 and 2.
//!
//! They share RMSNorm before each half of a block, rotary positions, grouped queries and a gated feed-forward, and differ in
//! biases, norms of heads, windows, soft caps, and where else norms stand.

use super::{Config, Names, Refusal, Template, activation, number};

/// Frequencies of rotary positions.
struct Rope {
    theta: f64,
    /// All positions are divided by this.
    linear: Option<f64>,
    llama3: Option<Llama3>,
}

/// Llama 3.1's long waves: factor, bounds in periods per context, the context it was trained with.
struct Llama3 {
    factor: f64,
    low: f64,
    high: f64,
    context: f64,
}

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    let family = config.text("model_type")?;
    let gemma = family.starts_with("gemma");
    let (d, h) = (config.size("hidden_size")?, config.size("num_attention_heads")?);
    let k = config.size_or("num_key_value_heads", h)?;
    if h % k != 0 {
        return Err(config.refuse("num_key_value_heads", &format!("a divisor of num_attention_heads, {h}")));
    }
    let e = config.size_or("head_dim", if gemma { 256 } else { d / h })?;
    if e % 2 != 0 || (!config.has("head_dim") && d % h != 0) {
        return Err(config.refuse("head_dim", "an even size"));
    }
    // Their defaults are not what a reader would guess.
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
    let layers = config.size("num_hidden_layers")?;
    let rope = rope(config)?;
    let name = match family.as_str() {
        "llama" => "Llama",
        "mistral" => "Mistral",
        "qwen2" => "Qwen2",
        "qwen3" => "Qwen3",
        "gemma" => "Gemma",
        _ => "Gemma2",
    };
    let head = config.architecture(name, &["ForCausalLM", "Model"])? == "ForCausalLM";
    let prefix = names.prefix(&["model.", ""], "embed_tokens.weight")?;
    let own_head = own_head(config, head, gemma, names)?;
    config.only("mlp_bias", false)?;
    config.token("pad_token_id")?;

    let bias = config.flag_or("attention_bias", false)?;
    let (qkv_bias, out_bias) = if family == "qwen2" { (true, false) } else { (bias, bias) };
    let linear = |bias| if bias { "Linear" } else { "LinearNoBias" };
    let eps = number(config.epsilon_or("rms_norm_eps", 1e-6)?);
    let norm = |size: &str| {
        if gemma { format!("Norm<{size}>") } else { format!("RMSNorm<{size}, eps = {eps}>") }
    };
    let window = window(config, &family, layers)?;
    let cap = |name: &str| -> Result<Option<String>, Refusal> {
        let there = family == "gemma2" && config.has(name);
        there.then(|| config.positive_or(name, 1.0).map(number)).transpose()
    };
    let (cap_scores, cap_logits) = (cap("attn_logit_softcapping")?, cap("final_logit_softcapping")?);
    let scale = match family.as_str() {
        "gemma2" => format!("* {}", number(config.positive_or("query_pre_attn_scalar", 256.0)?.powf(-0.5))),
        _ => "/ sqrt(E)".to_owned(),
    };
    let act = match family.as_str() {
        // Gemma's first configurations say `gelu` and mean the approximation by tanh.
        "gemma" if config.has("hidden_activation") => activation(config, "hidden_activation", "gelu_pytorch_tanh")?,
        "gemma" => match activation(config, "hidden_act", "gelu_pytorch_tanh")? {
            "gelu" => "gelu_tanh",
            other => other,
        },
        "gemma2" => activation(config, "hidden_activation", "gelu_pytorch_tanh")?,
        _ => activation(config, "hidden_act", "silu")?,
    };
    if family == "gemma2" {
        // It is there beside `hidden_activation`, which alone is used.
        config.text_or("hidden_act", "")?;
        config.only("use_bidirectional_attention", false)?;
    }

    let llama3 = rope.llama3.as_ref();
    let of_llama3 = |f: fn(&Llama3) -> f64| llama3.map(f).map(number).unwrap_or_default();
    Ok(Template::new(include_str!("llama.attn"))
        .word("Name", name)
        .word("L", layers)
        .word("D", d)
        .word("H", h)
        .word("K", k)
        .word("E", e)
        .word("F", config.size("intermediate_size")?)
        .word("V", config.size("vocab_size")?)
        .word("T", config.size("max_position_embeddings")?)
        .word("theta", number(rope.theta))
        .word("linear", rope.linear.map(|f| format!(" / {}", number(f))).unwrap_or_default())
        .flag("llama3", llama3.is_some())
        .word("factor", of_llama3(|s| s.factor))
        .word("low", of_llama3(|s| s.low))
        .word("high", of_llama3(|s| s.high))
        .word("context", of_llama3(|s| s.context))
        .word("longest", of_llama3(|s| s.context / s.low))
        .word("shortest", of_llama3(|s| s.context / s.high))
        .word("eps", &eps)
        .word("Norm", norm("D"))
        .word("HeadNorm", norm("E"))
        .word("Qkv", linear(qkv_bias))
        .word("Out", linear(out_bias))
        .word("act", act)
        .word("scale", scale)
        .word("prefix", prefix)
        .word("window", window.as_ref().map(|w| w.size).unwrap_or_default())
        .word("first_local", window.as_ref().is_some_and(|w| w.first_local))
        .word("cap", cap_scores.clone().unwrap_or_default())
        .word("cap_logits", cap_logits.clone().unwrap_or_default())
        .flag("plus_one", gemma)
        .flag("grouped", h != k)
        .flag("head_norms", family == "qwen3")
        .flag("window", window.is_some())
        .flag("alternating", window.is_some_and(|w| w.alternating))
        .flag("cap", cap_scores.is_some())
        .flag("cap_logits", cap_logits.is_some())
        .flag("sandwich", family == "gemma2")
        .flag("scaled", gemma)
        .flag("head", head)
        .flag("own_head", own_head)
        .program())
}

/// Are the logits made by a matrix of its own, and not by the table of embeddings? A checkpoint that has `lm_head.weight` beside
/// tied embeddings has the same numbers in it.
fn own_head(config: &Config, head: bool, gemma: bool, names: &Names) -> Result<bool, Refusal> {
    let own = !config.flag_or("tie_word_embeddings", gemma)? && head;
    if own && !names.has("lm_head.weight") {
        let message = "the checkpoint has no tensor `lm_head.weight`, and `tie_word_embeddings` is false".to_owned();
        return Err(Refusal::checkpoint(message));
    }
    Ok(own)
}

fn rope(config: &Config) -> Result<Rope, Refusal> {
    // `rope_parameters` since version 5 of transformers; before, `rope_theta` and `rope_scaling`.
    let theta = config.positive_or("rope_theta", 10_000.0)?;
    let (field, inner) = match config.object("rope_parameters")? {
        Some(inner) => {
            if config.object("rope_scaling")?.is_some_and(|other| !other.says_the_same(&inner)) {
                return Err(config.refuse("rope_scaling", "what rope_parameters says"));
            }
            ("rope_parameters", Some(inner))
        }
        None => ("rope_scaling", config.object("rope_scaling")?),
    };
    let Some(inner) = inner else { return Ok(Rope { theta, linear: None, llama3: None }) };
    let theta = inner.positive_or("rope_theta", theta)?;
    let kind = inner.text_or("rope_type", &inner.text_or("type", "default")?)?;
    inner.text_or("type", "")?;
    let mut rope = Rope { theta, linear: None, llama3: None };
    match kind.as_str() {
        "default" => {}
        "linear" => rope.linear = Some(inner.positive_or("factor", 1.0)?),
        "llama3" => {
            let found = Llama3 {
                factor: inner.positive_or("factor", 8.0)?,
                low: inner.positive_or("low_freq_factor", 1.0)?,
                high: inner.positive_or("high_freq_factor", 4.0)?,
                context: inner.positive_or("original_max_position_embeddings", 8192.0)?,
            };
            if found.high <= found.low {
                return Err(config.refuse(field, "a high_freq_factor above the low_freq_factor"));
            }
            rope.llama3 = Some(found);
        }
        _ => return Err(config.refuse(field, "a rope_type of default, linear or llama3")),
    }
    inner
        .all_known()
        .map_err(|_| config.refuse(field, "a rope_type of default, linear or llama3 without further fields"))?;
    Ok(rope)
}

/// What a window hides: keys `size` or more positions back.
#[derive(Clone, Copy)]
struct Window {
    size: i64,
    /// Only in every other layer?
    alternating: bool,
    /// In the first layer?
    first_local: bool,
}

fn window(config: &Config, family: &str, layers: i64) -> Result<Option<Window>, Refusal> {
    let qwen = family.starts_with("qwen");
    let used = config.flag_or("use_sliding_window", !qwen)?;
    let first = config.token("max_window_layers")?;
    // Others have the field, perhaps, and no windows.
    if !(qwen || ["mistral", "gemma2"].contains(&family)) {
        config.has("sliding_window");
        config.texts("layer_types")?;
        return Ok(None);
    }
    let size = if config.has("sliding_window") && used { Some(config.size("sliding_window")?) } else { None };
    let kinds = config.texts("layer_types")?;
    let default = |size| match family {
        "gemma2" => Window { size, alternating: layers > 1, first_local: true },
        _ => Window { size, alternating: false, first_local: true },
    };
    let Some(kinds) = kinds else {
        // Qwen's windows begin with a layer.
        return match (size, first) {
            (Some(_), Some(first)) if qwen && first >= layers => Ok(None),
            (Some(_), first) if qwen && first != Some(0) => {
                Err(config.refuse("max_window_layers", "0, or the number of layers, where windows are used"))
            }
            _ => Ok(size.map(default)),
        };
    };
    let local: Option<Vec<bool>> = kinds
        .iter()
        .map(|kind| match kind.as_str() {
            "sliding_attention" => Some(true),
            "full_attention" => Some(false),
            _ => None,
        })
        .collect();
    let known = "all layers alike, or full_attention and sliding_attention by turns, one for each layer";
    let local = local.filter(|list| list.len() as i64 == layers).ok_or_else(|| config.refuse("layer_types", known))?;
    let first_local = local.first().copied().unwrap_or(false);
    let alike = local.iter().all(|l| *l == first_local);
    let by_turns = local.iter().zip(local.iter().skip(1)).all(|(a, b)| a != b);
    match (alike, by_turns, size) {
        (true, _, _) if !first_local => Ok(None),
        (_, _, None) => Err(config.refuse("sliding_window", "a size, where layers are of the kind sliding_attention")),
        (true, _, Some(size)) => Ok(Some(Window { size, alternating: false, first_local })),
        (false, true, Some(size)) => Ok(Some(Window { size, alternating: true, first_local })),
        (false, false, _) => Err(config.refuse("layer_types", known)),
    }
}
