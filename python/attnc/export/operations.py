"""Operations of PyTorch as expressions of the language.

In: a node of the graph and the body that is being written (`layers.Body`), which has the texts of its operands. Out: a text and
its precedence. `TABLE` has one row for each operation; others are refused by name.
"""

import math
import operator

import torch

from .dims import sympy_of
from .trace import Unsupported

OR, AND, NOT, COMPARE, ADD, MULTIPLY, UNARY, POSTFIX = range(1, 9)
TYPES = {
    torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int8: "i8", torch.int32: "i32", torch.int64: "i64",
    torch.bool: "bool",
}  # fmt: skip
TABLE = {}


def type_name(tensor):
    name = TYPES.get(tensor.dtype)
    if name is None:
        raise Unsupported("the element type %s is not in the language" % str(tensor.dtype).replace("torch.", ""))
    return name


def of(*names):
    """Puts a function into the table."""

    def put(function):
        for name in names:
            TABLE[name] = function
        return function

    return put


def write(body, node):
    """The text of an operation, and its precedence."""
    target = node.target
    if target is operator.getitem:
        raise Unsupported("`%s` of a result that is not a list" % node.name)
    name = target.name().split("::")[1]
    function = TABLE.get(name) or TABLE.get(name.split(".")[0])
    if function is None:
        raise Unsupported("the operation `%s` is not in the language" % str(target))
    return function(body, node, *node.args, **{k: v for k, v in node.kwargs.items() if k not in ("layout", "device", "pin_memory", "memory_format")})


def shape(node):
    return list(node.meta["val"].shape)


def is_tensor(value):
    return isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)


def axis_of(axis, rank):
    """The last axis is -1, which is the default of most functions."""
    return -1 if axis % rank == rank - 1 else axis % rank


# ---- element by element


def _operand(body, value, least, dtype):
    """An operand, converted to the type of the operation as PyTorch does it by itself."""
    if is_tensor(value) and value.meta["val"].dtype != dtype:
        return "cast<%s>(%s)" % (TYPES[dtype], body.text(value, OR))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not dtype.is_floating_point and value != int(value):
        raise Unsupported("a fraction, %s, in an operation of integers" % value)
    if dtype.is_floating_point and isinstance(value, torch.fx.Node) and not is_tensor(value):
        return body.text(value, least, scalar=TYPES[dtype])
    return body.text(value, least)


def _binary(sign, precedence):
    def write(body, node, a, b, alpha=1, **_):
        dtype = node.meta["val"].dtype
        type_name(node.meta["val"])
        right = _operand(body, b, precedence + 1, dtype)
        if alpha != 1:
            right = "%s * %s" % (_operand(body, b, MULTIPLY + 1, dtype), body.text(alpha, MULTIPLY))
        return "%s %s %s" % (_operand(body, a, precedence, dtype), sign, right), precedence

    return write


of("add")(_binary("+", ADD))
of("sub")(_binary("-", ADD))


@of("rsub")
def _(body, node, a, b, alpha=1):
    return _binary("-", ADD)(body, node, b, a)


def _scale(body, node, a, b, multiplied):
    """`x / sqrt(D / H)`, where a number is that of the axis that a matmul sums over."""
    if not (is_tensor(a) and isinstance(b, float) and b > 0):
        return None
    source = a
    axis = shape(source.args[0])[-1] if _name(source) in ("matmul", "bmm") else shape(source)[-1] if shape(source) else 1
    number = sympy_of(axis)
    if not number.is_Integer or number < 4:
        return None
    for power, divide in ((0.5, not multiplied), (-0.5, multiplied)):
        if divide and math.isclose(b, float(number) ** power, rel_tol=1e-9):
            return "%s / sqrt(%s)" % (body.text(a, MULTIPLY), body.dims.text(axis)), MULTIPLY
    return None


def _name(node):
    name = getattr(node.target, "name", None)
    return name().split("::")[1].split(".")[0] if callable(name) else ""


@of("mul")
def _(body, node, a, b):
    return _scale(body, node, a, b, True) or _binary("*", MULTIPLY)(body, node, a, b)


