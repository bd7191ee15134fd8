//! Encoders that read a text at once: one template, whose parts are chosen by a table of families
//! and by fields of the configuration. Without a head, or with one for masked tokens, replaced
//! tokens, texts or tokens.

use super::{Config, Names, Refusal, Template, activation, named, number};

/// How an encoder knows the order of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Positions {
    /// A vector for each position.
    Learned,
    /// The same, counted from behind the token that pads; this is its number, unless a field says.
    Behind(i64),
    /// As `Behind`, with a learned bias of scores by distance.
    Biased(i64),
    /// Rotary positions.
    Rotary,
    /// Attention to distances.
    Distances,
}

/// A family.
#[derive(Clone, Copy, Debug)]
struct EncoderFamily {
    family: &'static str,
    class: &'static str,
    prefix: &'static str,
    /// Fields with another name than BERT's: `bert=other`, `bert=` for none.
    fields: &'static str,
    /// Names of tensors, and `name=` for parts that the family does not have.
    tensors: &'static str,
    positions: Positions,
    /// The width of embeddings may differ from that of the layers.
    factored: bool,
    /// The layers share their weights.
    shared: bool,
    /// The functions of the heads: for masked tokens (as the layers', if empty), and for texts.
    masked_act: &'static str,
    text_act: &'static str,
    act: &'static str,
    /// Without biases, with one matrix for queries, keys and values, and a gated feed-forward.
    modern: bool,
}

const BERT: EncoderFamily = EncoderFamily {
    family: "bert",
    class: "Bert",
    prefix: "bert.",
    fields: "",
    tensors: "types=token_type_embeddings embed_norm=LayerNorm query=self.query key=self.key value=self.value \
        output=output.dense attention_norm=attention.output.LayerNorm widen=intermediate.dense narrow=output.dense \
        output_norm=output.LayerNorm layers=encoder.layer pooler=pooler.dense \
        transform=cls.predictions.transform.dense transform_norm=cls.predictions.transform.LayerNorm \
        bias=cls.predictions.bias decoder=cls.predictions.decoder first= second=classifier attention=attention",
    positions: Positions::Learned,
    factored: false,
    shared: false,
    masked_act: "",
    text_act: "tanh",
    act: "gelu",
    modern: false,
};

const ROBERTA: EncoderFamily = EncoderFamily {
    family: "roberta",
    class: "Roberta",
    prefix: "roberta.",
    tensors: "transform=lm_head.dense transform_norm=lm_head.layer_norm bias=lm_head.bias decoder=lm_head.decoder \
        first=classifier.dense second=classifier.out_proj",
    positions: Positions::Behind(1),
    masked_act: "gelu",
    ..BERT
};

