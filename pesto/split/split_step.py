"""The step of a division as a `Graph`: each part an op that is pinned to its worker's device."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.graph import BOUND, CONV, DEPTHWISE, KERNEL_SIZES, MATMUL, PASSES, Graph
from pesto.split import geometry
from pesto.split.division import item_bytes, parameter_bytes
from pesto.split.geometry import Need, Shape
from pesto.split.op_strategy import ONCE_WAY, WHOLE_WAY, OpStrategy
from pesto.split.signature import Signature
from pesto.split.worker_parts import CLONE, JOIN, REDUCE, SLICE, WorkerParts
from solvers.arrays import Bools, Floats, Ints, bools, ints

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
    """The divided step of `graph`, worker w on `devices[w]`; what no accelerator runs stays on the host.

    A clone has its share of the op's work and bytes; blocks are copied, and summed, at the speed of the device's
    memory. UsageError when there are fewer devices than workers.
    """
    if len(devices) < parts.division.workers:
        raise UsageError.build(
            f"{parts.division.workers} workers for {len(devices)} accelerators",
            remedy="give fewer, or a cluster with more",
        )
    return _StepBuilder(graph, parts, tuple(devices)).made()


@dataclass(frozen=True, eq=False)
class _StepBuilder:
    """Columns of the graph, from those of the whole step and the parts."""

    graph: Graph
    parts: WorkerParts
    devices: tuple[str, ...]

    @cached_property
    def op(self) -> Ints:
        """[p] the op of each part."""
        return ints([part.op for part in self.parts.parts])

    @cached_property
    def kind(self) -> Ints:
        """[p]."""
        return ints([part.kind for part in self.parts.parts])

    @cached_property
    def worker(self) -> Ints:
        """[p]."""
        return ints([part.worker for part in self.parts.parts])

    @cached_property
    def clones(self) -> Bools:
        """[p] which parts are clones."""
        return self.kind == CLONE

    @cached_property
    def tensors(self) -> tuple[Ints, Ints, Ints]:
        """([t] part, [t] its output, [e] the tensor of each edge)."""
        both = np.stack([self.parts.src, self.parts.output])
        (part, output), tensor = np.unique(both, axis=1, return_inverse=True)
        return ints(part), ints(output), ints(tensor.reshape(-1))

    @cached_property
    def sizes(self) -> Ints:
        """[t] bytes."""
        part, output, _ = self.tensors
        return ints([self.parts.output_bytes(p, k) for p, k in zip(part.tolist(), output.tolist(), strict=True)])

    def made(self) -> Graph:
        """The graph."""
        of, clones, g = self.op, self.clones, self.graph
        part, _, tensor = self.tensors
        known = (*self.graph.types, "Slice", "ConcatV2", "AddN")
        distinct = tuple(dict.fromkeys(known))
        column = ints([distinct.index(name) for name in known])
        many = len(self.graph.types)
        result = np.where(self.clones, self.graph.type_of[self.op], many - 1 + self.kind)
        types, type_of = distinct, column[result]
        fast = self._fast()[of]
        cuts, share, divisors = self._shares()
        flops = np.where(clones, g.flops[of] / cuts[of], 0.0)
        moved = ints(np.where(clones, np.ceil(g.moved_bytes[of] * share[of]).astype(np.int64), self._copied()))
        return Graph(
            names=self._names(), types=types, type_of=type_of, tensor_op=part, tensor_bytes=self.sizes,
            src=self.parts.src, dst=self.parts.dst, tensor=tensor,
            control_src=self.parts.control_src, control_dst=self.parts.control_dst,
            group=np.where(clones & (g.group[of] >= 0), g.group[of] * len(self.devices) + self.worker, -1),
            kinds=g.kinds, runs_on=np.where(clones[:, None], g.runs_on[of], self._where(fast)),
            param_bytes=self._held(), flops=flops, moved_bytes=moved,
            launches=np.where(clones, g.launches[of], moved > 0),
            given_kinds=g.given_kinds, given_s=np.where(clones[:, None], g.given_s[of] / cuts[of, None], np.nan),
            source=f"{g.source}, in {'x'.join(map(str, self.parts.division.factors))} parts", batch=g.batch,
            feed_shapes=g.feed_shapes, dtypes=g.dtypes, dtype_of=g.dtype_of[of], tensor_dtype=self._dtypes(),
            loose=np.where(clones, g.loose[of], BOUND), kernels=self._kernels(share, divisors), way=g.way,
            devices=self.devices, device_of=np.where(fast & ~self._free_parts(), self.worker, -1),
        )  # fmt: skip

    def _free_parts(self) -> Bools:
        """[p] of a partial split what may be on any device: whole ops, and what the first worker brings for them."""
        once = np.array([ONCE_WAY in way.names for way in self.parts.division.ways])
        if not (once & ~self.parts.shaped.once).any():
            return bools(np.zeros(len(self.op), dtype=np.bool_))
        return bools(np.where(self.clones, once[self.op], self.worker == 0))

    def _dtypes(self) -> Ints:
        """[t] what each tensor's elements are."""
        shaped, number = self.parts.shaped, {name: at for at, name in enumerate(self.graph.dtypes)}
        result = []
        for part, output in zip(*(column.tolist() for column in self.tensors[:2]), strict=True):
            made = self.parts.parts[part]
            port = output if made.kind == CLONE else made.output
            result.append(number.get(shaped.signature(made.op).outputs[port][1], -1))
        return ints(result)

    def _names(self) -> tuple[str, ...]:
        what = {SLICE: "block", JOIN: "joined", REDUCE: "reduced"}
        names = self.graph.names
        return tuple(
            f"w{part.worker}/{names[part.op]}"
            if part.kind == CLONE
            else f"w{part.worker}/{names[part.op]}/{what[part.kind]}{number}"
            for number, part in enumerate(self.parts.parts)
        )

    def _fast(self) -> Bools:
        """[n] ops that an accelerator runs, with all of their group."""
        g = self.graph
        fast = bools(g.runs_on[:, [k for k, kind in enumerate(g.kinds) if kind != "cpu"]].any(axis=1))
        grouped = np.flatnonzero(g.group >= 0)
        slow = np.unique(g.group[grouped[~fast[grouped]]])
        return bools(fast & ~np.isin(g.group, slow))

    def _where(self, fast: Bools) -> Bools:
        """[p, k] blocks are cut and put together where the op ran."""
        host = np.array([[kind == "cpu" for kind in self.graph.kinds]])
        return bools(fast[:, None] != host)

    def _held(self) -> Ints:
        """[p] bytes of variables."""
        shaped, held = self.parts.shaped, np.zeros(self.graph.ops, dtype=np.int64)
        np.add.at(held, shaped.handle, parameter_bytes(shaped, self.parts.division))
        held = np.where(held > 0, held, self.graph.param_bytes)
        return np.where(self.clones, held[self.op], 0)

    def _kernels(self, share: Floats, divisors: Ints) -> Ints:
        """[p, 12] kernels of clones, by the shares of their ops."""
        g, of, clones = self.graph, self.op, self.clones
        kernels = np.where(clones[:, None], -(-g.kernels[of] // divisors[of]), 0)
        passes = clones & (g.kernels[of, 0] == PASSES)
        kernels[passes, 2] = (g.kernels[of[passes], 2] * share[of[passes]]).astype(np.int64)
        return ints(kernels)

    def _shares(self) -> tuple[Floats, Floats, Ints]:
        """[n] parts that an op's work is cut into, [n] share of its bytes, [n, 12] divisors of its kernel's sizes."""
        division, shaped, forms = self.parts.division, self.parts.shaped, self.graph.kernels[:, 0].tolist()
        known: dict[tuple[int, OpStrategy, int], tuple[float, float, list[int]]] = {}
        rows = []
        for op, kind in enumerate(shaped.signature_of.tolist()):
            key = (kind, division.ways[op], forms[op])
            if key not in known:
                known[key] = work_share(shaped.signatures[kind], division.ways[op], forms[op], division.factors)
            rows.append(known[key])
        cuts, share, divisors = zip(*rows, strict=True)
        return np.array(cuts, dtype=np.float64), np.array(share, dtype=np.float64), np.array(divisors)

    def _copied(self) -> Ints:
        """[p] bytes read and written by what is no clone: each input once, and what it gives; blocks in a row none."""
        part, _, tensor = self.tensors
        result = np.zeros(len(self.op), dtype=np.int64)
        np.add.at(result, self.parts.dst, self.sizes[tensor])
        given = np.zeros(len(self.op), dtype=np.int64)
        given[part] = self.sizes
        slices = self.kind == SLICE
        result[slices] = given[slices]
        result += given
        for number in np.flatnonzero(~self.clones).tolist():
            if self._free(number):
                result[number] = 0
        return result

    def _free(self, number: int) -> bool:
        """Return True if TensorFlow hands on its input without a copy: one block as it is, and rows of a tensor."""
        part = self.parts.parts[number]
        if part.kind == JOIN:
            return part.axis < 0
        if part.kind != SLICE or part.shape is None:
            return False
        source = self.parts.output_shape(*self._from[number])
        return source is not None and part.shape[1:] == source[1:]

    @cached_property
    def _from(self) -> dict[int, tuple[int, int]]:
        """SLICE -> what it is cut from."""
        at = np.flatnonzero(self.kind[self.parts.dst] == SLICE)
        rows = zip(
            self.parts.dst[at].tolist(), self.parts.src[at].tolist(), self.parts.output[at].tolist(), strict=True
        )
        return {dst: (src, output) for dst, src, output in rows}


def work_share(signature: Signature, way: OpStrategy, form: int, factors: Shape) -> tuple[float, float, list[int]]:
    """(parts of an op's work, share of its bytes, what its kernel's sizes are divided by)."""
    cut = [(name, k) for name, k in zip(way.names, factors, strict=True) if name not in (WHOLE_WAY, ONCE_WAY)]
    whole = part = 0
    read = () if signature.type in _OUTPUTS_ALONE else range(int(signature.type.startswith(_TABLES)), len(way.needs))
    tensors = [(signature.inputs[at].shape, signature.inputs[at].dtype, way.need(at)) for at in read]
    tensors += [(shape, dtype, Need(gives)) for (shape, dtype), gives in zip(signature.outputs, way.gives, strict=True)]
    for shape, dtype, need in tensors:
        if shape is not None:
            whole += prod(shape) * item_bytes(dtype)
            part += prod(geometry.largest_extents(shape, need, factors)) * item_bytes(dtype)
    divisors = [1] * (1 + max(KERNEL_SIZES))
    for name, k in cut:
        for column in _columns(signature, form, name):
            divisors[column] *= k
    return float(prod(k for _, k in cut)), part / whole if whole else 1.0, divisors


def _columns(signature: Signature, form: int, name: str) -> tuple[int, ...]:
    """Columns of `Graph.kernels` that a cut along an index variable divides."""
    if form == MATMUL:
        return _of_letter(signature, name) if signature.type == "Einsum" else _MATMUL.get(name, (4,))
    if CONV <= form < DEPTHWISE:
        return (_VOLUME if "Conv3D" in signature.type else _CONV).get(name, ())
    return _DEPTHWISE.get(name, ()) if DEPTHWISE <= form < PASSES else ()


def _of_letter(signature: Signature, letter: str) -> tuple[int, ...]:
    """The column of a letter of an equation: m, n, k or batch, by which of both factors and of the result have it."""
    factors, _, made = str(signature.attribute("equation", "")).partition("->")
    left, _, right = factors.partition(",")
    if letter in left and letter in right:
        return (4,) if letter in made else (3,)
    return (1,) if letter in left else (2,)
