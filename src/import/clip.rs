//! CLIP and SigLIP: an encoder of images and one of texts, whose vectors are compared.

use super::{Config, Names, Refusal, Template, activation, number};

/// The layers of an encoder.
struct Tower {
    d: i64,
    h: i64,
    f: i64,
    layers: i64,
    act: &'static str,
    eps: String,
}

impl Tower {
    fn from_config(config: &Config, clip: bool) -> Result<Tower, Refusal> {
        let size =
            |name: &str, clip_has: i64, siglip_has: i64| config.size_or(name, if clip { clip_has } else { siglip_has });
        let (d, h) = (config.size("hidden_size")?, config.size("num_attention_heads")?);
        if d % h != 0 {
            return Err(config.refuse("num_attention_heads", &format!("a divisor of hidden_size, {d}")));
        }
        let field = "hidden_act";
        let act = match config.text_or(field, if clip { "quick_gelu" } else { "gelu_pytorch_tanh" })?.as_str() {
            "quick_gelu" => "quick_gelu",
            _ => activation(config, field, "gelu_pytorch_tanh")?,
        };
        let eps = number(config.epsilon_or("layer_norm_eps", if clip { 1e-5 } else { 1e-6 })?);
        Ok(Tower {
            d,
            h,
            f: size("intermediate_size", 2048, 3072)?,
            layers: config.size_or("num_hidden_layers", 12)?,
            act,
            eps,
        })
    }

    /// Substitutes its words in a template.
    fn fill<'t>(&self, template: Template<'t>, words: [&'static str; 6]) -> Template<'t> {
        let [d, h, f, layers, act, eps] = words;
        template
            .word(d, self.d)
            .word(h, self.h)
            .word(f, self.f)
            .word(layers, self.layers)
            .word(act, self.act)
            .word(eps, &self.eps)
    }
}

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    let clip = config.text("model_type")? == "clip";
    let class = if clip { "CLIP" } else { "Siglip" };
    config.architecture(class, &["Model"])?;
    names.prefix(&[""], "text_model.embeddings.token_embedding.weight")?;
    let part = |name: &str| {
        config.object(name)?.ok_or_else(|| config.refuse(name, "the configuration of one of its two encoders"))
    };
    let (text, vision) = (part("text_config")?, part("vision_config")?);
    config.has("logit_scale_init_value");
    // Older files repeat fields of the parts.
    for (name, part) in [("text_config_dict", &text), ("vision_config_dict", &vision)] {
        if config.object(name)?.is_some_and(|repeated| !repeated.is_in(part)) {
            return Err(config.refuse(name, "what the other configuration says"));
        }
    }
    let (texts, images) = (Tower::from_config(&text, clip)?, Tower::from_config(&vision, clip)?);
    let (size, patch) = (vision.size_or("image_size", 224)?, vision.size_or("patch_size", if clip { 32 } else { 16 })?);
    if size < patch || (size % patch != 0 && clip) {
        return Err(vision.refuse("patch_size", &format!("a divisor of image_size, {size}")));
    }
    let side = size / patch;
    vision.only("vision_use_head", true)?;
    let end = text.token("eos_token_id")?.unwrap_or(49_407);
    for part in [&text, &vision] {
        part.padding()?;
        part.has("projection_dim");
        part.has("model_type");
        for unused in ["dropout", "logit_scale_init_value", "add_cross_attention", "is_decoder", "architectures"] {
            part.has(unused);
        }
    }
    let joint = match clip {
        true => config.size_or("projection_dim", 512)?,
        false => text.size_or("projection_size", texts.d)?,
    };
    if !clip && (joint != images.d) {
        return Err(text.refuse("projection_size", &format!("the width of images, {}", images.d)));
    }
    let template = Template::new(include_str!("clip.attn"))
        .word("Name", if clip { "Clip" } else { "Siglip" })
        .word("V", text.size_or("vocab_size", if clip { 49_408 } else { 32_000 })?)
        .word("T", text.size_or("max_position_embeddings", if clip { 77 } else { 64 })?)
        .word("C", vision.size_or("num_channels", 3)?)
        .word("P", patch)
        .word("size", size)
        .word("used", side.saturating_mul(patch))
        .word("N", side.saturating_mul(side))
        .word(
            "rows",
            if clip {
                "$N + 1".replace("$N", &side.saturating_mul(side).to_string())
            } else {
                side.saturating_mul(side).to_string()
            },
        )
        .word("J", if clip { joint.to_string() } else { "E".to_owned() })
        .word("end", end)
        .word("biased", if clip { "LinearNoBias" } else { "Linear" })
        .flag("clip", clip)
        // The first files have a wrong token, and the end is the greatest one.
        .flag("greatest", clip && end == 2)
        .flag("quick", texts.act == "quick_gelu" || images.act == "quick_gelu")
        .flag("cut", side.saturating_mul(patch) != size);
    for (part, name) in [(&text, "text_config"), (&vision, "vision_config")] {
        part.all_known()
            .map_err(|refusal| Refusal { message: format!("{}, in `{name}`", refusal.message), help: None })?;
    }
    let template = texts.fill(template, ["D", "H", "F", "L", "act", "eps"]);
    Ok(images.fill(template, ["E", "I", "G", "M", "act_of_images", "eps_of_images"]).program())
}