/// All of them.
const KINDS: [EncoderFamily; 10] = [
    BERT,
    ROBERTA,
    EncoderFamily { family: "xlm-roberta", class: "XLMRoberta", ..ROBERTA },
    EncoderFamily { family: "camembert", class: "Camembert", ..ROBERTA },
    EncoderFamily {
        family: "distilbert",
        class: "DistilBert",
        prefix: "distilbert.",
        fields: "hidden_size=dim num_attention_heads=n_heads num_hidden_layers=n_layers intermediate_size=hidden_dim \
            hidden_act=activation layer_norm_eps=",
        tensors: "types= query=q_lin key=k_lin value=v_lin output=out_lin attention_norm=sa_layer_norm widen=ffn.lin1 \
            narrow=ffn.lin2 output_norm=output_layer_norm layers=transformer.layer transform=vocab_transform \
            transform_norm=vocab_layer_norm bias=vocab_projector.bias decoder=vocab_projector first=pre_classifier",
        text_act: "relu",
        ..BERT
    },
    EncoderFamily {
        family: "electra",
        class: "Electra",
        prefix: "electra.",
        tensors: "project=embeddings_project transform=generator_predictions.dense \
            transform_norm=generator_predictions.LayerNorm bias=generator_lm_head.bias decoder=generator_lm_head \
            first=classifier.dense second=classifier.out_proj replaced=discriminator_predictions.dense \
            replaced_by=discriminator_predictions.dense_prediction",
        factored: true,
        masked_act: "gelu",
        text_act: "gelu",
        ..BERT
    },
    EncoderFamily {
        family: "albert",
        class: "Albert",
        prefix: "albert.",
        tensors: "project=encoder.embedding_hidden_mapping_in query=query key=key value=value output=dense \
            attention_norm=attention.LayerNorm widen=ffn narrow=ffn_output output_norm=full_layer_layer_norm \
            layers=encoder.albert_layer_groups.0.albert_layers.0 pooler=pooler transform=predictions.dense \
            transform_norm=predictions.LayerNorm bias=predictions.bias decoder=predictions.decoder",
        factored: true,
        shared: true,
        act: "gelu_new",
        ..BERT
    },
    EncoderFamily {
        family: "mpnet",
        class: "MPNet",
        prefix: "mpnet.",
        tensors: "types= query=attn.q key=attn.k value=attn.v output=attn.o attention_norm=attention.LayerNorm \
            transform=lm_head.dense transform_norm=lm_head.layer_norm bias=lm_head.bias decoder=lm_head.decoder \
            first=classifier.dense second=classifier.out_proj",
        positions: Positions::Biased(1),
        masked_act: "gelu",
        ..BERT
    },
    EncoderFamily {
        family: "deberta-v2",
        class: "DebertaV2",
        prefix: "deberta.",
        tensors: "types= query=self.query_proj key=self.key_proj value=self.value_proj first=pooler.dense second=classifier",
        positions: Positions::Distances,
        text_act: "gelu",
        ..BERT
    },
    EncoderFamily {
        family: "nomic_bert",
        class: "NomicBert",
        prefix: "nomic_bert.",
        tensors: "embed_norm=emb_ln query=Wqkv output=out_proj attention=attn attention_norm=norm1 gate=mlp.fc12 \
            widen=mlp.fc11 narrow=mlp.fc2 output_norm=norm2 layers=encoder.layers \
            transform_norm=cls.predictions.transform.layer_norm",
        positions: Positions::Rotary,
        act: "silu",
        modern: true,
        ..BERT
    },
];

const HEADS: [&str; 5] =
    ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "Model", "ForPreTraining"];

/// The families' names.
pub(super) fn families() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.family)
}

/// The program of a configuration, if it is of one of these families.
pub(super) fn program(family: &str, config: &Config, names: &Names) -> Option<Result<String, Refusal>> {
    let kind = KINDS.iter().find(|kind| kind.family == family)?;
    Some(kind.made(config, names))
}

/// DeBERTa's vectors for distances.
struct Distances {
    /// How many there are for each side.
    span: i64,
    /// The longest distance that they tell apart.
    longest: i64,
    /// Do they stand for more and more distances?
    grows: bool,
}

impl Distances {
    fn from_config(config: &Config, d: i64) -> Result<Distances, Refusal> {
        config.only("relative_attention", true)?;
        config.present("relative_attention")?;
        config.only("share_att_key", true)?;
        config.present("share_att_key")?;
        config.only("position_biased_input", false)?;
        config.present("position_biased_input")?;
        config.only("legacy", true)?;
        let kinds = config.texts_or_text("pos_att_type", '|')?;
        if kinds.len() != 2 || !["p2c", "c2p"].iter().all(|kind| kinds.iter().any(|known| known == kind)) {
            return Err(config.refuse("pos_att_type", "p2c and c2p"));
        }
        if config.text_or("norm_rel_ebd", "none")? != "layer_norm" {
            return Err(config.refuse("norm_rel_ebd", "layer_norm"));
        }
        for (field, wanted) in [("type_vocab_size", 0), ("conv_kernel_size", 0)] {
            if config.token(field)?.unwrap_or(0) != wanted {
                return Err(config.refuse(field, "0"));
            }
        }
        for field in ["embedding_size", "pooler_hidden_size"] {
            if config.size_or(field, d)? != d {
                return Err(config.refuse(field, &format!("hidden_size, {d}")));
            }
        }
        config.number_or("pooler_dropout", 0.0)?;
        if activation(config, "pooler_hidden_act", "gelu")? != "gelu" {
            return Err(config.refuse("pooler_hidden_act", "gelu"));
        }
        let negative = |field: &str| config.number_or(field, -1.0).map(|n| n < 1.0);
        let longest = config.size(if negative("max_relative_positions")? {
            "max_position_embeddings"
        } else {
            "max_relative_positions"
        })?;
        let grows = !negative("position_buckets")?;
        let span = if grows { config.size("position_buckets")? } else { longest };
        if grows && (span < 4 || span % 2 != 0 || longest - 1 <= span / 2) {
            return Err(config.refuse("position_buckets", "an even size from 4 on, below twice the longest distance"));
        }
        Ok(Distances { span, longest, grows })
    }
}