@of("div")
def _(body, node, a, b, rounding_mode=None):
    if rounding_mode is not None and not (rounding_mode == "floor" and not node.meta["val"].dtype.is_floating_point):
        if rounding_mode == "floor":
            return "floor(%s)" % _binary("/", MULTIPLY)(body, node, a, b)[0], POSTFIX
        raise Unsupported("a division that rounds towards zero is not in the language")
    return _scale(body, node, a, b, False) or _binary("/", MULTIPLY)(body, node, a, b)


of("remainder")(_binary("%", MULTIPLY))


def _compare(sign):
    def write(body, node, a, b):
        kinds = [one.meta["val"].dtype for one in (a, b) if is_tensor(one)]
        dtype = kinds[0] if len(kinds) == 1 else torch.promote_types(*kinds)
        if dtype == torch.bool and not is_tensor(b) and sign in ("==", "!="):
            yes = (sign == "==") == bool(b)
            return (body.text(a, OR), OR) if yes else ("not " + body.text(a, NOT), NOT)
        if len(kinds) == 1 and not dtype.is_floating_point and isinstance(b, float) and b != int(b):
            dtype = torch.float32
        b = int(b) if isinstance(b, float) and not dtype.is_floating_point else b
        return "%s %s %s" % (_operand(body, a, COMPARE + 1, dtype), sign, _operand(body, b, COMPARE + 1, dtype)), COMPARE

    return write


for _aten, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    of(_aten)(_compare(_sign))


def _logic(word, precedence):
    def write(body, node, a, b):
        if node.meta["val"].dtype != torch.bool:
            return "%s(%s, %s)" % ("bitwise_" + word, body.text(a, OR), body.text(b, OR)), POSTFIX
        sides = [_operand(body, one, precedence, torch.bool) for one in (a, b)]
        return (" %s " % word).join(sides), precedence

    return write


of("logical_and", "bitwise_and")(_logic("and", AND))
of("logical_or", "bitwise_or")(_logic("or", OR))


@of("logical_not", "bitwise_not")
def _(body, node, a):
    if a.meta["val"].dtype != torch.bool:
        raise Unsupported("`~` of integers is not in the language")
    return "not " + body.text(a, NOT), NOT


def _function(name):
    def write(body, node, a, *_, **__):
        return "%s(%s)" % (name, _operand(body, a, OR, node.meta["val"].dtype)), POSTFIX

    return write


for _aten in ("abs exp expm1 log log1p sqrt rsqrt sin cos tanh erf sigmoid relu silu floor ceil trunc round").split():
    of(_aten)(_function(_aten))
for _aten in ("isnan", "isinf"):
    of(_aten)(lambda body, node, a, _word=_aten: ("%s(%s)" % (_word, body.text(a, OR)), POSTFIX))


@of("sign")
def _(body, node, a):
    return "sign(%s)" % body.text(a, OR), POSTFIX


@of("neg")
def _(body, node, a):
    return "-" + body.text(a, UNARY), UNARY


@of("reciprocal")
def _(body, node, a):
    return "1 / " + body.text(a, UNARY), MULTIPLY


@of("gelu")
def _(body, node, a, approximate="none"):
    return "%s(%s)" % ("gelu_tanh" if approximate == "tanh" else "gelu", body.text(a, OR)), POSTFIX


@of("softplus")
def _(body, node, a, beta=1, threshold=20):
    if beta != 1:
        raise Unsupported("softplus with beta = %s is not in the language" % beta)
    return "softplus(%s)" % body.text(a, OR), POSTFIX


@of("pow")
def _(body, node, a, b):
    if isinstance(b, (int, float)) and b == 2 and body.is_name(a):
        return "%s * %s" % (body.text(a, MULTIPLY), body.text(a, MULTIPLY)), MULTIPLY
    dtype = node.meta["val"].dtype
    return "pow(%s, %s)" % (_operand(body, a, OR, dtype), _operand(body, float(b) if isinstance(b, int) and dtype.is_floating_point else b, OR, dtype)), POSTFIX


@of("maximum", "minimum")
def _(body, node, a, b):
    dtype = node.meta["val"].dtype
    return "%s(%s, %s)" % (_name(node), _operand(body, a, OR, dtype), _operand(body, b, OR, dtype)), POSTFIX


