//! T5, Flan-T5 and mT5: encoder and decoder, or only the encoder. With a head, the decoder has a
//! cache and generates text.

use super::{Config, Names, Refusal, Template, activation, number};

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    let multilingual = config.text("model_type")? == "mt5";
    let class = if multilingual { "MT5" } else { "T5" };
    let kind = config.architecture(class, &["ForConditionalGeneration", "EncoderModel", "Model"])?;
    let (decodes, head) = (kind != "EncoderModel", kind == "ForConditionalGeneration");
    let (d, layers) = (config.size("d_model")?, config.size("num_layers")?);
    let feed = config.text_or("feed_forward_proj", if multilingual { "gated-gelu" } else { "relu" })?;
    let (gated, act) = match feed.as_str() {
        "relu" => (false, "relu"),
        "gated-gelu" => (true, "gelu_tanh"),
        "gated-silu" => (true, "silu"),
        "gelu" => (false, "gelu"),
        _ => return Err(config.refuse("feed_forward_proj", "relu, gelu, gated-gelu or gated-silu")),
    };
    // Redundant with `feed_forward_proj`.
    config.flag_or("is_gated_act", gated)?;
    activation(config, "dense_act_fn", "relu")?;
    let pad = config.token("pad_token_id")?.unwrap_or(0);
    let vocabulary = config.size("vocab_size")?;
    // Output begins with one token, input ends with another.
    let edge = |name: &str, default: i64| {
        let token = config.token(name)?.unwrap_or(default);
        let wanted = || config.refuse(name, &format!("a token below vocab_size, {vocabulary}"));
        if token < vocabulary { Ok(token) } else { Err(wanted()) }
    };
    let (start, end) = (edge("decoder_start_token_id", pad)?, edge("eos_token_id", 1)?);
    config.only("is_decoder", false)?;
    names.prefix(&[""], "shared.weight")?;
    // mT5's field may say one thing and its checkpoint another, which is what counts.
    let tied = config.flag_or("tie_word_embeddings", true)?;
    let tied = if multilingual { !names.has("lm_head.weight") } else { tied };
    // Since version 5 of transformers, the scale of tied logits is a separate field.
    let scaled = config.flag_or("scale_decoder_outputs", tied && !multilingual)?;
    let buckets = config.size_or("relative_attention_num_buckets", 32)?;
    if buckets % 4 != 0 {
        return Err(config.refuse("relative_attention_num_buckets", "a multiple of 4"));
    }
    let distance = config.size_or("relative_attention_max_distance", 128)?;
    if distance <= buckets / 2 {
        return Err(config.refuse("relative_attention_max_distance", "more than half of the buckets"));
    }
    let decoder_layers = config.size_or("num_decoder_layers", layers)?;
    let banned = if head { config.banned(Some(end))? } else { String::new() };
    Ok(Template::new(include_str!("t5.attn"))
        .word("banned", &banned)
        .flag("banned", !banned.is_empty())
        .word("Name", class)
        .word("L", layers)
        .word("M", decoder_layers)
        .word("D", d)
        .word("H", config.size("num_heads")?)
        .word("E", config.size("d_kv")?)
        .word("F", config.size("d_ff")?)
        .word("V", vocabulary)
        .word(
            "cache",
            if head { format!(", C = {}, Kept = f32", config.size_or("n_positions", 512)?) } else { String::new() },
        )
        .word("rooms", if head { ", C, Kept = f32" } else { "" })
        .word("room", if head { ", C, Kept" } else { "" })
        .word("start", start)
        .word("end", end)
        .word("eps", number(config.epsilon_or("layer_norm_epsilon", 1e-6)?))
        .word("buckets", buckets)
        .word("half", buckets / 2)
        .word("exact", buckets / 2)
        .word("half_exact", buckets / 4)
        .word("distance", format!("{distance}.0"))
        .word("act", act)
        .word("out", if head { "V" } else { "D" })
        .word("what", if head { "the logits of the next token at each position" } else { "the last hidden states" })
        .word("head_scale", if scaled { number((d as f64).powf(-0.5)) } else { "1.0".to_owned() })
        .flag("gated", gated)
        .flag("decodes", decodes)
        .flag("head", head)
        .flag("own_head", head && !tied)
        .program())
}