impl EncoderFamily {
    fn name(&self, common: &'static str) -> &'static str {
        named(self.fields, common).unwrap_or(common)
    }

    /// The name of a tensor or layer; empty if the family has none.
    fn at(&self, role: &'static str) -> &'static str {
        let of_roberta = || named(ROBERTA.tensors, role).filter(|_| self.prefix == ROBERTA.prefix);
        named(self.tensors, role).or_else(of_roberta).or_else(|| named(BERT.tensors, role)).unwrap_or("")
    }

    fn made(&self, config: &Config, names: &Names) -> Result<String, Refusal> {
        let (heads, width) = (self.name("num_attention_heads"), self.name("hidden_size"));
        let (d, h) = (config.size(width)?, config.size(heads)?);
        if d % h != 0 {
            return Err(config.refuse(heads, &format!("a divisor of {width}, {d}")));
        }
        if config.text_or("position_embedding_type", "absolute")? != "absolute" {
            return Err(config.refuse("position_embedding_type", "absolute"));
        }
        config.only("is_decoder", false)?;
        config.only("add_cross_attention", false)?;
        let known = if self.family == "electra" { &HEADS[..] } else { &HEADS[..4] };
        let head = if config.has("architectures") { config.architecture(self.class, known)? } else { "Model" };
        let prefix = names.prefix(&[self.prefix, ""], "embeddings.word_embeddings.weight")?;
        // Positions may start after the padding.
        let (pad, behind) = match self.positions {
            Positions::Behind(usual) => (config.token("pad_token_id")?.unwrap_or(usual), true),
            Positions::Biased(fixed) => (config.padding()?.map_or(fixed, |_| fixed), true),
            _ => (config.padding()?.unwrap_or(0), false),
        };
        let longest = config.size("max_position_embeddings")? - if behind { pad + 1 } else { 0 };
        if longest < 1 {
            return Err(config.refuse("max_position_embeddings", "a size above pad_token_id + 1"));
        }
        let (of_text, of_tokens) = (head == "ForSequenceClassification", head == "ForTokenClassification");
        // Some classifiers have their own layer instead of the pooler.
        let two_steps = of_text && !self.at("first").is_empty();
        let pooler = self.at("pooler");
        let pooled = names.has(&format!("{prefix}{pooler}.weight"));
        if of_text && !two_steps && !pooled {
            return Err(Refusal::checkpoint(format!("the checkpoint has no tensor `{prefix}{pooler}.weight`")));
        }
        let act = activation(config, self.name("hidden_act"), self.act)?;
        let eps = match self.name("layer_norm_eps") {
            "" => "1e-12".to_owned(),
            field => number(config.epsilon_or(field, 1e-12)?),
        };
        let typed = !self.at("types").is_empty();
        let narrow = if self.factored { config.size_or("embedding_size", d)? } else { d };
        let projected = narrow != d || self.shared;
        if self.shared {
            for field in ["num_hidden_groups", "inner_group_num"] {
                if config.size_or(field, 1)? != 1 {
                    return Err(config.refuse(field, "1: all layers share their weights"));
                }
            }
            for unused in ["net_structure_type", "down_scale_factor", "gap_size", "num_memory_blocks"] {
                config.has(unused);
            }
        }
        let biased = matches!(self.positions, Positions::Biased(_));
        if biased && config.size_or("relative_attention_num_buckets", 32)? != 32 {
            return Err(config.refuse("relative_attention_num_buckets", "32"));
        }
        let rotary = self.positions == Positions::Rotary;
        let mut base = number(10_000.0);
        if rotary {
            let said = config.object("rope_parameters")?;
            base = number(match &said {
                Some(said) => said.positive_or("rope_theta", 1000.0)?,
                None => config.positive_or("rope_theta", 1000.0)?,
            });
            if said.is_some_and(|said| said.text_or("rope_type", "default").is_ok_and(|kind| kind != "default")) {
                return Err(config.refuse("rope_parameters", "a rope_type of default"));
            }
            if config.size_or("head_dim", d / h)? != d / h || (d / h) % 2 != 0 {
                return Err(config.refuse(heads, "a number such that each head has an even size"));
            }
        }
        let distances =
            if self.positions == Positions::Distances { Some(Distances::from_config(config, d)?) } else { None };
        let mut embedded = vec!["word_embeddings(tokens)"];
        embedded.extend(typed.then_some("token_type_embeddings(types)"));
        let placed = !rotary && distances.is_none();
        embedded.extend(placed.then_some("positions"));
        let norm_outside = self.at("embed_norm") != "LayerNorm";
        let old = names.has(&format!("{prefix}embeddings.LayerNorm.gamma"));
        let classifier = of_text || of_tokens;
        // The number of labels is the number of their names; two by default.
        let labels = match config.object("id2label")? {
            Some(labels) => labels.count() as i64,
            None => config.size_or("num_labels", 2)?,
        };
        let about = match (typed, !placed, behind) {
            (true, false, false) => "Token embedding plus position embedding plus segment embedding.".to_owned(),
            (true, true, _) => "Token embedding plus segment embedding.".to_owned(),
            (false, true, _) => "Token embedding.".to_owned(),
            (_, _, true) => format!(
                "Token embedding plus position embedding. Positions count from {}; padding has position {pad}.",
                pad + 1
            ),
            _ => "Token embedding plus position embedding.".to_owned(),
        };
        let linear = if self.modern { "LinearNoBias" } else { "Linear" };
        let inputs = if typed { ", types: i32[B, S]" } else { "" };
        let pooling = config.pooling();
        Ok(Template::new(include_str!("encoder.attn"))
            .word("Name", self.class)
            .word("L", config.size(self.name("num_hidden_layers"))?)
            .word("D", d)
            .word("H", h)
            .word("F", config.size(self.name("intermediate_size"))?)
            .word("V", config.size("vocab_size")?)
            .word("T", config.size("max_position_embeddings")?)
            .word("eps", eps)
            .word("Norm", if old { "OldNorm" } else { "LayerNorm" })
            .word("Linear", linear)
            .word("rows_generic", if placed { ", T" } else { "" })
            .word("width", if projected { "W" } else { "D" })
            .word("width_default", if projected { format!(", W = {narrow}") } else { String::new() })
            .word("types_generic", if typed { ", Y" } else { "" })
            .word(
                "types_default",
                if typed { format!(", Y = {}", config.size_or("type_vocab_size", 2)?) } else { String::new() },
            )
            .word("labels_default", if classifier { format!(", C = {labels}") } else { String::new() })
            .word("about", about)
            .word(
                "embedded",
                match norm_outside {
                    true => embedded.join(" + "),
                    false => format!("norm({})", embedded.join(" + ")),
                },
            )
            .word("embed_norm", self.at("embed_norm"))
            .word(
                "entered",
                match (norm_outside, projected) {
                    (true, _) => format!("embed_norm(embeddings(tokens{}))", if typed { ", types" } else { "" }),
                    (_, true) => format!("project(embeddings(tokens{}))", if typed { ", types" } else { "" }),
                    _ => format!("embeddings(tokens{})", if typed { ", types" } else { "" }),
                },
            )
            .word("project", self.at("project"))
            .word("attention", self.at("attention"))
            .word("query", self.at("query"))
            .word("key", self.at("key"))
            .word("value", self.at("value"))
            .word("output", self.at("output"))
            .word(
                "scores",
                match (rotary, biased) {
                    _ if distances.is_some() => "(q @ k.T + near(q, k, table, at)) / sqrt(3 * (D / H))",
                    (true, _) => "rotary(q) @ rotary(k).T / sqrt(D / H)",
                    (_, true) => "q @ k.T / sqrt(D / H) + bias",
                    _ => "q @ k.T / sqrt(D / H)",
                },
            )
            .word(
                "biased",
                match &distances {
                    Some(distances) => format!(", table: f32[{}, D], at: i32[S, S]", 2 * distances.span),
                    None if biased => ", bias: f32[H, S, S]".to_owned(),
                    None => String::new(),
                },
            )
            .word(
                "bias_passed",
                match distances {
                    Some(_) => ", table, at",
                    None if biased => ", bias",
                    None => "",
                },
            )
            .word("span", distances.as_ref().map_or(0, |distances| distances.span))
            .word("last", distances.as_ref().map_or(0, |distances| 2 * distances.span - 1))
            .word("rows", distances.as_ref().map_or(0, |distances| 2 * distances.span))
            .word("middle", distances.as_ref().map_or(0, |distances| distances.span / 2))
            .word("narrow_rows", number(distances.as_ref().map_or(0.0, |distances| (distances.span / 2 - 1) as f64)))
            .word("far", number(distances.as_ref().map_or(0.0, |distances| (distances.longest - 1) as f64)))
            .flag("distances", distances.is_some())
            .flag("wide_rows", distances.as_ref().is_some_and(|distances| distances.grows))
            .word("base", base)
            .word("even", if rotary { ", D / H % 2 == 0" } else { "" })
            .word("attention_norm", self.at("attention_norm"))
            .word("gate", self.at("gate"))
            .word("widen", self.at("widen"))
            .word("narrow", self.at("narrow"))
            .word("output_norm", self.at("output_norm"))
            .word("layers", self.at("layers"))
            .word("pooler", pooler)
            .word("transform", self.at("transform"))
            .word("transform_norm", self.at("transform_norm"))
            .word("transform_act", if self.masked_act.is_empty() { act } else { self.masked_act })
            .word("bias", self.at("bias"))
            .word("decoder", self.at("decoder"))
            .word("first", self.at("first"))
            .word("second", if two_steps { self.at("second") } else { "classifier" })
            .word("replaced", self.at("replaced"))
            .word("replaced_by", self.at("replaced_by"))
            .word("hidden_act", self.text_act)
            .word("act", act)
            .word("prefix", prefix)
            .word("pad", pad)
            .word("longest", longest)
            .word("inputs", format!("tokens: i32[B, S], mask: i32[B, S]{inputs}"))
            .word("token_inputs", format!("tokens: i32[B, S]{inputs}"))
            .word("passed", if typed { "tokens, mask, types" } else { "tokens, mask" })
            .word("about_types", if typed { ", `types` distinguishes two segments" } else { "" })
            .word(
                "embedded_width",
                pooling.map(|pooling| pooling.count).filter(|n| *n > 1).map_or("D".to_owned(), |n| format!("{n}*D")),
            )
            .word("no_types", if typed { ", all - 1" } else { "" })
            .word("pooling", pooling.map_or("", |pooling| &pooling.body))
            .flag("embeds", pooling.is_some())
            .flag("old_norms", old)
            .flag("typed", typed)
            .flag("norm_inside", !norm_outside)
            .flag("norm_outside", norm_outside)
            .flag("behind", behind)
            .flag("learned", self.positions == Positions::Learned)
            .flag("rows", placed)
            .flag("rotary", rotary)
            .flag("projected", projected)
            .flag("joined", self.modern)
            .flag("gated", self.modern)
            .flag("biased", biased)
            .flag("shared", self.shared)
            .flag("pooled", pooled)
            .flag("two_steps", two_steps)
            .flag("masked", head == "ForMaskedLM")
            .flag("finds_replaced", head == "ForPreTraining")
            .flag("classifier", classifier)
            .flag("of_text", of_text)
            .flag("of_tokens", of_tokens)
            .flag("tied", config.flag_or("tie_word_embeddings", true)?)
            .program())
    }
}