@of("clamp", "clamp_min", "clamp_max")
def _(body, node, a, low=None, high=None, **given):
    low, high = given.get("min", low), given.get("max", high)
    if _name(node) == "clamp_max":
        low, high = None, low
    text = body.text(a, OR)
    text = text if low is None else "maximum(%s, %s)" % (text, body.text(low, OR))
    return (text if high is None else "minimum(%s, %s)" % (text, body.text(high, OR))), POSTFIX


@of("where")
def _(body, node, condition, a, b):
    dtype = node.meta["val"].dtype
    return "where(%s, %s, %s)" % (body.text(condition, OR), _operand(body, a, OR, dtype), _operand(body, b, OR, dtype)), POSTFIX


@of("masked_fill")
def _(body, node, a, mask, value):
    if is_tensor(mask) and _name(mask) in ("logical_not", "bitwise_not", "eq") and body.negated(mask) is not None:
        return "where(%s, %s, %s)" % (body.negated(mask), body.text(a, OR), body.text(value, OR)), POSTFIX
    return "where(%s, %s, %s)" % (body.text(mask, OR), body.text(value, OR), body.text(a, OR)), POSTFIX


@of("to", "_to_copy", "type_as", "to.dtype")
def _(body, node, a, *_, **__):
    if a.meta["val"].dtype == node.meta["val"].dtype:
        return body.text(a, OR), body.precedence(a)
    return "cast<%s>(%s)" % (type_name(node.meta["val"]), body.text(a, OR)), POSTFIX


@of("clone", "contiguous", "alias", "detach", "lift_fresh_copy", "lift_fresh", "dropout", "native_dropout", "positive")
def _(body, node, a, *_, **__):
    return body.text(a, OR), body.precedence(a)


# ---- reductions


def _axes(axes, rank):
    axes = [axes] if isinstance(axes, int) else list(axes if axes is not None else [])
    if not axes or len(axes) == rank:
        axes = list(range(rank))
    axes = [axis_of(axis, rank) for axis in axes]
    return str(axes[0]) if len(axes) == 1 else "[%s]" % ", ".join(map(str, axes))


def _reduction(name):
    def write(body, node, a, axes=None, keep=False, dtype=None, **given):
        keep, axes = given.get("keepdim", keep), given.get("dim", axes)
        text = _operand(body, a, OR, node.meta["val"].dtype) if name in ("sum", "mean") else body.text(a, OR)
        text += ", axis = %s" % _axes(axes, len(shape(a)))
        return "%s(%s%s)" % (name, text, ", keep = true" if keep else ""), POSTFIX

    return write


for _aten, _word in {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "argmax": "argmax", "argmin": "argmin", "any": "any", "all": "all"}.items():
    of(_aten)(_reduction(_word))


@of("argmax", "argmin")
def _(body, node, a, axis=None, keep=False):
    if axis is None:
        raise Unsupported("`%s` over all axes: give it an axis" % node.target)
    text = _reduction(_name(node))(body, node, a, axis, keep)[0]
    return "cast<i64>(%s)" % text, POSTFIX


@of("var")
def _(body, node, a, axes=None, *_, correction=1, keepdim=False, **__):
    x = body.named(a, "x")
    axis = _axes(axes, len(shape(a)))
    centred = body.let("centred", "%s - mean(%s, axis = %s, keep = true)" % (x, x, axis))
    number = axis.strip("[]").split(", ")
    if correction:
        if len(number) != 1:
            raise Unsupported("a variance over several axes with a correction")
        length = body.dims.text(shape(a)[int(number[0])])
        return "sum(%s * %s, axis = %s%s) / (%s - %s)" % (centred, centred, axis, ", keep = true" if keepdim else "", length, body.text(correction, ADD + 1)), MULTIPLY
    return "mean(%s * %s, axis = %s%s)" % (centred, centred, axis, ", keep = true" if keepdim else ""), POSTFIX


