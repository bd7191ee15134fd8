//! ViT, with its image classifier or without.

use super::{Config, Names, Refusal, Template, activation, number};

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    let (d, h) = (config.size("hidden_size")?, config.size("num_attention_heads")?);
    if d % h != 0 {
        return Err(config.refuse("num_attention_heads", &format!("a divisor of hidden_size, {d}")));
    }
    let (size, patch) = (config.size("image_size")?, config.size("patch_size")?);
    if size % patch != 0 {
        return Err(config.refuse("patch_size", &format!("a divisor of image_size, {size}")));
    }
    let side = size / patch;
    let classifier = config.architecture("ViT", &["Model", "ForImageClassification"])? == "ForImageClassification";
    let prefix = names.prefix(&["vit.", ""], "embeddings.cls_token")?;
    let labels = config.object("id2label")?.map_or(2, |labels| labels.count());
    let pooled = !classifier && names.has(&format!("{prefix}pooler.dense.weight"));
    config
        .size_or("pooler_output_size", d)
        .and_then(|n| if n == d { Ok(()) } else { Err(config.refuse("pooler_output_size", "hidden_size")) })?;
    Ok(Template::new(include_str!("vit.attn"))
        .word("L", config.size("num_hidden_layers")?)
        .word("D", d)
        .word("H", h)
        .word("F", config.size("intermediate_size")?)
        .word("C", config.size_or("num_channels", 3)?)
        .word("P", patch)
        .word("N", side.saturating_mul(side))
        .word("size", size)
        .word("eps", number(config.epsilon_or("layer_norm_eps", 1e-12)?))
        .word("act", activation(config, "hidden_act", "gelu")?)
        .word("pooler_act", activation(config, "pooler_act", "tanh")?)
        .word("Qkv", if config.flag_or("qkv_bias", true)? { "Linear" } else { "LinearNoBias" })
        .word("prefix", prefix)
        .word("labels_default", if classifier { format!(", C = {labels}") } else { String::new() })
        .flag("pooled", pooled)
        .flag("classifier", classifier)
        .program())
}
