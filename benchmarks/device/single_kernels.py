"""Single kernels: products, convolutions, norms, attention, element-wise ops, embeddings and optimizers."""

import itertools
import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.device.timing import TimedDevice, described, precision, shuffled, width

try:
    import torch
    import torch.nn.functional as F  # noqa: N812
except ImportError:
    torch = None

DTYPES = ("float32", "tf32", "float16", "bfloat16")
RESNET = (
    (3, 224, 64, 7, 2),
    (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1),
    (256, 56, 128, 1, 1), (128, 56, 128, 3, 2), (128, 28, 512, 1, 1), (256, 56, 512, 1, 2), (512, 28, 128, 1, 1),
    (128, 28, 128, 3, 1), (512, 28, 256, 1, 1), (256, 28, 256, 3, 2), (256, 14, 1024, 1, 1), (512, 28, 1024, 1, 2),
    (1024, 14, 256, 1, 1), (256, 14, 256, 3, 1), (1024, 14, 512, 1, 1), (512, 14, 512, 3, 2), (512, 7, 2048, 1, 1),
    (1024, 14, 2048, 1, 2), (2048, 7, 512, 1, 1), (512, 7, 512, 3, 1),
)  # fmt: skip
"""Channels, height and width, filters, size of the filter and stride of ResNet-50's distinct convolutions."""


def matmul_rows(device: TimedDevice) -> list[tuple[str, Callable[[], Any]]]:
    """Products [m, k] x [k, n] of DeepBench's kind, GPT-2's, squares and random ones, by data type."""
    shapes = [(m, n, n, 0, t) for n in (1760, 2048, 2560, 4096) for m in (16, 32, 64, 128, 7000) for t in (0, 1)]
    shapes += [(700, 5124, 2048, 0, 0), (700, 35, 2048, 0, 0), (64, 1000, 2048, 0, 1), (1500, 7680, 2560, 1, 0)]
    shapes += [(n, n, n, a, b) for n in (256, 512, 1024, 2048, 4096, 8192) for a, b in ((0, 0), (0, 1), (1, 0))]
    for tokens in (4096, 8192):
        for k, n in ((768, 2304), (768, 768), (768, 3072), (3072, 768), (768, 50257)):
            shapes += [(tokens, n, k, 0, 1), (tokens, k, n, 0, 0), (n, k, tokens, 1, 0)]
    draw = random.Random(1)  # noqa: S311
    shapes += [(*(8 * int(2 ** draw.uniform(2, 10)) for _ in range(3)), 0, 0) for _ in range(24)]
    batched = [(96, s, t, 64, 0, 1) for s, t in ((512, 512), (1024, 1024))]
    batched += [(96, s, 64, s, a, 0) for s in (512, 1024) for a in (0, 1)] + [(64, 128, 128, 128, 0, 0)]
    every = [(1, *shape) for shape in shapes] + batched
    if device.small:
        every = [(1, 16, 32, 24, 0, 1), (1, 64, 64, 64, 0, 0), (3, 16, 16, 8, 1, 0)]
    return shuffled([
        (f"matmul {shape} {dtype}", lambda s=shape, d=dtype: matmul(device, s, d))
        for shape in dict.fromkeys(every) for dtype in DTYPES
    ])  # fmt: skip


def matmul(device: TimedDevice, shape: tuple[int, ...], dtype: str) -> dict[str, Any]:
    """One product, cold (buffers beyond L2 in turn) and, where it fits L2, warm (the same buffers)."""
    batch, m, n, k, a_t, b_t = shape
    size = width(dtype) * batch * (m * k + k * n + m * n)
    precision(dtype)
    sets = device.sets(size)
    lead = (batch,) if batch > 1 else ()
    a = [device.random(*lead, *((k, m) if a_t else (m, k)), dtype=dtype) for _ in range(sets)]
    b = [device.random(*lead, *((n, k) if b_t else (k, n)), dtype=dtype) for _ in range(sets)]
    a, b = ([x.transpose(-1, -2) if t else x for x in xs] for xs, t in ((a, a_t), (b, b_t)))
    out = [torch.empty(*lead, m, n, dtype=a[0].dtype, device=a[0].device) for _ in range(sets)]

    def run(i: int) -> None:
        torch.matmul(a[i], b[i], out=out[i])

    result = device.kernel(run, sets)
    if sets > 1 and size < 0.7 * device.l2:
        result["warm_seconds"] = device.kernel(run, 1, 0.02)["seconds"]
    op = described("matmul", [m, n, k, batch, a_t, b_t], 2.0 * batch * m * n * k, size, dtype)
    return {"kind": "batched matmul" if batch > 1 else "matmul", "op": op, "buffer_bytes": size} | result


