//! The families of decoders, one row each: the names of its fields and tensors, and its parts.

/// Where a part depends on a field of the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) enum Switch {
    No,
    Yes,
    /// The field, and its default.
    Field(&'static str, bool),
}

/// The norm of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Norm {
    Rms,
    /// RMSNorm whose weight is stored minus 1.
    PlusOne,
    Layer,
    /// LayerNorm without a bias.
    Weight,
    /// LayerNorm without parameters.
    Bare,
}

/// Where the norms of a block are. The names of those before attention and feed-forward are
/// `input_norm` and `middle_norm`, and after them `attention_norm` and `output_norm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residual {
    /// Before attention and feed-forward.
    Before,
    /// Before and after.
    Around,
    /// After them only.
    After,
    /// Attention and feed-forward have the same input, and one norm.
    Parallel,
    /// The same with two norms.
    ParallelTwo,
}

/// The projections of queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Qkv {
    Apart,
    /// One matrix: all queries, all keys, all values.
    Joined,
    /// One matrix: for each head of keys its queries, the key, the value.
    Grouped,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadNorms {
    No,
    /// Of each head.
    Each,
    /// Of all heads together, before they are split.
    All,
}

/// The feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feed {
    Plain,
    Gated,
    /// Gate and values in one matrix.
    GatedJoined,
    /// Experts, each with a gate.
    Experts,
}

/// How a model knows the order of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Positions {
    Rotary,
    /// Rotary, of neighbouring elements.
    RotaryPairs,
    /// Learned, with this many unused rows first.
    Learned(i64),
    /// ALiBi, before or after the scores are scaled.
    Alibi {
        scaled: bool,
    },
}

/// A family.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecoderFamily {
    pub(super) family: &'static str,
    /// The beginning of the names of its classes, and their ends with and without a head.
    pub(super) class: &'static str,
    pub(super) ends: [&'static str; 2],
    pub(super) prefixes: &'static [&'static str],
    /// Fields with another name than Llama's, with spaces between: `llama=other`, of alternatives
    /// the first that is there (`llama=other/third`), `llama=` for none.
    pub(super) fields: &'static str,
    /// The same for tensors; one with `.` first is not in the feed-forward but beside it.
    pub(super) tensors: &'static str,
    /// Fields whose defaults are not what a reader would expect, so they must be there.
    pub(super) needed: &'static [&'static str],
    /// Fields that must have a truth value.
    pub(super) only: &'static [(&'static str, bool)],
    /// Fields that change nothing here.
    pub(super) unused: &'static [&'static str],
    pub(super) norm: Norm,
    pub(super) residual: Residual,
    pub(super) qkv: Qkv,
    pub(super) head_norms: HeadNorms,
    pub(super) feed: Feed,
    pub(super) positions: Positions,
    pub(super) qkv_bias: Switch,
    pub(super) out_bias: Switch,
    pub(super) feed_bias: Switch,
    pub(super) head_bias: bool,
    pub(super) tied: bool,
    pub(super) act: &'static str,
    pub(super) eps: f64,
    /// The default base of rotary positions, and the share of a head that they rotate.
    pub(super) theta: f64,
    pub(super) rotated: f64,
    pub(super) linear: &'static str,
}

const LLAMA: DecoderFamily = DecoderFamily {
    family: "llama",
    class: "Llama",
    ends: ["ForCausalLM", "Model"],
    prefixes: &["model.", ""],
    fields: "",
    tensors: "",
    needed: &[],
    only: &[],
    unused: &[],
    norm: Norm::Rms,
    residual: Residual::Before,
    qkv: Qkv::Apart,
    head_norms: HeadNorms::No,
    feed: Feed::Gated,
    positions: Positions::Rotary,
    qkv_bias: Switch::Field("attention_bias", false),
    out_bias: Switch::Field("attention_bias", false),
    feed_bias: Switch::Field("mlp_bias", false),
    head_bias: false,
    tied: false,
    act: "silu",
    eps: 1e-6,
    theta: 10_000.0,
    rotated: 1.0,
    linear: "Linear",
};