@of("softmax", "_softmax", "log_softmax", "_log_softmax")
def _(body, node, a, axis, *_, **__):
    axis = axis_of(axis, len(shape(a)))
    text = _operand(body, a, OR, node.meta["val"].dtype)
    return "%s(%s%s)" % (_name(node).lstrip("_"), text, "" if axis == -1 else ", axis = %d" % axis), POSTFIX


@of("cumsum")
def _(body, node, a, axis, **_):
    return "cumsum(%s, axis = %d)" % (_operand(body, a, OR, node.meta["val"].dtype), axis_of(axis, len(shape(a)))), POSTFIX


@of("layer_norm")
def _(body, node, a, axes, weight=None, bias=None, eps=1e-5, *_):
    if len(axes) != 1:
        raise Unsupported("a layer norm over %d axes" % len(axes))
    x = body.named(a, "x")
    centred = body.let("centred", "%s - mean(%s, axis = -1, keep = true)" % (x, x))
    variance = "mean(%s * %s, axis = -1, keep = true)" % (centred, centred)
    text = "%s * rsqrt(%s + %s)" % (centred, variance, body.text(eps, ADD))
    text += "" if weight is None else " * " + body.text(weight, MULTIPLY + 1)
    return (text, MULTIPLY) if bias is None else ("%s + %s" % (text, body.text(bias, ADD + 1)), ADD)


@of("rms_norm")
def _(body, node, a, axes, weight=None, eps=None):
    if len(axes) != 1:
        raise Unsupported("an RMS norm over %d axes" % len(axes))
    x = body.named(a, "x")
    eps = torch.finfo(a.meta["val"].dtype).eps if eps is None else eps
    text = "%s * rsqrt(mean(%s * %s, axis = -1, keep = true) + %s)" % (x, x, x, body.text(eps, ADD))
    return text + ("" if weight is None else " * " + body.text(weight, MULTIPLY + 1)), MULTIPLY


# ---- products


@of("matmul", "mm", "bmm")
def _(body, node, a, b):
    return "%s @ %s" % (body.text(a, MULTIPLY), body.text(b, MULTIPLY + 1)), MULTIPLY


@of("linear")
def _(body, node, x, weight, bias=None):
    text = "%s @ %s.T" % (body.text(x, MULTIPLY), body.text(weight, POSTFIX))
    return (text, MULTIPLY) if bias is None else ("%s + %s" % (text, body.text(bias, ADD + 1)), ADD)


@of("addmm", "baddbmm")
def _(body, node, bias, a, b, beta=1, alpha=1):
    if (beta, alpha) != (1, 1):
        raise Unsupported("`%s` with factors" % node.target)
    return "%s @ %s + %s" % (body.text(a, MULTIPLY), body.text(b, MULTIPLY + 1), body.text(bias, ADD + 1)), ADD


@of("scaled_dot_product_attention")
def _(body, node, q, k, v, mask=None, dropout=0.0, causal=False, scale=None, enable_gqa=False):
    if dropout:
        raise Unsupported("attention with dropout")
    q_text, k_text, v_text = body.named(q, "q"), body.named(k, "k"), body.named(v, "v")
    grouped = enable_gqa and shape(q)[-3] != shape(k)[-3]
    if grouped:
        heads, groups = sympy_of(shape(q)[-3]), sympy_of(shape(k)[-3])
        names = "".join("bcxyz"[i] + " " for i in range(len(shape(q)) - 3))
        q_text = 'rearrange(%s, "%s(g r) s d -> %sg r s d", g = %s)' % (q_text, names, names, body.dims.text(groups))
        q_text = body.let("grouped", q_text)
        k_text, v_text = ('rearrange(%s, "%sg t d -> %sg 1 t d")' % (one, names, names) for one in (k_text, v_text))
        del heads
    width = shape(q)[-1]
    by = "/ sqrt(%s)" % body.dims.text(width) if scale is None else "* " + body.text(scale, MULTIPLY + 1)
    scores = "%s @ %s.T %s" % (q_text, k_text, by)
    if causal:
        s, t = shape(q)[-2], shape(k)[-2]
        if s != t:
            raise Unsupported("causal attention of %s queries to %s keys, which PyTorch aligns at the first of them" % (s, t))
        scores = "where(causal(%s, %s), %s, -inf)" % (body.dims.text(s), body.dims.text(t), body.let("scores", scores))
    elif mask is not None:
        text = body.text(mask, ADD + 1)
        if grouped and len(shape(mask)) > 2:
            raise Unsupported("grouped attention with a mask of %d axes" % len(shape(mask)))
        if mask.meta["val"].dtype == torch.bool:
            scores = "where(%s, %s, -inf)" % (body.text(mask, OR), body.let("scores", scores))
        else:
            scores = "%s + %s" % (scores, text)
    weights = body.let("weights", "softmax(%s)" % scores)
    text = "%s @ %s" % (weights, v_text)
    if grouped:
        return 'rearrange(%s, "%sg r s d -> %s(g r) s d")' % (text, names, names), POSTFIX
    return text, MULTIPLY


