//! GPT-2, with its head or without.

use super::{Config, Names, Refusal, Template, activation, number};

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    let (d, h) = (config.size("n_embd")?, config.size("n_head")?);
    if d % h != 0 {
        return Err(config.refuse("n_head", &format!("a divisor of n_embd, {d}")));
    }
    config.only("scale_attn_by_inverse_layer_idx", false)?;
    config.only("add_cross_attention", false)?;
    config.padding()?;
    let head = config.architecture("GPT2", &["LMHeadModel", "Model"])? == "LMHeadModel";
    let tied = config.flag_or("tie_word_embeddings", true)?;
    let scaled = config.flag_or("scale_attn_weights", true)?;
    Ok(Template::new(include_str!("gpt2.attn"))
        .word("L", config.size("n_layer")?)
        .word("D", d)
        .word("H", h)
        .word("F", config.size_or("n_inner", d.saturating_mul(4))?)
        .word("V", config.size("vocab_size")?)
        .word("T", config.size("n_positions")?)
        .word("eps", number(config.epsilon_or("layer_norm_epsilon", 1e-5)?))
        .word("act", activation(config, "activation_function", "gelu_new")?)
        .word("scale", if scaled { " / sqrt(D / H)" } else { "" })
        .word("prefix", names.prefix(&["transformer.", ""], "wte.weight")?)
        .word("cache", if head { ", Kept = f32" } else { "" })
        .word("rooms", if head { ", T, Kept = f32" } else { "" })
        .word("room", if head { ", T, Kept" } else { "" })
        .flag("head", head)
        .flag("own_head", head && !tied)
        .program())
}