def conv_rows(device: TimedDevice) -> list[tuple[str, Callable[[], Any]]]:
    """ResNet-50's convolutions in both directions, by batch, data type and layout."""
    layers = RESNET if not device.small else ((3, 16, 8, 3, 2), (8, 8, 8, 1, 1))
    every = itertools.product(layers, (2,) if device.small else (32, 64), ("float32", "tf32", "bfloat16"), range(2))
    return shuffled([
        (f"{kind} {layer} batch {batch} {dtype} {last}",
         lambda k=kind, y=layer, b=batch, d=dtype, c=last: conv(device, k, y, b, d, last=bool(c)))
        for layer, batch, dtype, last in every
        for kind in ("conv forward", "conv input gradient", "conv filter gradient")
    ])  # fmt: skip


def conv(
    device: TimedDevice, kind: str, layer: tuple[int, ...], batch: int, dtype: str, *, last: bool
) -> dict[str, Any]:
    """One pass of a convolution by cuDNN's quickest algorithm."""
    c, h, k, r, stride = layer
    pad, out = r // 2, (h + 2 * (r // 2) - r) // stride + 1
    precision(dtype)
    size = width(dtype) * (batch * c * h * h + k * c * r * r + batch * k * out * out)
    sets = min(device.sets(size), 8)
    order = torch.channels_last if last else torch.contiguous_format

    def made(*shape: int) -> list[Any]:
        return [device.random(*shape, dtype=dtype).contiguous(memory_format=order) for _ in range(sets)]

    x, w, dy = made(batch, c, h, h), made(k, c, r, r), made(batch, k, out, out)
    rest = [[stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1]

    def run(i: int) -> None:
        if kind == "conv forward":
            torch.ops.aten.convolution(x[i], w[i], None, *rest)
        else:
            mask = [kind == "conv input gradient", kind == "conv filter gradient", False]
            torch.ops.aten.convolution_backward(dy[i], x[i], w[i], None, *rest, mask)

    result = device.kernel(run, sets)
    form = kind.replace(" forward", "").replace(" ", "-")
    op = described(form, [batch, c, h, h, k, r, r, stride, stride, out, out],
                   2.0 * batch * k * c * r * r * out * out, size, dtype)  # fmt: skip
    layout = "channels last" if last else "channels first"
    return {"kind": kind, "op": op, "layout": layout, "buffer_bytes": size} | result


def other_rows(device: TimedDevice) -> list[tuple[str, Callable[[], Any]]]:
    """Norms, softmax, attention, element-wise ops, reductions, embeddings and optimizers."""
    shapes, maps = ((4096, 768), (8192, 768), (8192, 3072), (4096, 4096)), ((64, 112), (256, 56), (2048, 7))
    counts, tokens, tensors = [2**p for p in (10, 14, 18, 20, 22, 24, 27)], (4096, 8192), (24, 120)
    heads = ((8, 12, 512, 64), (8, 12, 1024, 64), (4, 16, 2048, 128), (4, 16, 4096, 64))
    if device.small:
        shapes, maps, counts, tokens, tensors, heads = ((64, 32),), ((4, 8),), [1024], (16,), (2,), ((1, 2, 16, 8),)
    flat = [(k, s) for k in ("layer norm", "softmax", "sum of columns", "sum", "transpose") for s in shapes]
    flat += [("batch norm", (2 if device.small else 64, c, h, h)) for c, h in maps]
    flat += [(k, (n,)) for k in ("add", "gelu", "relu", "cast") for n in counts]
    dtypes = ("float32", "bfloat16")
    every: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [(simple, (*one, d)) for one in flat for d in dtypes]
    every += [
        (make, (one, d)) for make, ones in ((attention, heads), (embedding, tokens)) for one in ones for d in dtypes
    ]
    every += [(adam, (way, count)) for way in ("fused", "foreach") for count in tensors]
    return shuffled([(f"{make.__name__} {given}", partial(make, device, *given)) for make, given in every])


def simple(device: TimedDevice, kind: str, shape: tuple[int, ...], dtype: str) -> list[dict[str, Any]]:
    """One op of one input, and its forward and backward pass together where it has weights or a softmax."""
    numbers, size = math.prod(shape), width(dtype)
    sets = device.sets(2 * numbers * size)
    x = [device.random(*shape, dtype=dtype) for _ in range(sets)]
    y = [torch.empty_like(each) for each in x]
    channels = shape[1] if kind == "batch norm" else shape[-1]
    w, b = (device.random(channels, dtype="float32" if kind == "batch norm" else dtype) for _ in range(2))
    mean, var = torch.zeros_like(w), torch.ones_like(w)
    other = torch.bfloat16 if dtype == "float32" else torch.float32
    runs: dict[str, Callable[[Any, Any], Any]] = {
        "layer norm": lambda v, _: F.layer_norm(v, shape[-1:], w, b),
        "batch norm": lambda v, _: F.batch_norm(v, mean, var, w, b, training=True),
        "softmax": lambda v, _: torch.softmax(v, -1),
        "sum of columns": lambda v, _: v.sum(0),
        "sum": lambda v, _: v.sum(),
        "transpose": lambda v, _: v.t().contiguous(),
        "add": lambda v, out: torch.add(v, v, out=out),
        "gelu": lambda v, _: F.gelu(v, approximate="tanh"),
        "relu": lambda v, _: torch.relu(v),
        "cast": lambda v, _: v.to(other),
    }
    run = runs[kind]
    out = {"sum of columns": channels * size, "sum": size, "cast": numbers * (6 - size)}.get(kind, numbers * size)
    # Launches, and reads of the input beyond the first, of one pass and of its gradient, as graph files count them.
    passes = {"softmax": (2, 2), "batch norm": (2, 1)}.get(kind)
    form = ("passes", [passes[0], passes[1] * numbers * size]) if passes else ("", [])
    result = device.kernel(lambda i: run(x[i], y[i]), sets)
    head = {"shape": list(shape), "buffer_bytes": numbers * size + out}
    op = described(*form, 0.0, numbers * size + out, dtype)
    rows = [{"kind": kind, "op": op} | head | result]
    if kind in ("layer norm", "softmax", "batch norm"):
        leaves = [each.requires_grad_() for each in (*x, w, b)]
        own = [[leaves[i], *(leaves[-2:] if kind != "softmax" else [])] for i in range(sets)]
        result = device.kernel(lambda i: torch.autograd.grad(run(x[i], None), own[i], y[i]), sets)
        again = 2 if kind == "batch norm" else 0
        form = ("passes", [passes[0] + 1 + (again > 0), (passes[1] + again) * numbers * size]) if passes else form
        op = described(*form, 0.0, 5 * numbers * size, dtype)
        rows.append({"kind": f"{kind}, both passes", "op": op} | head | result)
    return rows


def attention(device: TimedDevice, shape: tuple[int, ...], dtype: str) -> list[dict[str, Any]]:
    """Causal scaled dot-product attention, forward, and both passes together."""
    batch, heads, length, depth = shape
    numbers = math.prod(shape)
    sets = device.sets(4 * numbers * width(dtype))
    q, k, v, g = ([device.random(*shape, dtype=dtype) for _ in range(sets)] for _ in range(4))
    flops = 2.0 * batch * heads * length * length * depth
    head = {"shape": list(shape), "buffer_bytes": 4 * numbers * width(dtype)}
    precision(dtype)

    def run(i: int) -> Any:
        return F.scaled_dot_product_attention(q[i], k[i], v[i], is_causal=True)

    result = device.kernel(run, sets)
    rows = [{"kind": "attention", "op": described("", [], flops, 4 * numbers * width(dtype), dtype)} | head | result]
    for each in (*q, *k, *v):
        each.requires_grad_()
    result = device.kernel(lambda i: torch.autograd.grad(run(i), (q[i], k[i], v[i]), g[i]), sets)
    op = described("passes", [2, 0], 3.5 * flops, 12 * numbers * width(dtype), dtype)
    return [*rows, {"kind": "attention, both passes", "op": op} | head | result]


def embedding(device: TimedDevice, tokens: int, dtype: str) -> list[dict[str, Any]]:
    """Gather of rows of GPT-2's table, and the dense gradient of it."""
    words, depth = (100, 8) if device.small else (50257, 768)
    table = device.random(words, depth, dtype=dtype)
    at = [device.integers(words, tokens) for _ in range(8)]
    g = device.random(tokens, depth, dtype=dtype)
    one = tokens * depth * width(dtype)
    dense = words * depth * width(dtype)
    forward = device.kernel(lambda i: F.embedding(at[i], table), 8)
    back = device.kernel(lambda i: torch.ops.aten.embedding_dense_backward(g, at[i], words, -1, False), 8, waits=True)
    head = {"shape": [tokens, words, depth]}
    return [
        {"kind": "embedding", "op": described("", [], 0.0, 2 * one + 8 * tokens, dtype)} | head | forward,
        {"kind": "embedding gradient", "op": described("passes", [2, 0], 0.0, dense + 3 * one, dtype)} | head | back,
    ]


def adam(device: TimedDevice, way: str, tensors: int) -> dict[str, Any]:
    """One update of AdamW over tensors of a million numbers each."""
    numbers = 1000 if device.small else 1 << 20
    values = [device.random(numbers).requires_grad_() for _ in range(tensors)]
    for v in values:
        v.grad = device.random(numbers)
    optimizer = torch.optim.AdamW(values, lr=1e-4, capturable=device.cuda, **{way: True})
    result = device.kernel(lambda _: optimizer.step(), 1)
    op = described("", [], 0.0, 28 * numbers * tensors, "float32")
    return {"kind": f"adam {way}", "op": op, "tensors": tensors} | result
