"""The step of a division as a `Graph`: each part an op that is pinned to its worker's device."""

from collections.abc import Sequence
from math import prod

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.graph import BOUND, CONV, DEPTHWISE, KERNEL_SIZES, MATMUL, PASSES, Graph
from pesto.split.division import item_bytes, parameter_bytes
from pesto.split.geometry import Need, Shape, largest_extents
from pesto.split.op_strategy import ONCE_WAY, WHOLE_WAY, OpStrategy
from pesto.split.typed_graph import Signature
from pesto.split.worker_parts import CLONE, JOIN, REDUCE, SLICE, WorkerParts
from solvers.arrays import Floats, Ints, bools, ints

_MATMUL = {"m": (1,), "n": (2,), "k": (3,)}
_CONV = {"b": (1,), "ci": (2,), "co": (5,), "x0": (3, 10), "x1": (4, 11)}
_VOLUME = {**_CONV, "x0": (1,), "x1": (3, 10), "x2": (4, 11)}
"""The depth of a volume counts as batch."""
_DEPTHWISE = {**_CONV, "ci": (2, 5), "co": (2, 5)}
"""Index variable -> the columns of `Graph.kernels` that its cut divides."""
_TABLES = ("Gather", "ResourceGather", "Scatter", "ResourceScatter")
"""Beginnings of op types that touch some rows of their first input: their bytes are those of the other tensors."""
_OUTPUTS_ALONE = frozenset(("Fill", "OnesLike", "Slice", "StridedSlice", "ZerosLike"))
"""Op types that read no more than they write: their bytes are those of their outputs."""


