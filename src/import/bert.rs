//! Encoders of the BERT kind: BERT, RoBERTa, DistilBERT; without a head, with a head for masked
//! tokens, or with a classifier of sequences or tokens.

use super::{Config, Names, Refusal, Template, activation, number};

/// Supported heads.
const HEADS: [&str; 4] = ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "Model"];

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    let family = config.text("model_type")?;
    let class = match family.as_str() {
        "roberta" => "Roberta",
        "xlm-roberta" => "XLMRoberta",
        _ => "Bert",
    };
    let roberta = class != "Bert";
    let (d, h) = (config.size("hidden_size")?, config.size("num_attention_heads")?);
    if d % h != 0 {
        return Err(config.refuse("num_attention_heads", &format!("a divisor of hidden_size, {d}")));
    }
    if config.text_or("position_embedding_type", "absolute")? != "absolute" {
        return Err(config.refuse("position_embedding_type", "absolute"));
    }
    config.only("is_decoder", false)?;
    config.only("add_cross_attention", false)?;
    let head = head(config, class)?;
    let base = if roberta { "roberta." } else { "bert." };
    let prefix = names.prefix(&[base, ""], "embeddings.word_embeddings.weight")?;
    // RoBERTa's positions start after it.
    let pad = if roberta { config.token("pad_token_id")?.unwrap_or(1) } else { config.padding()?.unwrap_or(0) };
    let longest = config.size("max_position_embeddings")? - if roberta { pad + 1 } else { 0 };
    if longest < 1 {
        return Err(config.refuse("max_position_embeddings", "a size above pad_token_id + 1"));
    }
    // RoBERTa's classifier has its own layer instead of the pooler.
    let pooler = names.has(&format!("{prefix}pooler.dense.weight"));
    if head == "ForSequenceClassification" && !roberta && !pooler {
        return Err(Refusal::checkpoint(format!("the checkpoint has no tensor `{prefix}pooler.dense.weight`")));
    }
    let (transform, transform_norm, bias, decoder) = if roberta {
        ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder")
    } else {
        (
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.bias",
            "cls.predictions.decoder",
        )
    };
    let act = activation(config, "hidden_act", "gelu")?;
    let template = Template::new(include_str!("bert.attn"))
        .word("Name", class)
        .word("L", config.size("num_hidden_layers")?)
        .word("D", d)
        .word("H", h)
        .word("F", config.size("intermediate_size")?)
        .word("eps", number(config.epsilon_or("layer_norm_eps", 1e-12)?))
        .word("types_generic", ", Y")
        .word("types_argument", ", Y")
        .word("types_default", format!(", Y = {}", config.size_or("type_vocab_size", 2)?))
        .word("first", if roberta { "classifier.dense" } else { "" })
        .word("second", if roberta && head != "ForTokenClassification" { "classifier.out_proj" } else { "classifier" })
        .word("hidden_act", "tanh")
        .word("query", "self.query")
        .word("key", "self.key")
        .word("value", "self.value")
        .word("output", "output.dense")
        .word("attention_norm", "attention.output.LayerNorm")
        .word("widen", "intermediate.dense")
        .word("narrow", "output.dense")
        .word("output_norm", "output.LayerNorm")
        .word("layers", "encoder.layer")
        .word("transform", transform)
        .word("transform_norm", transform_norm)
        .word("transform_act", if roberta { "gelu" } else { act })
        .word("bias", bias)
        .word("decoder", decoder)
        .word("arguments", "tokens: i32[B, S], mask: i32[B, S], types: i32[B, S]")
        .word("passed", "tokens, mask, types")
        .word("act", act)
        .flag("distilled", false)
        .flag("roberta", roberta)
        .flag("pooled", pooler)
        .flag("two_steps", roberta && head == "ForSequenceClassification");
    let old = names.has(&format!("{prefix}embeddings.LayerNorm.gamma"));
    finish(template.word("Norm", norm(old)).flag("old_norms", old), config, prefix, pad, longest, head)
}

/// The norm layer, whose parameters have other names in checkpoints from TensorFlow.
fn norm(is_old: bool) -> &'static str {
    if is_old { "OldNorm" } else { "LayerNorm" }
}

pub(super) fn distilled(config: &Config, names: &Names) -> Result<String, Refusal> {
    let (d, h) = (config.size("dim")?, config.size("n_heads")?);
    if d % h != 0 {
        return Err(config.refuse("n_heads", &format!("a divisor of dim, {d}")));
    }
    let head = head(config, "DistilBert")?;
    let prefix = names.prefix(&["distilbert.", ""], "embeddings.word_embeddings.weight")?;
    let longest = config.size("max_position_embeddings")?;
    let act = activation(config, "activation", "gelu")?;
    let pad = config.padding()?.unwrap_or(0);
    let template = Template::new(include_str!("bert.attn"))
        .word("Name", "DistilBert")
        .word("L", config.size("n_layers")?)
        .word("D", d)
        .word("H", h)
        .word("F", config.size("hidden_dim")?)
        .word("eps", "1e-12")
        .word("types_generic", "")
        .word("types_argument", "")
        .word("types_default", "")
        .word("first", "pre_classifier")
        .word("second", "classifier")
        .word("hidden_act", "relu")
        .word("query", "q_lin")
        .word("key", "k_lin")
        .word("value", "v_lin")
        .word("output", "out_lin")
        .word("attention_norm", "sa_layer_norm")
        .word("widen", "ffn.lin1")
        .word("narrow", "ffn.lin2")
        .word("output_norm", "output_layer_norm")
        .word("layers", "transformer.layer")
        .word("transform", "vocab_transform")
        .word("transform_norm", "vocab_layer_norm")
        .word("transform_act", act)
        .word("bias", "vocab_projector.bias")
        .word("decoder", "vocab_projector")
        .word("arguments", "tokens: i32[B, S], mask: i32[B, S]")
        .word("passed", "tokens, mask")
        .word("act", act)
        .word("Norm", norm(false))
        .flag("old_norms", false)
        .flag("distilled", true)
        .flag("roberta", false)
        .flag("pooled", false)
        .flag("two_steps", head == "ForSequenceClassification");
    finish(template, config, prefix, pad, longest, head)
}

fn head(config: &Config, class: &str) -> Result<&'static str, Refusal> {
    if config.has("architectures") { config.architecture(class, &HEADS) } else { Ok("Model") }
}

/// The parts shared by all of them.
fn finish(
    template: Template<'_>,
    config: &Config,
    prefix: &str,
    pad: i64,
    longest: i64,
    head: &str,
) -> Result<String, Refusal> {
    let (of_text, of_tokens) = (head == "ForSequenceClassification", head == "ForTokenClassification");
    let classifier = of_text || of_tokens;
    // The number of labels is the number of their names; two by default.
    let labels = match config.object("id2label")? {
        Some(labels) => labels.count() as i64,
        None => config.size_or("num_labels", 2)?,
    };
    Ok(template
        .word("prefix", prefix)
        .word("pad", pad)
        .word("longest", longest)
        .word("V", config.size("vocab_size")?)
        .word("T", config.size("max_position_embeddings")?)
        .word("labels_default", if classifier { format!(", C = {labels}") } else { String::new() })
        .flag("masked", head == "ForMaskedLM")
        .flag("classifier", classifier)
        .flag("of_text", of_text)
        .flag("of_tokens", of_tokens)
        .flag("tied", config.flag_or("tie_word_embeddings", true)?)
        .program())
}
