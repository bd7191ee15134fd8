//! The parts of a block of a decoder, as the program writes them.
//!
//! In: a row of the table ([`DecoderFamily`](super::kinds::DecoderFamily)) and what the
//! configuration says of it. Out: lines of fields and statements, for the template.

use super::kinds::{Feed, HeadNorms, Qkv, Residual};
use super::{Config, Decoder, Refusal};

/// Lines of a block of statements or fields, at this depth.
pub(super) fn lines(depth: usize, lines: &[String]) -> String {
    lines.join(&format!("\n{}", "    ".repeat(depth)))
}

/// The identifier of a field for a tensor or layer of this name, and its declaration.
pub(super) fn identifier(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn field(name: &str, of: &str) -> String {
    let own = identifier(name);
    if own == name { format!("{name}: {of}") } else { format!("#[name = \"{name}\"]\n    {own}: {of}") }
}

impl Residual {
    pub(super) fn doc(self) -> &'static str {
        match self {
            Residual::Before => "A pre-norm block",
            Residual::Around => "A block with a norm before and after both attention and feed-forward",
            Residual::After => "A block that normalises what attention and feed-forward give, not what they are given",
            Residual::Parallel => "A block whose attention and feed-forward have the same input",
            Residual::ParallelTwo => "A block whose attention and feed-forward have the same input, each with its norm",
        }
    }
}

/// A mixture of experts.
pub(super) struct Experts {
    pub(super) count: i64,
    /// How many of them a token is given to.
    pub(super) top: i64,
    /// The width of an expert for all tokens.
    pub(super) shared: Option<i64>,
    /// Do the weights of the chosen experts add up to 1?
    pub(super) shares: bool,
}

impl Experts {
    pub(super) fn from_config(config: &Config) -> Result<Experts, Refusal> {
        let count = config.size(if config.has("num_local_experts") { "num_local_experts" } else { "num_experts" })?;
        let top = config.size("num_experts_per_tok")?;
        if top > count {
            return Err(config.refuse("num_experts_per_tok", &format!("at most {count}, the number of experts")));
        }
        if config.size_or("decoder_sparse_step", 1)? != 1 {
            return Err(config.refuse("decoder_sparse_step", "1: experts in all layers"));
        }
        if config.numbers("mlp_only_layers")?.is_some_and(|layers| !layers.is_empty()) {
            return Err(config.refuse("mlp_only_layers", "an empty list: experts in all layers"));
        }
        let shared = match config.has("shared_expert_intermediate_size") {
            true => Some(config.size("shared_expert_intermediate_size")?),
            false => None,
        };
        Ok(Experts {
            count,
            top,
            shared,
            shares: config.text("model_type")? == "mixtral" || config.flag_or("norm_topk_prob", false)?,
        })
    }
}

/// The parts of a block, as the program writes them.
pub(super) struct BlockParts {
    pub(super) rotary: bool,
    pub(super) norm: String,
    pub(super) head_norm: String,
    pub(super) head_norms: HeadNorms,
    pub(super) all_norms: [String; 2],
    /// The bound of queries, keys and values.
    pub(super) clip: Option<String>,
    /// Arguments of the rotary layer.
    pub(super) turned: String,
    pub(super) qkv: &'static str,
    pub(super) out: &'static str,
    pub(super) feed: &'static str,
    pub(super) residual: Residual,
    /// The factor of what is added to the residual stream.
    pub(super) times: String,
    pub(super) act: &'static str,
    pub(super) grouped: bool,
    pub(super) room: String,
}

impl BlockParts {
    /// The fields of the attention layer.
    pub(super) fn attention(&self, of: &Decoder<'_>) -> Vec<String> {
        let BlockParts { qkv, out, head_norm, .. } = self;
        let mut fields = match of.kind.qkv {
            Qkv::Apart => vec![
                field("q_proj", &format!("{qkv}<D, H*E>")),
                field("k_proj", &format!("{qkv}<D, K*E>")),
                field("v_proj", &format!("{qkv}<D, K*E>")),
            ],
            Qkv::Joined | Qkv::Grouped => vec![field(of.at("qkv"), &format!("{qkv}<D, (H + 2*K)*E>"))],
        };
        fields.push(field(of.at("output"), &format!("{out}<H*E, D>")));
        match self.head_norms {
            HeadNorms::No => {}
            HeadNorms::Each => fields.extend(["q_norm", "k_norm"].map(|name| field(name, head_norm))),
            HeadNorms::All => {
                let [q, k] = &self.all_norms;
                fields.extend([field("q_norm", q), field("k_norm", k)]);
            }
        }
        fields
    }

