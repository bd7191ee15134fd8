//! ViT, DeiT and DINOv2, with an image classifier or without.

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
    let family = config.text("model_type")?;
    let (dino, distilled) = (family == "dinov2", family == "deit");
    let class = match family.as_str() {
        "deit" => "DeiT",
        "dinov2" => "Dinov2",
        _ => "ViT",
    };
    let heads = ["Model", "ForImageClassification", "ForImageClassificationWithTeacher"];
    let head = config.architecture(class, if distilled { &heads } else { &heads[..2] })?;
    let (classifier, taught) = (head != "Model", head == "ForImageClassificationWithTeacher");
    let prefix = names.prefix(
        &[
            match family.as_str() {
                "deit" => "deit.",
                "dinov2" => "dinov2.",
                _ => "vit.",
            },
            "",
        ],
        "embeddings.cls_token",
    )?;
    let gated = dino && config.flag_or("use_swiglu_ffn", false)?;
    let inner = match dino {
        true => {
            let wide = (d as f64 * config.positive_or("mlp_ratio", 4.0)?).clamp(1.0, f64::from(i32::MAX)) as i64;
            // With a gate, two thirds of it, in multiples of 8.
            if gated { ((wide as f64 * 2.0 / 3.0) as i64 + 7) / 8 * 8 } else { wide }
        }
        false => config.size("intermediate_size")?,
    };
    if dino {
        // Fields of training, and of models with several outputs.
        for unused in
            ["layerscale_value", "drop_path_rate", "out_features", "out_indices", "stage_names", "use_mask_token"]
        {
            config.has(unused);
        }
        config.flag_or("apply_layernorm", true)?;
        config.flag_or("reshape_hidden_states", true)?;
    }
    let labels = config.object("id2label")?.map_or(2, |labels| labels.count());
    let pooled = !classifier && names.has(&format!("{prefix}pooler.dense.weight"));
    config
        .size_or("pooler_output_size", d)
        .and_then(|n| if n == d { Ok(()) } else { Err(config.refuse("pooler_output_size", "hidden_size")) })?;
    Ok(Template::new(include_str!("vit.attn"))
        .word("Name", class.replace("ViT", "Vit"))
        .word("L", config.size("num_hidden_layers")?)
        .word("D", d)
        .word("H", h)
        .word("F", inner)
        .word("C", config.size_or("num_channels", 3)?)
        .word("P", patch)
        .word("N", side.saturating_mul(side))
        .word("size", size)
        .word("eps", number(config.epsilon_or("layer_norm_eps", if dino { 1e-6 } else { 1e-12 })?))
        .word("act", activation(config, "hidden_act", "gelu")?)
        .word("pooler_act", activation(config, "pooler_act", "tanh")?)
        .word("Qkv", if config.flag_or("qkv_bias", true)? { "Linear" } else { "LinearNoBias" })
        .word("prefix", prefix)
        .word("labels_default", if classifier { format!(", C = {labels}") } else { String::new() })
        .word("first", if distilled { 2 } else { 1 })
        .word("then_distilled", if distilled { ", then the one for distillation" } else { "" })
        .word("scaled_doc", if dino { ", whose sums have a learned scale for each channel" } else { "" })
        .word("norm_1", if dino { "norm1" } else { "layernorm_before" })
        .word("norm_2", if dino { "norm2" } else { "layernorm_after" })
        .word("scale_1", if dino { "scale_1 * " } else { "" })
        .word("scale_2", if dino { "scale_2 * " } else { "" })
        .word(
            "widen",
            match (dino, gated) {
                (_, true) => "mlp.weights_in",
                (true, _) => "mlp.fc1",
                _ => "intermediate.dense",
            },
        )
        .word(
            "narrow",
            match (dino, gated) {
                (_, true) => "mlp.weights_out",
                (true, _) => "mlp.fc2",
                _ => "output.dense",
            },
        )
        .word("seen", if dino { "2*D" } else { "D" })
        .flag("scaled", dino)
        .word("inner", if gated { "2*F" } else { "F" })
        .flag("gated", gated)
        .flag("distilled", distilled)
        .flag("taught", taught)
        .flag("patches_too", dino && classifier)
        .flag("pooled", pooled)
        .flag("classifier", classifier)
        .program())
}
