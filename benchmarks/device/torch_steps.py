"""The graph of a training step whose ops torch's dispatcher listed (`whole_steps.logged`)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from pesto.core.files.graph_file import OpRecord, to_graph
from pesto.core.graph import Graph

_WIDTH = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "bool": 1, "uint8": 1, "int8": 1}
"""Bytes of a number; 4 of any other."""
_CAUSAL = 0.5
"""The share of attention's operations that its kernels do: all attention measured here is causal."""
CLASSES = (
    ("attention", ("scaled_dot", "attention", "flash", "fmha")),
    ("optimizer", ("adam", "sgd", "foreach", "multi_tensor")),
    ("convolution", ("convolution", "conv2d", "conv_")),
    ("batch norm", ("batch_norm", "bn_")),
    ("layer norm", ("layer_norm",)),
    ("softmax and loss", ("softmax", "nll_loss", "cross_entropy")),
    ("embedding", ("embedding",)),
    ("pooling", ("pool",)),
    ("matmul", ("::mm", "mm.", "addmm", "bmm", "linear", "matmul", "gemm")),
    ("casts and copies", ("_to_copy", "::copy_", "::to", "copy_.", "clone", "memcpy")),
)
"""Classes of ops by parts of their names, the first that fits."""
OTHERS = "element-wise and sums"


class TorchTensor(NamedTuple):
    """A tensor as torch sees it."""

    storage: int
    shape: list[int]
    strides: list[int]
    dtype: str

    @property
    def bytes(self) -> int:
        """Bytes of its distinct numbers: those of an expanded dimension count once."""
        distinct = math.prod(n for n, stride in zip(self.shape, self.strides, strict=True) if stride)
        return distinct * _WIDTH.get(self.dtype, 4) if math.prod(self.shape) else 0

    @property
    def transposed(self) -> int:
        """Return 1 if its last two dimensions are stored the other way around, else 0."""
        return int(self.strides[-2] == 1 and self.strides[-1] != 1)


class TorchKernel(NamedTuple):
    """The work of one kernel."""

    form: str
    sizes: list[int]
    flops: float
    moved: int
    """Bytes."""
    made: list[TorchTensor]


def class_of(name: str) -> str:
    """The class of an op or a kernel by its name."""
    return next((label for label, parts in CLASSES if any(part in name for part in parts)), OTHERS)


def step_graph(log: dict[str, Any], source: str) -> Graph:
    """The step as a graph for a GPU: an op a kernel, a tensor a storage.

    Views are other names of their storage. What a step reads and does not make (parameters, states of the optimizer,
    the batch) is held for ever. An op that writes into a storage reads it, and later readers wait for that op.
    """
    tensors = [TorchTensor(*t) for t in log["tensors"]]
    maker: dict[int, str] = {}
    writer: dict[int, str] = {}
    ops: list[OpRecord] = []
    for place, (func, args, outs, writes) in enumerate(log["ops"]):
        read, made, written = (list(_tensors(x, tensors)) for x in (args, outs, writes))
        for storage in dict.fromkeys(t.storage for t in read if t.storage not in maker):
            held = log["storages"][storage]
            maker[storage] = f"held/{storage}:0"
            ops.append(OpRecord(name=f"held/{storage}", type="held", launches=False, param_bytes=held, outputs=[held],
                          runs_on=["gpu"]))  # fmt: skip
        new = {t.storage: t for t in made if t.storage not in maker}
        if not new and not written:
            continue
        base = func.removeprefix("aten.")
        inputs = list(dict.fromkeys(t.storage for t in read))
        after = list(dict.fromkeys(writer[s] for s in inputs if s in writer))
        out_bytes = sum(t.bytes for t in made) or sum(t.bytes for t in written)
        for part, kernel in enumerate(kernels_of(base, args, read, made, out_bytes)):
            name = f"{place}/{part}/{base}"
            own = [t.storage for t in kernel.made if t.storage in new]
            own = list(dict.fromkeys(own))
            ops.append(OpRecord(
                name=name, type=base, inputs=[maker[s] for s in inputs], control=after,
                outputs=[log["storages"][s] for s in own], dtype=read[0].dtype if read else "",
                flops=kernel.flops, moved_bytes=kernel.moved, kernel=kernel.form, sizes=kernel.sizes,
                launches=not base.startswith(("empty", "new_empty")), runs_on=["gpu"],
            ))  # fmt: skip
            maker |= {s: f"{name}:{slot}" for slot, s in enumerate(own)}
            writer |= {t.storage: name for t in written}
    return to_graph(ops, ["gpu"], source)


def _tensors(value: Any, tensors: list[TorchTensor]) -> Iterator[TorchTensor]:
    if isinstance(value, list):
        for each in value:
            yield from _tensors(each, tensors)
    elif isinstance(value, str) and value.startswith("%"):
        yield tensors[int(value[1:])]


def kernels_of(
    base: str, args: list[Any], read: list[TorchTensor], outputs: list[TorchTensor], out_bytes: int
) -> list[TorchKernel]:
    """The kernels of one op that writes `out_bytes`; a convolution's two gradients are two."""
    name = base.partition(".")[0]
    if name.startswith("convolution"):
        return list(_convolutions(name, args, read, outputs))
    form, sizes, flops, moved = "", [], 0.0, sum(t.bytes for t in read) + out_bytes
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        a, b = read[-2:]
        batch = a.shape[0] if len(a.shape) == 3 else 1
        form, sizes = "matmul", [a.shape[-2], b.shape[-1], a.shape[-1], batch, a.transposed, b.transposed]
        flops = 2.0 * math.prod(sizes[:4])
    elif "scaled_dot_product" in name:
        q, k = read[1:3] if "backward" in name else read[:2]
        flops = 4.0 * math.prod(q.shape) * k.shape[-2] * _CAUSAL
        if "backward" in name:
            form, sizes, flops = "passes", [2, 0], 2.5 * flops
    elif name in ("_softmax", "_log_softmax"):
        form, sizes = "passes", [2, 2 * read[0].bytes]
    elif "batch_norm" in name:
        form, sizes = "passes", [2, read[0].bytes * (2 if "backward" in name else 1)]
    elif name == "embedding":
        moved = 2 * out_bytes + read[-1].bytes
    elif name in ("copy_", "zero_", "fill_"):
        moved = sum(t.bytes for t in read[1:]) + out_bytes
    elif name in ("zeros_like", "ones_like", "full_like", "new_zeros"):
        moved = out_bytes
    return [TorchKernel(form, sizes, flops, moved, outputs)]


def _convolutions(
    name: str, args: list[Any], read: list[TorchTensor], outputs: list[TorchTensor]
) -> Iterator[TorchKernel]:
    x, w = read[:2] if name == "convolution" else read[1:3]
    y = outputs[0] if name == "convolution" else read[0]
    stride = args[3] if name == "convolution" else args[4]
    sizes = [*x.shape, w.shape[0], *w.shape[2:], *stride, *y.shape[2:]]
    flops = 2.0 * math.prod(y.shape) * math.prod(w.shape[1:])
    moved = x.bytes + w.bytes + y.bytes
    if name == "convolution":
        yield TorchKernel("conv", sizes, flops, moved, outputs)
        return
    for gradient in outputs:
        form = {tuple(x.shape): "conv-input-gradient", tuple(w.shape): "conv-filter-gradient"}.get(
            tuple(gradient.shape)
        )
        if form:
            yield TorchKernel(form, sizes, flops, moved, [gradient])