# ---- reading and putting together


@of("embedding")
def _(body, node, weight, tokens, *_, **__):
    return "%s[%s]" % (body.text(weight, POSTFIX), body.text(tokens, OR)), POSTFIX


@of("index")
def _(body, node, a, indices):
    indices = list(indices)
    given = [i for i, one in enumerate(indices) if one is not None]
    if len(given) != 1 or indices[given[0]].meta["val"].dtype == torch.bool:
        raise Unsupported("an index of %d tensors: one, of integers, is in the language" % len(given))
    return _indexed(body, a, given[0], body.text(indices[given[0]], OR))


@of("index_select")
def _(body, node, a, axis, index):
    return _indexed(body, a, axis % len(shape(a)), body.text(index, OR))


@of("gather")
def _(body, node, a, axis, index, **_):
    return "take_along(%s, %s, axis = %d)" % (body.text(a, OR), body.text(index, OR), axis_of(axis, len(shape(a)))), POSTFIX


def _indexed(body, a, axis, text):
    return indexed(body.text(a, POSTFIX), len(shape(a)), axis, text)


def indexed(base, rank, axis, text):
    """`base[.., text]`: one `..` stands for all axes before, or each has an entry."""
    axis = axis % rank
    if axis == 0 or axis == rank - 1:
        return "%s[%s%s]" % (base, ".., " if axis else "", text), POSTFIX
    return "%s[%s]" % (base, ", ".join(text if i == axis else ".." for i in range(rank))), POSTFIX


@of("select")
def _(body, node, a, axis, index):
    length, axis = shape(a)[axis], axis % len(shape(a))
    if isinstance(index, int) and index < 0:
        text = "%s - %d" % (body.dims.text(length), -index) if not isinstance(length, int) else str(length + index)
    else:
        text = body.text(index, OR)
    return _indexed(body, a, axis, text)


@of("slice")
def _(body, node, a, axis=0, start=None, end=None, step=1):
    axis = axis % len(shape(a))
    length, made = sympy_of(shape(a)[axis]), sympy_of(shape(node)[axis])
    if step != 1:
        raise Unsupported("a slice with a step of %s" % step)
    if length == made:
        return body.text(a, OR), body.precedence(a)
    start = body.size(start or 0)
    start = length + start if start.is_Integer and start < 0 else start
    low = "" if start == 0 else body.dims.text(start, spaced=False)
    high = body.dims.text(start + made, spaced=False) if start + made != length else ""
    entry = "%s..%s" % (low or "0" if high else low, high)
    # Slices of several axes, one after another, are one index.
    base, entries = body.slices.get(a, (None, None)) if body.uses.get(a) == 1 and not body.is_name(a) else (None, None)
    if base is None:
        base, entries = body.text(a, POSTFIX), [".."] * len(shape(a))
    entries = entries[:axis] + [entry] + entries[axis + 1 :]
    body.slices[node] = base, entries
    sliced = [i for i, one in enumerate(entries) if one != ".."]
    if len(sliced) == 1:
        return indexed(base, len(entries), axis, entry)
    first = sliced[0]
    shown = entries[: sliced[-1] + 1] if first == 0 else entries
    shown = [".."] + entries[first:] if sliced == list(range(first, len(entries))) and first > 0 else shown
    return "%s[%s]" % (base, ", ".join(shown)), POSTFIX