const GEMMA: DecoderFamily = DecoderFamily {
    family: "gemma",
    class: "Gemma",
    norm: Norm::PlusOne,
    tied: true,
    act: "gelu_pytorch_tanh",
    ..LLAMA
};

const QWEN_EXPERTS: DecoderFamily = DecoderFamily {
    needed: &["num_key_value_heads"],
    fields: "intermediate_size=moe_intermediate_size",
    unused: &["intermediate_size", "output_router_logits"],
    only: &[("use_sliding_window", false)],
    feed: Feed::Experts,
    feed_bias: Switch::No,
    ..LLAMA
};

/// With LayerNorm, and a feed-forward without a gate, everywhere with biases.
const PLAIN: DecoderFamily = DecoderFamily {
    norm: Norm::Layer,
    feed: Feed::Plain,
    qkv_bias: Switch::Yes,
    out_bias: Switch::Yes,
    feed_bias: Switch::Yes,
    act: "gelu_new",
    eps: 1e-5,
    ..LLAMA
};

/// The names of tensors that GPT-NeoX, BLOOM and Falcon share.
macro_rules! of_megatron {
    ($more:literal) => {
        concat!("qkv=query_key_value output=dense widen=dense_h_to_4h narrow=dense_4h_to_h ", $more)
    };
}

