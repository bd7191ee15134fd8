"""PyTorch modules that `attnc.from_torch` must write as programs: `MODULES` has each with example inputs."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, dim=24, hidden=40, activation=nn.GELU):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = activation()
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Attention(nn.Module):
    """F.scaled_dot_product_attention, with a mask that hides keys."""

    def __init__(self, dim=24, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, keep):
        b, s, d = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        return self.proj(mixed.transpose(1, 2).reshape(b, s, d))


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(24, 4, batch_first=True)

    def forward(self, query, memory):
        return self.attn(query, memory, memory, need_weights=False)[0]


class CausalSelfAttention(nn.Module):
    """As nanoGPT writes it."""

    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.n_head, self.n_embd = n_head, n_embd
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class Block(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head, block_size)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


class Gpt(nn.Module):
    def __init__(self, vocab_size=37, n_embd=24, n_head=4, block_size=16, n_layer=2):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(vocab_size, n_embd),
                wpe=nn.Embedding(block_size, n_embd),
                h=nn.ModuleList([Block(n_embd, n_head, block_size) for _ in range(n_layer)]),
                ln_f=nn.LayerNorm(n_embd),
            )
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx):
        pos = torch.arange(0, idx.size(1), dtype=torch.long)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        return self.lm_head(x)


class BertLayer(nn.Module):
    """The layer of the transformers library, with its additive mask."""

    def __init__(self, hidden_size=24, num_heads=4, intermediate_size=20):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.intermediate = nn.Linear(hidden_size, intermediate_size)
        self.output = nn.Linear(intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def heads(self, x):
        return x.view(x.size(0), x.size(1), self.num_heads, -1).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask):
        query = self.heads(self.query(hidden_states))
        key = self.heads(self.key(hidden_states))
        value = self.heads(self.value(hidden_states))
        mask = (1.0 - attention_mask[:, None, None, :]) * -10000.0
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.size(-1))
        probs = self.dropout(nn.functional.softmax(scores + mask, dim=-1))
        context = torch.matmul(probs, value).permute(0, 2, 1, 3).contiguous()
        context = context.view(context.size(0), context.size(1), -1)
        attended = self.attention_norm(self.dense(context) + hidden_states)
        return self.output_norm(self.output(F.gelu(self.intermediate(attended))) + attended)


class Vit(nn.Module):
    """Patches, a class token, learned positions, one block, and a classifier."""

    def __init__(self, dim=24, patch_size=5, image=20, classes=7):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch_size, stride=patch_size)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, (image // patch_size) ** 2 + 1, dim))
        self.block = nn.TransformerEncoderLayer(dim, 4, 40, activation="gelu", batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, image):
        x = self.patch_embed(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.pos_embed
        x = self.norm(self.block(x))
        return self.head(x[:, 0])


class Norms(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.rms = nn.RMSNorm(dim, eps=1e-6)
        self.plain = nn.LayerNorm(dim, elementwise_affine=False)

    def forward(self, x):
        return self.norm(x) + self.rms(x) * self.plain(x)


class Classifier(nn.Module):
    """Embedding and linear, and a mean over the words."""

    def __init__(self, vocab_size=29, dim=24, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.linear = nn.Linear(dim, classes)

    def forward(self, words):
        return self.linear(self.embed(words).mean(dim=1))


class SoftmaxRegression(nn.Module):
    def __init__(self, dim=24, classes=5):
        super().__init__()
        self.linear = nn.Linear(dim, classes)

    def forward(self, x):
        return F.log_softmax(self.linear(x), dim=-1), torch.argmax(self.linear(x), dim=-1)


class SwiGlu(nn.Module):
    def __init__(self, dim=24, hidden=20):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def repeat_kv(x, times):
    b, g, s, d = x.shape
    return x[:, :, None, :, :].expand(b, g, times, s, d).reshape(b, g * times, s, d)


class Grouped(nn.Module):
    """Llama's attention: grouped queries, rotary positions, causal."""

    def __init__(self, dim=24, n_heads=6, n_kv_heads=2):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def rotate(self, x):
        half = x.shape[-1] // 2
        rates = 10000.0 ** (-torch.arange(0, half) / half)
        angles = torch.arange(x.shape[-2])[:, None] * rates
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)

    def forward(self, x):
        b, s, _ = x.shape
        q = self.rotate(self.wq(x).view(b, s, self.n_heads, self.head_dim).transpose(1, 2))
        k = self.rotate(self.wk(x).view(b, s, self.n_kv_heads, self.head_dim).transpose(1, 2))
        v = self.wv(x).view(b, s, self.n_kv_heads, self.head_dim).transpose(1, 2)
        times = self.n_heads // self.n_kv_heads
        k, v = repeat_kv(k, times), repeat_kv(v, times)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(b, s, -1))


def floats(*shape):
    return torch.randn(*shape)


def tokens(most, *shape):
    return torch.randint(0, most, shape)


# Name: module, example inputs, and inputs of other lengths.
MODULES = {
    "mlp": (Mlp, (floats(2, 5, 24),), (floats(3, 7, 24),)),
    "silu_mlp": (lambda: nn.Sequential(nn.Linear(24, 20), nn.SiLU(), nn.Linear(20, 24)), (floats(5, 24),), (floats(2, 24),)),
    "attention": (Attention, (floats(2, 5, 24), torch.rand(2, 5) > -1), (floats(3, 7, 24), torch.arange(21).view(3, 7) % 7 != 5)),
    "multi_head": (MultiHead, (floats(2, 5, 24), floats(2, 6, 24)), (floats(3, 7, 24), floats(3, 4, 24))),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(24, 4, 20, batch_first=True), (floats(2, 5, 24),), (floats(3, 7, 24),)),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 4, 20, batch_first=True, norm_first=True), 2, enable_nested_tensor=False),
        (floats(2, 5, 24),),
        (floats(3, 7, 24),),
    ),
    "gpt": (Gpt, (tokens(37, 2, 5),), (tokens(37, 3, 7),)),
    "bert": (BertLayer, (floats(2, 5, 24), torch.ones(2, 5)), (floats(3, 7, 24), (torch.arange(21).view(3, 7) % 7 < 5).float())),
    "vit": (Vit, (floats(2, 3, 20, 20),), (floats(3, 3, 20, 20),)),
    "lstm_cell": (lambda: nn.LSTMCell(24, 20), (floats(2, 24), (floats(2, 20), floats(2, 20))), (floats(3, 24), (floats(3, 20), floats(3, 20)))),
    "norms": (Norms, (floats(2, 5, 24),), (floats(3, 7, 24),)),
    "classifier": (Classifier, (tokens(29, 2, 5),), (tokens(29, 3, 7),)),
    "softmax_regression": (SoftmaxRegression, (floats(4, 24),), (floats(7, 24),)),
    "swiglu": (SwiGlu, (floats(2, 5, 24),), (floats(3, 7, 24),)),
    "grouped": (Grouped, (floats(2, 5, 24),), (floats(3, 7, 24),)),
}  # fmt: skip