    /// The statements that make queries, keys and values.
    pub(super) fn heads(&self, of: &Decoder<'_>) -> Vec<String> {
        let all = self.head_norms == HeadNorms::All;
        let clipped = |x: String| match &self.clip {
            Some(bound) => format!("minimum(maximum({x}, -{bound}), {bound})"),
            None => x,
        };
        let normed = |norm: &str, x: String| if all { format!("{norm}({x})") } else { x };
        let queries = |x: String| format!("let q = rearrange({x}, \".. s (k g e) -> .. k g s e\", k = K, e = E)");
        let rows = |name: &str, x: String| format!("let {name} = rearrange({x}, \".. s (k e) -> .. k s e\", k = K)");
        let mut lines = match of.kind.qkv {
            Qkv::Apart => vec![
                queries(normed("q_norm", clipped("q_proj(x)".to_owned()))),
                rows("k", normed("k_norm", clipped("k_proj(x)".to_owned()))),
                rows("v", clipped("v_proj(x)".to_owned())),
            ],
            Qkv::Joined => {
                let at = |begin: &str, end: &str| format!("all[.., {begin}..{end}]");
                vec![
                    format!("let all = {}(x)", of.at("qkv")),
                    queries(at("0", "H*E")),
                    rows("k", at("H*E", "(H + K)*E")),
                    rows("v", at("(H + K)*E", "(H + 2*K)*E")),
                ]
            }
            Qkv::Grouped => vec![
                "// For each head of keys: its queries, the key, the value.".to_owned(),
                format!("let all = rearrange({}(x), \".. s (k m e) -> .. k s e m\", k = K, e = E)", of.at("qkv")),
                "let q = rearrange(all[.., 0..H/K], \".. k s e g -> .. k g s e\")".to_owned(),
                "let (k, v) = (all[.., H/K], all[.., H/K + 1])".to_owned(),
            ],
        };
        let each = self.head_norms == HeadNorms::Each;
        let turned = |x: &str| {
            let x = if each { format!("{x}_norm({x})") } else { x.to_owned() };
            if self.rotary { format!("rotary({x}{}, begin = past)", self.turned) } else { x }
        };
        lines.push(format!("({}, {}, v)", turned("q"), turned("k")));
        lines
    }

    /// The fields and statements of the feed-forward.
    pub(super) fn feed(&self, of: &Decoder<'_>) -> (Vec<String>, Vec<String>) {
        let (linear, act) = (self.feed, self.act);
        let [gate, widen, narrow] = ["gate", "widen", "narrow"].map(|role| of.at(role));
        let up = |name: &str| field(name, &format!("{linear}<D, F>"));
        let down = field(narrow, &format!("{linear}<F, D>"));
        match of.kind.feed {
            Feed::Plain => (vec![up(widen), down], vec![format!("{narrow}({act}({widen}(x)))")]),
            Feed::Gated | Feed::Experts => {
                (vec![up(gate), up(widen), down], vec![format!("{narrow}({act}({gate}(x)) * {widen}(x))")])
            }
            Feed::GatedJoined => (
                vec![field("gate_up_proj", &format!("{linear}<D, 2*F>")), down],
                vec![
                    "let (gate, up) = split(gate_up_proj(x), axis = -1)".to_owned(),
                    format!("{narrow}({act}(gate) * up)"),
                ],
            ),
        }
    }

    /// The names of norms before attention, after it, before the feed-forward, and after it.
    pub(super) fn norms(&self, of: &Decoder<'_>) -> [Option<&'static str>; 4] {
        let at = |role| Some(of.at(role));
        match self.residual {
            Residual::Before => [at("input_norm"), None, at("middle_norm"), None],
            Residual::Around => [at("input_norm"), at("attention_norm"), at("middle_norm"), at("output_norm")],
            Residual::After => [None, at("attention_norm"), None, at("output_norm")],
            Residual::Parallel => [at("input_norm"), None, at("input_norm"), None],
            Residual::ParallelTwo if of.kind.family == "falcon" => [Some("ln_attn"), None, Some("ln_mlp"), None],
            Residual::ParallelTwo => [at("input_norm"), None, at("middle_norm"), None],
        }
    }

    /// The fields of a block.
    pub(super) fn block_fields(&self, of: &Decoder<'_>) -> Vec<String> {
        let [input, after, middle, output] = self.norms(of);
        let norm = |name: Option<&str>| name.map(|name| field(name, &self.norm));
        let attention = field(of.at("attention"), &format!("Attention<D, H, K, E{}>", self.room));
        let middle = middle.filter(|_| self.residual != Residual::Parallel);
        let mut fields: Vec<String> = norm(input).into_iter().collect();
        fields.push(attention);
        fields.extend([after, middle, output].into_iter().filter_map(norm));
        match of.inline() {
            true => fields.extend(self.feed(of).0),
            false if of.kind.feed == Feed::Experts => fields.push(field(of.at("mlp"), "Experts<D, F, X>")),
            false => fields.push(field(of.at("mlp"), "Mlp<D, F>")),
        }
        fields
    }

    /// The input of attention.
    pub(super) fn entering(&self, of: &Decoder<'_>) -> String {
        let [input, ..] = self.norms(of);
        input.map_or("x".to_owned(), |norm| format!("{norm}(x)"))
    }

    /// The statements of a block; `attend` is attention to something.
    pub(super) fn block(&self, of: &Decoder<'_>, attend: &dyn Fn(&str) -> String) -> Vec<String> {
        let [_, after, middle, output] = self.norms(of);
        let apply = |norm: Option<&str>, x: String| norm.map_or(x.clone(), |norm| format!("{norm}({x})"));
        let times = &self.times;
        let seen = apply(after, attend(&self.entering(of)));
        let fed = apply(output, format!("{}({})", identifier(of.at("mlp")), apply(middle, "x".to_owned())));
        match self.residual {
            Residual::Parallel | Residual::ParallelTwo => vec![format!("x + {seen}{times} + {fed}{times}")],
            _ => vec![format!("let x = x + {seen}{times}"), format!("x + {fed}{times}")],
        }
    }
}