def build_split_step(graph: Graph, parts: WorkerParts, devices: Sequence[str]) -> Graph:
    """Return the divided step of `graph`, worker w on `devices[w]`; what no accelerator runs stays on the host.

    A clone has its share of the op's work and bytes; blocks are copied, and summed, at the speed of the device's
    memory. Raise UsageError if there are fewer devices than workers.
    """
    g, shaped, division = graph, parts.shaped, parts.division
    if len(devices) < division.workers:
        raise UsageError.build(
            f"{division.workers} workers for {len(devices)} accelerators", remedy="give fewer, or a cluster with more"
        )
    of, kind, worker = (
        ints([getattr(part, name) for part in parts.parts]) for name in ("op", "kind", "worker")
    )  # [p] each
    clones = kind == CLONE
    (part, output), tensor = np.unique(np.stack([parts.src, parts.output]), axis=1, return_inverse=True)
    tensor = ints(tensor.reshape(-1))
    ports = list(zip(part.tolist(), output.tolist(), strict=True))
    sizes = ints([parts.output_bytes(p, k) for p, k in ports])
    known = (*g.types, "Slice", "ConcatV2", "AddN")
    types = tuple(dict.fromkeys(known))
    type_of = ints([types.index(name) for name in known])[np.where(clones, g.type_of[of], len(g.types) - 1 + kind)]
    number, dtypes = {name: at for at, name in enumerate(g.dtypes)}, []
    for p, k in ports:
        made = parts.parts[p]
        dtype = shaped.signature(made.op).outputs[k if made.kind == CLONE else made.output][1]
        dtypes.append(number.get(dtype, -1))
    # Ops run on an accelerator with all of their group; blocks are cut and put together where the op ran.
    fast = bools(g.runs_on[:, [k for k, name in enumerate(g.kinds) if name != "cpu"]].any(axis=1))
    grouped = np.flatnonzero(g.group >= 0)
    fast = bools(fast & ~np.isin(g.group, np.unique(g.group[grouped[~fast[grouped]]])))[of]
    host = np.array([[name == "cpu" for name in g.kinds]])
    # In a partial split whole ops, and what the first worker brings for them, may be on any device.
    once = np.array([ONCE_WAY in way.names for way in division.ways])
    free = np.where(clones, once[of], worker == 0) & bool((once & ~shaped.once).any())
    held = np.zeros(g.ops, dtype=np.int64)
    np.add.at(held, shaped.handle, parameter_bytes(shaped, division))
    held = np.where(held > 0, held, g.param_bytes)
    cuts, share, divisors = _shares(graph, parts)
    moved = np.where(clones, np.ceil(g.moved_bytes[of] * share[of]).astype(np.int64), _copied(parts, sizes, tensor))
    kernels = np.where(clones[:, None], -(-g.kernels[of] // divisors[of]), 0)
    passes = clones & (g.kernels[of, 0] == PASSES)
    kernels[passes, 2] = (g.kernels[of[passes], 2] * share[of[passes]]).astype(np.int64)
    return Graph(
        names=_names(graph, parts), types=types, type_of=type_of, tensor_op=ints(part), tensor_bytes=sizes,
        src=parts.src, dst=parts.dst, tensor=tensor, control_src=parts.control_src, control_dst=parts.control_dst,
        group=np.where(clones & (g.group[of] >= 0), g.group[of] * len(devices) + worker, -1),
        kinds=g.kinds, runs_on=np.where(clones[:, None], g.runs_on[of], fast[:, None] != host),
        param_bytes=np.where(clones, held[of], 0), flops=np.where(clones, g.flops[of] / cuts[of], 0.0),
        moved_bytes=ints(moved), launches=np.where(clones, g.launches[of], moved > 0),
        given_kinds=g.given_kinds, given_s=np.where(clones[:, None], g.given_s[of] / cuts[of, None], np.nan),
        source=f"{g.source}, in {'x'.join(map(str, division.factors))} parts", batch=g.batch,
        feed_shapes=g.feed_shapes, dtypes=g.dtypes, dtype_of=g.dtype_of[of], tensor_dtype=ints(dtypes),
        loose=np.where(clones, g.loose[of], BOUND), kernels=ints(kernels), way=g.way,
        devices=tuple(devices), device_of=np.where(fast & ~free, worker, -1),
    )  # fmt: skip


def _names(graph: Graph, parts: WorkerParts) -> tuple[str, ...]:
    words, names = {SLICE: "block", JOIN: "joined", REDUCE: "reduced"}, []
    for number, part in enumerate(parts.parts):
        name = f"w{part.worker}/{graph.names[part.op]}"
        names.append(name if part.kind == CLONE else f"{name}/{words[part.kind]}{number}")
    return tuple(names)


def _shares(graph: Graph, parts: WorkerParts) -> tuple[Floats, Floats, Ints]:
    """[n] parts that an op's work is cut into, [n] share of its bytes, [n, 12] divisors of its kernel's sizes."""
    division, shaped, forms = parts.division, parts.shaped, graph.kernels[:, 0].tolist()
    known: dict[tuple[int, OpStrategy, int], tuple[float, float, list[int]]] = {}
    rows = []
    for op, kind in enumerate(shaped.signature_of.tolist()):
        key = (kind, division.ways[op], forms[op])
        if key not in known:
            known[key] = work_share(shaped.signatures[kind], division.ways[op], forms[op], division.factors)
        rows.append(known[key])
    cuts, share, divisors = zip(*rows, strict=True)
    return np.array(cuts, dtype=np.float64), np.array(share, dtype=np.float64), np.array(divisors)


def _copied(parts: WorkerParts, sizes: Ints, tensor: Ints) -> Ints:
    """[p] bytes that parts other than clones read and write: each input once, and the output."""
    copied = np.zeros(len(parts.parts), dtype=np.int64)
    given = np.zeros(len(parts.parts), dtype=np.int64)
    np.add.at(copied, parts.dst, sizes[tensor])
    given[parts.src] = sizes[tensor]
    edge = {dst: e for e, dst in enumerate(parts.dst.tolist())}
    for number, part in enumerate(parts.parts):
        # TensorFlow hands on one block as it is, and consecutive rows of a tensor, without a copy.
        free = part.kind == JOIN and part.axis < 0
        if part.kind == SLICE:
            copied[number] = given[number]
            if part.shape is not None:
                e = edge[number]
                source = parts.output_shape(int(parts.src[e]), int(parts.output[e]))
                free = source is not None and part.shape[1:] == source[1:]
        copied[number] = 0 if free else copied[number] + given[number]
    return ints(copied)


def work_share(signature: Signature, way: OpStrategy, form: int, factors: Shape) -> tuple[float, float, list[int]]:
    """Return the parts of an op's work, the share of its bytes, and the divisors of its kernel's sizes."""
    cut = [(name, k) for name, k in zip(way.names, factors, strict=True) if name not in (WHOLE_WAY, ONCE_WAY)]
    whole = part = 0
    read = () if signature.type in _OUTPUTS_ALONE else range(int(signature.type.startswith(_TABLES)), len(way.needs))
    tensors = [(signature.inputs[at].shape, signature.inputs[at].dtype, way.need(at)) for at in read]
    tensors += [(shape, dtype, Need(gives)) for (shape, dtype), gives in zip(signature.outputs, way.gives, strict=True)]
    for shape, dtype, need in tensors:
        if shape is not None:
            whole += prod(shape) * item_bytes(dtype)
            part += prod(largest_extents(shape, need, factors)) * item_bytes(dtype)
    divisors = [1] * (1 + max(KERNEL_SIZES))
    for name, k in cut:
        columns = _DEPTHWISE.get(name, ()) if DEPTHWISE <= form < PASSES else ()
        if form == MATMUL:
            columns = _MATMUL.get(name, (4,))
            if signature.type == "Einsum":
                # A letter is m, n, k or batch by which of both factors and of the result have it.
                equation, _, made = str(signature.attribute("equation", "")).partition("->")
                left, _, right = equation.partition(",")
                both = name in left and name in right
                columns = ((4,) if name in made else (3,)) if both else (1,) if name in left else (2,)
        elif CONV <= form < DEPTHWISE:
            columns = (_VOLUME if "Conv3D" in signature.type else _CONV).get(name, ())
        for column in columns:
            divisors[column] *= k
    return float(prod(k for _, k in cut)), part / whole if whole else 1.0, divisors
