//! BART: encoder and decoder. With a head, the decoder has a cache, and writes.

use super::{Config, Names, Refusal, Template, activation};

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    let head = config.architecture("Bart", &["ForConditionalGeneration", "Model"])? == "ForConditionalGeneration";
    let (d, layers) = (config.size("d_model")?, config.size("encoder_layers")?);
    let heads = |name: &str| {
        let h = config.size(name)?;
        if d % h == 0 { Ok(h) } else { Err(config.refuse(name, &format!("a divisor of d_model, {d}"))) }
    };
    // It repeats the layers of the encoder.
    config.size_or("num_hidden_layers", layers)?;
    // What makes other members of the family: norms before the halves of a block, and at the end.
    config.only("normalize_before", false)?;
    config.only("add_final_layer_norm", false)?;
    config.only("normalize_embedding", true)?;
    let pad = config.token("pad_token_id")?.unwrap_or(1);
    let vocabulary = config.size("vocab_size")?;
    let edge = |name: &str, default: i64| {
        let token = config.token(name)?.unwrap_or(default);
        let wanted = || config.refuse(name, &format!("a token below vocab_size, {vocabulary}"));
        if token < vocabulary { Ok(token) } else { Err(wanted()) }
    };
    let (start, end) = (edge("decoder_start_token_id", pad)?, edge("eos_token_id", 2)?);
    // The first token that is written may be given.
    let (first, begins) = match config.token("forced_bos_token_id")? {
        None => (format!("full({start}, [1])"), format!("token {start}")),
        Some(_) => {
            let next = edge("forced_bos_token_id", 0)?;
            (format!("concat(full({start}, [1]), full({next}, [1]))"), format!("tokens {start} and {next}"))
        }
    };
    let tied = config.flag_or("tie_word_embeddings", true)?;
    let longest = config.size("max_position_embeddings")?;
    let of_head = |text: &'static str| if head { text } else { "" };
    Ok(Template::new(include_str!("bart.attn"))
        .word("L", layers)
        .word("M", config.size("decoder_layers")?)
        .word("D", d)
        .word("H", heads("encoder_attention_heads")?)
        .word("J", heads("decoder_attention_heads")?)
        .word("F", config.size("encoder_ffn_dim")?)
        .word("G", config.size("decoder_ffn_dim")?)
        .word("V", vocabulary)
        .word("T", longest)
        .word("longest", longest)
        .word("act", activation(config, "activation_function", "gelu")?)
        .word("embed_scale", if config.flag_or("scale_embedding", false)? { " * sqrt(D)" } else { "" })
        .word("prefix", names.prefix(&["model.", ""], "shared.weight")?)
        .word("kept_default", of_head(", Kept = f32"))
        .word("kept", of_head(", Kept"))
        .word("rooms", of_head(", T, Kept = f32"))
        .word("room", of_head(", T, Kept"))
        .word("first", first)
        .word("begins", begins)
        .word("end", end)
        .word("out", if head { "V" } else { "D" })
        .word("what", if head { "the logits of the next token at each position" } else { "the last hidden states" })
        .flag("head", head)
        .flag("logits_bias", head && names.has("final_logits_bias"))
        .flag("own_head", head && !tied)
        .program())
}