/// All of them, in the order of messages.
pub(super) const KINDS: [DecoderFamily; 26] = [
    DecoderFamily {
        family: "gpt2",
        class: "GPT2",
        ends: ["LMHeadModel", "Model"],
        prefixes: &["transformer.", ""],
        fields: "hidden_size=n_embd num_hidden_layers=n_layer num_attention_heads=n_head num_key_value_heads= head_dim= \
            intermediate_size=n_inner max_position_embeddings=n_positions rms_norm_eps=layer_norm_epsilon \
            hidden_act=activation_function",
        tensors: "embed=wte positions=wpe layers=h norm=ln_f input_norm=ln_1 attention=attn qkv=c_attn output=c_proj \
            middle_norm=ln_2 widen=c_fc narrow=c_proj",
        only: &[("scale_attn_by_inverse_layer_idx", false), ("add_cross_attention", false)],
        qkv: Qkv::Joined,
        positions: Positions::Learned(0),
        tied: true,
        linear: "Conv1D",
        ..PLAIN
    },
    LLAMA,
    DecoderFamily { family: "mistral", class: "Mistral", needed: &["sliding_window", "num_key_value_heads"], ..LLAMA },
    DecoderFamily {
        family: "qwen2",
        class: "Qwen2",
        needed: &["num_key_value_heads"],
        qkv_bias: Switch::Yes,
        out_bias: Switch::No,
        ..LLAMA
    },
    DecoderFamily {
        family: "qwen3",
        class: "Qwen3",
        needed: &["num_key_value_heads", "head_dim"],
        head_norms: HeadNorms::Each,
        ..LLAMA
    },
    GEMMA,
    DecoderFamily {
        family: "gemma2",
        class: "Gemma2",
        needed: &["attn_logit_softcapping", "final_logit_softcapping", "sliding_window", "query_pre_attn_scalar"],
        residual: Residual::Around,
        ..GEMMA
    },
    DecoderFamily {
        family: "gemma3_text",
        class: "Gemma3",
        ends: ["ForCausalLM", "TextModel"],
        residual: Residual::Around,
        head_norms: HeadNorms::Each,
        ..GEMMA
    },
    DecoderFamily {
        family: "phi3",
        class: "Phi3",
        needed: &["sliding_window"],
        unused: &["embd_pdrop", "original_max_position_embeddings"],
        tensors: "qkv=qkv_proj",
        qkv: Qkv::Joined,
        feed: Feed::GatedJoined,
        qkv_bias: Switch::No,
        out_bias: Switch::No,
        feed_bias: Switch::No,
        eps: 1e-5,
        ..LLAMA
    },
    DecoderFamily { family: "olmo", class: "Olmo", norm: Norm::Bare, eps: 1e-5, fields: "rms_norm_eps=", ..LLAMA },
    DecoderFamily {
        family: "olmo2",
        class: "Olmo2",
        residual: Residual::After,
        head_norms: HeadNorms::All,
        eps: 1e-5,
        ..LLAMA
    },
    DecoderFamily { family: "granite", class: "Granite", ..LLAMA },
    DecoderFamily {
        family: "cohere",
        class: "Cohere",
        fields: "rms_norm_eps=layer_norm_eps",
        norm: Norm::Weight,
        residual: Residual::Parallel,
        positions: Positions::RotaryPairs,
        tied: true,
        eps: 1e-5,
        theta: 500_000.0,
        ..LLAMA
    },
    DecoderFamily {
        family: "stablelm",
        class: "StableLm",
        fields: "rms_norm_eps=layer_norm_eps",
        needed: &["num_key_value_heads"],
        only: &[("qk_layernorm", false)],
        norm: Norm::Layer,
        qkv_bias: Switch::Field("use_qkv_bias", false),
        out_bias: Switch::No,
        feed_bias: Switch::No,
        eps: 1e-5,
        rotated: 0.25,
        ..LLAMA
    },
    DecoderFamily {
        family: "smollm3",
        class: "SmolLM3",
        only: &[("use_sliding_window", false)],
        tied: true,
        theta: 2_000_000.0,
        ..LLAMA
    },
    DecoderFamily {
        family: "starcoder2",
        class: "Starcoder2",
        fields: "rms_norm_eps=norm_epsilon",
        needed: &["num_key_value_heads", "sliding_window"],
        unused: &["residual_dropout", "embedding_dropout", "mlp_type", "norm_type"],
        tensors: "widen=c_fc narrow=c_proj",
        qkv_bias: Switch::Field("use_bias", true),
        out_bias: Switch::Field("use_bias", true),
        feed_bias: Switch::Field("use_bias", true),
        tied: true,
        act: "gelu_pytorch_tanh",
        ..PLAIN
    },
    DecoderFamily {
        family: "phi",
        class: "Phi",
        fields: "rms_norm_eps=layer_norm_eps",
        only: &[("qk_layernorm", false)],
        tensors: "norm=final_layernorm output=dense widen=fc1 narrow=fc2",
        residual: Residual::Parallel,
        head_bias: true,
        rotated: 0.5,
        ..PLAIN
    },
    DecoderFamily {
        family: "gpt_neox",
        class: "GPTNeoX",
        prefixes: &["gpt_neox.", ""],
        fields: "rms_norm_eps=layer_norm_eps num_key_value_heads= head_dim=",
        tensors: of_megatron!("embed=embed_in norm=final_layer_norm lm_head=embed_out attention=attention"),
        only: &[("is_decoder", false)],
        residual: Residual::ParallelTwo,
        qkv: Qkv::Grouped,
        qkv_bias: Switch::Field("attention_bias", true),
        out_bias: Switch::Field("attention_bias", true),
        act: "gelu",
        rotated: 0.25,
        ..PLAIN
    },
    DecoderFamily {
        family: "gptj",
        class: "GPTJ",
        prefixes: &["transformer.", ""],
        fields: "hidden_size=n_embd num_hidden_layers=n_layer num_attention_heads=n_head num_key_value_heads= head_dim= \
            intermediate_size=n_inner max_position_embeddings=n_positions rms_norm_eps=layer_norm_epsilon \
            hidden_act=activation_function",
        needed: &["rotary_dim"],
        only: &[("scale_attn_weights", true), ("rotary", true)],
        tensors: "embed=wte layers=h norm=ln_f input_norm=ln_1 attention=attn output=out_proj widen=fc_in narrow=fc_out",
        residual: Residual::Parallel,
        positions: Positions::RotaryPairs,
        qkv_bias: Switch::No,
        out_bias: Switch::No,
        head_bias: true,
        ..PLAIN
    },
    DecoderFamily {
        family: "gpt_neo",
        class: "GPTNeo",
        prefixes: &["transformer.", ""],
        fields: "num_hidden_layers=num_layers num_attention_heads=num_heads num_key_value_heads= head_dim= \
            rms_norm_eps=layer_norm_epsilon hidden_act=activation_function sliding_window=window_size",
        unused: &["resid_dropout", "embed_dropout", "attention_layers"],
        tensors: "embed=wte positions=wpe layers=h norm=ln_f input_norm=ln_1 attention=attn.attention output=out_proj \
            middle_norm=ln_2 widen=c_fc narrow=c_proj",
        positions: Positions::Learned(0),
        qkv_bias: Switch::No,
        tied: true,
        ..PLAIN
    },
    DecoderFamily {
        family: "opt",
        class: "OPT",
        prefixes: &["model.decoder.", "decoder.", ""],
        fields: "intermediate_size=ffn_dim hidden_act=activation_function num_key_value_heads= head_dim= rms_norm_eps=",
        unused: &["layerdrop"],
        only: &[
            ("do_layer_norm_before", true),
            ("enable_bias", true),
            ("layer_norm_elementwise_affine", true),
            ("_remove_final_layer_norm", false),
        ],
        tensors: "positions=embed_positions norm=final_layer_norm input_norm=self_attn_layer_norm output=out_proj \
            middle_norm=final_layer_norm widen=.fc1 narrow=.fc2",
        positions: Positions::Learned(2),
        tied: true,
        act: "relu",
        ..PLAIN
    },
    DecoderFamily {
        family: "bloom",
        class: "Bloom",
        prefixes: &["transformer.", ""],
        fields: "hidden_size=hidden_size/n_embed num_hidden_layers=n_layer/num_hidden_layers \
            num_attention_heads=n_head/num_attention_heads num_key_value_heads= head_dim= intermediate_size=n_inner \
            rms_norm_eps=layer_norm_epsilon hidden_act= max_position_embeddings=seq_length",
        unused: &[
            "slow_but_exact",
            "hidden_dropout",
            "attention_softmax_in_fp32",
            "masked_softmax_fusion",
            "bias_dropout_fusion",
            "skip_bias_add",
            "skip_bias_add_qkv",
            "offset_alibi",
            "unk_token_id",
        ],
        only: &[("apply_residual_connection_post_layernorm", false)],
        tensors: of_megatron!(
            "embed=word_embeddings embed_norm=word_embeddings_layernorm layers=h norm=ln_f attention=self_attention"
        ),
        qkv: Qkv::Grouped,
        positions: Positions::Alibi { scaled: true },
        tied: true,
        ..PLAIN
    },
    DecoderFamily {
        family: "falcon",
        class: "Falcon",
        prefixes: &["transformer.", ""],
        fields: "num_key_value_heads= head_dim= intermediate_size=ffn_hidden_size rms_norm_eps=layer_norm_epsilon hidden_act=activation",
        tensors: of_megatron!("embed=word_embeddings layers=h norm=ln_f attention=self_attention"),
        qkv: Qkv::Grouped,
        qkv_bias: Switch::Field("bias", false),
        out_bias: Switch::Field("bias", false),
        feed_bias: Switch::Field("bias", false),
        tied: true,
        act: "gelu",
        ..PLAIN
    },
    DecoderFamily {
        family: "mixtral",
        class: "Mixtral",
        needed: &["num_key_value_heads"],
        unused: &["router_jitter_noise", "output_router_logits"],
        tensors: "mlp=block_sparse_moe gate=w1 widen=w3 narrow=w2",
        feed: Feed::Experts,
        qkv_bias: Switch::No,
        out_bias: Switch::No,
        feed_bias: Switch::No,
        eps: 1e-5,
        theta: 1_000_000.0,
        ..LLAMA
    },
    DecoderFamily {
        family: "qwen2_moe",
        class: "Qwen2Moe",
        qkv_bias: Switch::Field("qkv_bias", true),
        out_bias: Switch::No,
        ..QWEN_EXPERTS
    },
    DecoderFamily { family: "qwen3_moe", class: "Qwen3Moe", head_norms: HeadNorms::Each, ..QWEN_EXPERTS },
];
