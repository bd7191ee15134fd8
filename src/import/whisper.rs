//! Whisper's encoder. The decoder's fields and tensors are ignored.

use super::{Config, Names, Refusal, Template, activation};

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    let (d, h) = (config.size("d_model")?, config.size("encoder_attention_heads")?);
    if d % h != 0 {
        return Err(config.refuse("encoder_attention_heads", &format!("a divisor of d_model, {d}")));
    }
    let prefix = names.prefix(&["model.encoder.", "encoder.", ""], "conv1.weight")?;
    config.architecture("Whisper", &["ForConditionalGeneration", "Model", "ForAudioClassification"])?;
    // Fields of the decoder, or redundant ones.
    for other in ["decoder_attention_heads", "decoder_ffn_dim", "decoder_layers", "vocab_size", "max_target_positions"]
    {
        config.size_or(other, 1)?;
    }
    config.size_or("num_hidden_layers", 1)?;
    config.size_or("classifier_proj_size", 1)?;
    config.flag_or("use_weighted_layer_sum", false)?;
    config.flag_or("tie_word_embeddings", true)?;
    config.padding()?;
    // The encoder does not scale, whatever the value.
    config.flag_or("scale_embedding", false)?;
    Ok(Template::new(include_str!("whisper.attn"))
        .word("L", config.size("encoder_layers")?)
        .word("D", d)
        .word("H", h)
        .word("F", config.size("encoder_ffn_dim")?)
        .word("M", config.size("num_mel_bins")?)
        .word("S", config.size("max_source_positions")?)
        .word("act", activation(config, "activation_function", "gelu")?)
        .word("prefix", prefix)
        .program())
}
