//! BART and its relatives, Marian, mBART, Pegasus and M2M-100: encoder and decoder. With a head,
//! the decoder has a cache and generates text.
//!
//! They share their layers and the names of their tensors, and differ in the placement of norms, in
//! positions, and in how the input text ends ([`Member`]).

use super::{Config, Names, Refusal, Template, activation};

/// Differences between members of the family.
struct Member {
    family: &'static str,
    /// Prefix of the class names, and name of the model in the program.
    class: &'static str,
    /// Suffix of the class with a head.
    head: &'static str,
    /// Norms come before attention and feed-forward, with one more after all blocks.
    pre_norm: bool,
    /// There is a norm after the embeddings.
    embed_norm: bool,
    positions: Positions,
    /// The tokens that end a text are added by the tokenizer, because they depend on the language.
    /// Otherwise, it is a single token.
    ended: bool,
    /// The function of the feed-forward, and the token that pads, unless a field says.
    act: &'static str,
    pad: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Positions {
    Learned,
    /// Sines and cosines.
    Sines,
    /// The same, up to the last frequency, and from position 2 on.
    SinesFromTwo,
}

const BART: Member = Member {
    family: "bart",
    class: "Bart",
    head: "ForConditionalGeneration",
    pre_norm: false,
    embed_norm: true,
    positions: Positions::Learned,
    ended: false,
    act: "gelu",
    pad: 1,
};

const MEMBERS: [Member; 5] = [
    BART,
    Member {
        family: "marian",
        class: "Marian",
        head: "MTModel",
        embed_norm: false,
        positions: Positions::Sines,
        ..BART
    },
    Member { family: "mbart", class: "MBart", pre_norm: true, ended: true, ..BART },
    Member {
        family: "pegasus",
        class: "Pegasus",
        pre_norm: true,
        embed_norm: false,
        positions: Positions::Sines,
        pad: 0,
        ..BART
    },
    Member {
        family: "m2m_100",
        class: "M2M100",
        pre_norm: true,
        embed_norm: false,
        positions: Positions::SinesFromTwo,
        ended: true,
        act: "relu",
        ..BART
    },
];

pub(super) fn program(config: &Config, names: &Names) -> Result<String, Refusal> {
    let family = config.text("model_type")?;
    let member = MEMBERS.iter().find(|member| member.family == family).unwrap_or(&BART);
    // Fields that only say what the family is.
    config.only("normalize_before", member.pre_norm)?;
    config.only("add_final_layer_norm", member.pre_norm)?;
    config.only("normalize_embedding", member.embed_norm)?;
    let sines = member.positions != Positions::Learned;
    if family != "bart" {
        config.only("static_position_embeddings", sines)?;
    }
    if sines && (config.size("d_model")? % 2 != 0 || config.size("d_model")? < 4) {
        return Err(config.refuse("d_model", "an even size from 4 on"));
    }
    if family != "marian" {
        return made(config, names, member, None);
    }
    let vocabulary = config.size("vocab_size")?;
    let written = config.size_or("decoder_vocab_size", vocabulary)?;
    let shared = config.flag_or("share_encoder_decoder_embeddings", true)?;
    if shared && written != vocabulary {
        return Err(config.refuse("decoder_vocab_size", &format!("vocab_size, {vocabulary}, as embeddings are shared")));
    }
    made(config, names, member, (!shared).then_some(written))
}

/// Makes the program. `written` is the size of the output vocabulary, if that has embeddings of its
/// own.
fn made(config: &Config, names: &Names, member: &Member, written: Option<i64>) -> Result<String, Refusal> {
    let head = config.architecture(member.class, &[member.head, "Model"])? == member.head;
    let (d, layers) = (config.size("d_model")?, config.size("encoder_layers")?);
    let heads = |name: &str| {
        let h = config.size(name)?;
        if d % h == 0 { Ok(h) } else { Err(config.refuse(name, &format!("a divisor of d_model, {d}"))) }
    };
    // Must equal the number of encoder layers.
    config.size_or("num_hidden_layers", layers)?;
    let pad = config.token("pad_token_id")?.unwrap_or(member.pad);
    let vocabulary = config.size("vocab_size")?;
    let separate = written.is_some();
    let embeddings = if separate { "encoder.embed_tokens.weight" } else { "shared.weight" };
    let read = ("vocab_size", vocabulary);
    let written = written.map_or(read, |size| ("decoder_vocab_size", size));
    let edge = |name: &str, default: i64, (field, size): (&str, i64)| {
        let token = config.token(name)?.unwrap_or(default);
        let wanted = || config.refuse(name, &format!("a token below {field}, {size}"));
        if token < size { Ok(token) } else { Err(wanted()) }
    };
    // The default of `transformers` is `bos_token_id`.
    let usual = if member.ended { config.token("bos_token_id")?.unwrap_or(0) } else { pad };
    let start = edge("decoder_start_token_id", usual, written)?;
    // The same token ends input and output.
    edge("eos_token_id", 2, read)?;
    let end = edge("eos_token_id", 2, written)?;
    // The first output token may be forced; older files only say whether it is `bos_token_id`.
    let is_forced = config.flag_or("force_bos_token_to_be_generated", false)?;
    let forced = match config.token("forced_bos_token_id")? {
        None => is_forced.then_some("bos_token_id"),
        Some(_) => Some("forced_bos_token_id"),
    };
    let (first, begins) = match forced {
        None => (format!("full({start}, [1])"), format!("token {start}")),
        Some(name) => {
            let next = edge(name, 0, written)?;
            (format!("concat(full({start}, [1]), full({next}, [1]))"), format!("tokens {start} and {next}"))
        }
    };
    let ends = match member.ended {
        true => " with the tokens that its tokenizer puts around it".to_owned(),
        false => format!(", behind which comes token {end}"),
    };
    // The end token is always permitted.
    let banned = config.banned(Some(end))?;
    let tied = config.flag_or("tie_word_embeddings", true)?;
    let longest = config.size("max_position_embeddings")?;
    let of_head = |text: &'static str| if head { text } else { "" };
    let sines = member.positions != Positions::Learned;
    let from_two = member.positions == Positions::SinesFromTwo;
    Ok(Template::new(include_str!("bart.attn"))
        .word("Name", member.class)
        .word("L", layers)
        .word("M", config.size("decoder_layers")?)
        .word("D", d)
        .word("H", heads("encoder_attention_heads")?)
        .word("J", heads("decoder_attention_heads")?)
        .word("F", config.size("encoder_ffn_dim")?)
        .word("G", config.size("decoder_ffn_dim")?)
        .word("V", written.1)
        .word("T", longest)
        .word("longest", longest)
        .word("norm", if member.pre_norm { "pre" } else { "post" })
        .word("y", if member.pre_norm { "y" } else { "x" })
        .word("Positions", if sines { "Positions<D>" } else { "Positions<D, T>" })
        .word("rate", if from_two { "(-1.0 / (D / 2 - 1))" } else { "(-2.0 / D)" })
        .word("offset", if from_two { " + 2" } else { "" })
        .word("numbered", if from_two { ", which has number 2" } else { "" })
        .word("some", if from_two { ", D >= 4" } else { "" })
        .word("even", if sines { ", D % 2 == 0" } else { "" })
        .word("act", activation(config, "activation_function", member.act)?)
        .word("embed_scale", if config.flag_or("scale_embedding", false)? { " * sqrt(D)" } else { "" })
        .word("prefix", names.prefix(&["model.", ""], embeddings)?)
        .word("source", if separate { "source" } else { "shared" })
        .word("target", if separate { "target" } else { "shared" })
        .word("vocabulary", if separate { format!(", U = {vocabulary}") } else { String::new() })
        .word("kept_default", of_head(", Kept = f32"))
        .word("kept", of_head(", Kept"))
        .word("rooms", of_head(", T, Kept = f32"))
        .word("room", of_head(", T, Kept"))
        .word("first", first)
        .word("begins", begins)
        .word("end", end)
        .word("ends", ends)
        .word("banned", &banned)
        .word("out", if head { "V" } else { "D" })
        .word("what", if head { "the logits of the next token at each position" } else { "the last hidden states" })
        .flag("head", head)
        .flag("separate", separate)
        .flag("pre_norm", member.pre_norm)
        .flag("final_norm", member.pre_norm)
        .flag("embed_norm", member.embed_norm)
        .flag("sines", sines)
        .flag("ended", member.ended)
        .flag("banned", !banned.is_empty())
        .flag("logits_bias", head && names.has("final_logits_bias"))
        .flag("own_head", head && !tied)
        .program())
}