@of("cat")
def _(body, node, parts, axis=0):
    dtype = node.meta["val"].dtype
    return "concat(%s, axis = %d)" % (", ".join(_operand(body, one, OR, dtype) for one in parts), axis_of(axis, len(shape(node)))), POSTFIX


@of("unbind")
def _(body, node, a, axis=0):
    return "unbind(%s%s)" % (body.text(a, OR), "" if axis % len(shape(a)) == 0 else ", axis = %d" % axis_of(axis, len(shape(a)))), POSTFIX


@of("split", "chunk", "split_with_sizes")
def _(body, node, a, sizes, axis=0):
    made = [sympy_of(one.shape[axis]) for one in node.meta["val"]]
    if any(one != made[0] for one in made):
        raise Unsupported("a split into parts of different lengths")
    axis = axis_of(axis, len(shape(a)))
    return "split(%s%s, parts = %d)" % (body.text(a, OR), "" if axis == -1 else ", axis = %d" % axis, len(made)), POSTFIX


@of("constant_pad_nd")
def _(body, node, a, widths, value=0):
    pairs = [(i // 2, widths[i], widths[i + 1]) for i in range(0, len(widths), 2) if widths[i] or widths[i + 1]]
    text = body.text(a, OR)
    for back, low, high in pairs:
        if low < 0 or high < 0:
            raise Unsupported("padding that takes elements away")
        text = "pad(%s, axis = %d, low = %d, high = %d, value = %s)" % (text, axis_of(-1 - back, len(shape(a))), low, high, body.text(value, OR))
    return text, POSTFIX


# ---- new tensors


def _filled(body, node, value):
    val = node.meta["val"]
    value = body.text(bool(value) if val.dtype == torch.bool else value, OR)
    if not val.shape:
        return "cast<%s>(%s)" % (type_name(val), value) if val.dtype != torch.float32 else value, POSTFIX
    return "full<%s>(%s, [%s])" % (type_name(val), value, ", ".join(body.dims.text(one) for one in val.shape)), POSTFIX


@of("full", "full_like", "new_full")
def _(body, node, like, value, *_, **__):
    return _filled(body, node, value)


@of("zeros", "zeros_like", "new_zeros")
def _(body, node, *_, **__):
    return _filled(body, node, 0)


@of("ones", "ones_like", "new_ones")
def _(body, node, *_, **__):
    return _filled(body, node, 1)


@of("scalar_tensor")
def _(body, node, value, **_):
    return _filled(body, node, value)


@of("arange")
def _(body, node, *bounds, **_):
    start, step = (0, 1) if len(bounds) == 1 else (bounds[0], bounds[2] if len(bounds) > 2 else 1)
    text = "iota<%s>(%s)" % (type_name(node.meta["val"]), body.dims.text(shape(node)[0]))
    text = text.replace("<i32>", "")
    text = text if step == 1 else "%s * %s" % (text, body.text(step, MULTIPLY + 1))
    if start == 0:
        return text, POSTFIX if step == 1 else MULTIPLY
    return "%s + %s" % (text, body.text(start, ADD + 1)), ADD


@of("tril", "triu")
def _(body, node, a, diagonal=0):
    s, t = shape(node)[-2:]
    lower = _name(node) == "tril"
    if s != t or diagonal != (0 if lower else 1):
        raise Unsupported("`%s` of another form than a causal mask" % node.target)
    mask = "causal(%s, %s)" % (body.dims.text(s), body.dims.text(t))
    ones = _name(a) in ("ones", "full") and (_name(a) == "ones" or a.args[1] in (1, True))
    if node.meta["val"].dtype == torch.bool and ones:
        return (mask, POSTFIX) if lower else ("not " + mask, NOT)
    kept, gone = body.text(a, OR), "false" if node.meta["val"].dtype == torch.bool else "0"
    if _name(a) in ("ones", "full", "zeros"):
        kept = body.text(float(a.args[1]) if _name(a) == "full" else 1.0, OR)
        kept = "cast<%s>(%s)" % (type_name(node.meta["val"]), kept) if node.meta["val"].dtype != torch.float32 else kept
    return "where(%s, %s, %s)" % ((mask, kept, gone) if lower else (mask, gone, kept)), POSTFIX
