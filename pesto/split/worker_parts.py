"""The step of a division, part by part: what each worker runs, what it takes from whom, and all parts as a `Graph`."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.graph import BOUND, CONV, DEPTHWISE, KERNEL_SIZES, MATMUL, PASSES, Graph
from pesto.split.division import Division, item_bytes, parameter_bytes
from pesto.split.geometry import (
    PARTIAL,
    WHOLE,
    Box,
    Layouts,
    Need,
    PartAssembly,
    Shape,
    assemble_part,
    largest_extents,
    part_shape,
    summands,
    summing_layout,
    worker_boxes,
)
from pesto.split.op_strategy import NO_CUT, ONCE_WAY, OpStrategy
from pesto.split.ops.op_types import FED
from pesto.split.typed_graph import Signature, TypedGraph
from solvers.arrays import Bools, Floats, Ints, bools, ints

CLONE, SLICE, JOIN, REDUCE = range(4)
"""Kind of a part: an op on its worker's parts; a block cut out of a part, by its owner; blocks put together, and
partial results made one, both by the worker that wants them."""
Port = tuple[int, int]
"""A part and which of its outputs."""


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """One operation of one worker."""

    kind: int
    worker: int
    op: int
    """Op that a CLONE computes; for all other kinds the op whose output they bring."""
    output: int
    """Which output of that op they bring; 0 of a CLONE."""
    shape: Shape | None
    """Shape of the result; None for a CLONE, whose shapes are those of its op's outputs under its strategy."""
    begin: Shape = ()
    """First element of a SLICE in the part that it is cut from; empty for other kinds."""
    axis: int = -1
    """Dimension along which a JOIN puts blocks together; -1 where it is one block, kept as it is."""
    reducer: str = ""
    """Reduction of a REDUCE: sum, max, min or prod."""
    scale: int = 1
    """Number of means that a REDUCE adds up and divides their sum by."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkerParts:
    """p parts in topological order, e data edges, c control edges, r results."""

    shaped: TypedGraph
    division: Division
    parts: tuple[WorkerPart, ...]
    clone: Ints
    """[n, K] the part of each op on each worker; -1 where none is: of ops that run once, and of known constants."""
    src: Ints
    """[e] tail of each data edge; inputs that are constants have none, nor has what is read for its shape alone."""
    output: Ints
    """[e] which of its outputs."""
    dst: Ints
    """[e] head of each data edge."""
    input: Ints
    """[e] which of its inputs: of a clone as in the op, of others in the order of blocks or summands."""
    control_src: Ints
    """[c] tail of each control edge; across workers only from or to what runs once."""
    control_dst: Ints
    """[c] its head."""
    results: tuple[Port, ...]
    """[r] where the first worker has each result, whole."""
    for_results: int
    """The first of the edges that are for results alone."""
    place: Ints
    """[p] the device of each part: its worker's number, or as the division's places say."""

    @property
    def fed(self) -> Bools:
        """[p] True for clones of what the host feeds to every device itself."""
        signatures, of = self.shaped.signatures, self.shaped.signature_of
        types = np.array([signature.type in FED for signature in signatures], dtype=np.bool_)
        fed = types[of[[part.op for part in self.parts]]] if self.parts else np.zeros(0, dtype=np.bool_)
        return bools(fed & np.array([part.kind == CLONE for part in self.parts], dtype=np.bool_))

    def output_shape(self, part: int, output: int) -> Shape | None:
        """Return the shape of one output of a part; None if it has none."""
        result = self.parts[part]
        if result.kind != CLONE:
            return result.shape
        shape, _ = self.shaped.signature(result.op).outputs[output]
        gives = self.division.strategies[result.op].gives[output]
        return None if shape is None else part_shape(shape, gives, self.division.factors)

    def output_bytes(self, part: int, output: int) -> int:
        """Return the bytes of one output of a part; 0 for handles and strings."""
        result, shape = self.parts[part], self.output_shape(part, output)
        port = output if result.kind == CLONE else result.output
        return 0 if shape is None else prod(shape) * item_bytes(self.shaped.signature(result.op).outputs[port][1])

    def moved_bytes(self) -> int:
        """Return the bytes that devices receive in a step, results aside: an output is sent to each device once."""
        src, dst = self.src[: self.for_results], self.dst[: self.for_results]
        across = (self.place[src] != self.place[dst]) & ~self.fed[src]
        sent = np.unique(
            np.stack([src[across], self.output[: self.for_results][across], self.place[dst[across]]]), axis=1
        ).T.tolist()
        return sum(self.output_bytes(part, output) for part, output, _ in sent)


def build_worker_parts(shaped: TypedGraph, division: Division, results: Sequence[tuple[int, int]] = ()) -> WorkerParts:
    """Return the parts of a division's step; `results`, as (op, output), are brought to the first worker whole.

    Raise ValueError if the division has places for another number of parts.
    """
    maker = _PartsBuilder(shaped, division, {op for op, _ in results})
    for op in range(shaped.ops):
        maker.run(op)
    for_results = len(maker.edges)
    whole = Need((WHOLE,) * len(division.factors))
    ports = tuple(maker.need(op, output, whole)[0] for op, output in results)
    src, output, dst, place = np.array(maker.edges, dtype=np.int64).reshape(-1, 4).T
    control_src, control_dst = np.array(maker.controls(), dtype=np.int64).reshape(-1, 2).T
    return WorkerParts(
        shaped=shaped, division=division, parts=tuple(maker.parts), clone=ints(maker.clone), src=ints(src),
        output=ints(output), dst=ints(dst), input=ints(place), control_src=ints(control_src),
        control_dst=ints(control_dst), results=ports, for_results=for_results,
        place=_places(shaped, division, maker.parts, results),
    )  # fmt: skip


def _places(
    shaped: TypedGraph, division: Division, parts: list[WorkerPart], results: Sequence[tuple[int, int]]
) -> Ints:
    """Return [p] the device of each part; parts for results alone are with their own, or the first worker's clone."""
    if not division.places:
        return ints([part.worker for part in parts])
    alone = build_worker_parts(shaped, replace(division, places=())).parts if results else parts
    given: dict[WorkerPart, list[int]] = defaultdict(list)
    for part, place in zip(alone, division.places, strict=True):
        given[part].append(place)
    result = {part: iter(places) for part, places in given.items()}
    clones = {(part.op, part.worker): places[0] for part, places in given.items() if part.kind == CLONE}
    return ints(
        [
            next(result.get(part, iter(())), clones.get((part.op, part.worker), clones.get((part.op, 0), 0)))
            for part in parts
        ]
    )


class _PartsBuilder:
    """Parts in the making: an op's inputs are brought before it runs."""

    def __init__(self, shaped: TypedGraph, division: Division, results: set[int]) -> None:
        self.shaped, self.division, self.factors = shaped, division, division.factors
        self.workers = division.workers
        self.parts: list[WorkerPart] = []
        self.edges: list[tuple[int, int, int, int]] = []
        self.clone = np.full((shaped.ops, self.workers), -1)
        self.given: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        """op -> (producer, output, input) of the data edges whose elements it reads."""
        self.known: dict[int, list[int]] = defaultdict(list)
        """op -> the ops whose outputs it needs no more, as it knows their values."""
        for p, output, i, at in shaped.edges:
            signature = shaped.signature(i)
            if signature.inputs[at].value is not None or signature.reads_shapes_alone:
                self.known[i].append(p)
            else:
                self.given[i].append((p, output, at))
        read = np.zeros(shaped.ops, dtype=bool)
        read[shaped.src] = True
        self.needed: list[bool] = (~read).tolist()
        """[n] ops that run: whose output somebody reads, who comes before another, or on whom nothing depends."""
        for op in [*results, *shaped.control_src.tolist()]:
            self.needed[op] = True
        for op in range(shaped.ops - 1, -1, -1):
            for p, _, _ in self.given[op] if self.needed[op] else ():
                self.needed[p] = True
        self.rows: dict[tuple[int, int, Need], list[Port]] = {}
        self.stored: dict[tuple[int, int], list[Port]] = {}
        self.at: dict[tuple[int, int, int, Box], Port] = {}
        self.slices: dict[tuple[Port, Shape, Shape, Need], int] = {}
        self.sent: dict[tuple[Port, int], Need] = {}
        """(what is sent as it is, to whom) -> the first need that it is sent for: each is sent on its own."""

    def run(self, op: int) -> None:
        """Add the clones of an op, after all that brings their inputs."""
        if not self.needed[op]:
            return
        strategy = self.division.strategies[op]
        given = [(at, self.need(p, output, strategy.need(at))) for p, output, at in self.given[op]]
        for worker in range(1 if ONCE_WAY in strategy.names else self.workers):
            self.clone[op, worker] = part = self._part(WorkerPart(CLONE, worker, op, 0, None))
            for at, ports in given:
                self.edges.append((*ports[worker], part, at))

    def _part(self, part: WorkerPart) -> int:
        self.parts.append(part)
        return len(self.parts) - 1

    def need(self, op: int, output: int, need: Need) -> list[Port]:
        """Return [K] where each worker has the part of an output that it needs; only the first if that is on ONE."""
        if (op, output, need) in self.rows:
            return self.rows[op, output, need]
        kept = self.division.kept[op][output]
        if (op, output) not in self.stored:
            gives, shape = self.division.strategies[op].gives[output], self.shaped.signature(op).outputs[output][0]
            clones = [(part, output) for part in self.clone[op].tolist()]
            if PARTIAL in gives and gives != kept:
                ports = self._reduced(op, output, clones, kept)
            else:
                ports = self._brought(op, output, clones, gives, Need(kept))
            for worker, port in enumerate(ports):
                if port[0] >= 0 and self.parts[port[0]].worker != worker:
                    # Another's block as it is: the worker that keeps it has a part of its own.
                    held = None if shape is None else part_shape(shape, kept, self.factors)
                    part = self._part(WorkerPart(JOIN, worker, op, output, held))
                    self.edges.append((*port, part, 0))
                    ports = [*ports[:worker], (part, 0), *ports[worker + 1 :]]
            self.stored[op, output] = ports
        stored = self.stored[op, output]
        if PARTIAL in kept and need != Need(kept):  # a result of the step, which the division itself keeps as summands
            self.rows[op, output, need] = self._reduced(op, output, stored, need.layouts)
        else:
            self.rows[op, output, need] = self._brought(op, output, stored, kept, need)
        return self.rows[op, output, need]

    def _brought(self, op: int, output: int, have: list[Port], stored: Layouts, needed: Need) -> list[Port]:
        """Return [K] the parts that are needed, made of those of a layout."""
        shape, dtype = self.shaped.signature(op).outputs[output]
        if needed == Need(stored):
            return have
        if shape is None or not item_bytes(dtype):
            return [have[worker if have[worker][0] >= 0 else 0] for worker in range(self.workers)]
        own = worker_boxes(shape, stored, self.factors)
        result = []
        for worker, box in enumerate(worker_boxes(shape, needed.layouts, self.factors, needed.rims)):
            if box is None or box == own[worker]:
                result.append(have[worker])
                continue
            key = (op, output, worker, box)
            if stored != self.division.kept[op][output] or key not in self.at:
                grid = assemble_part(shape, stored, box, worker, self.factors)
                self.at[key] = self._joined(have, grid, needed, WorkerPart(JOIN, worker, op, output, None))
            result.append(self.at[key])
        return result

    def _reduced(self, op: int, output: int, have: list[Port], kept_layouts: Layouts) -> list[Port]:
        """Return [K] the parts to keep, summed from partial results: in parts and gathered, if that sends less."""
        shape, _ = self.shaped.signature(op).outputs[output]
        strategy = self.division.strategies[op]
        gives = strategy.gives[output]
        if shape is None:
            raise ValueError(f"op {self.shaped.names[op]}: partial results without a shape")
        target = summing_layout(shape, gives, kept_layouts, self.factors)
        results = summands(gives, self.factors)
        ports = []
        for worker, box in enumerate(worker_boxes(shape, target, self.factors)):
            if box is None:
                ports.append((-1, output))
                continue
            made = WorkerPart(JOIN, worker, op, output, None)
            terms = [
                self._joined(have, assemble_part(shape, gives, box, worker, self.factors, s), Need(target), made)
                for s in results
            ]
            scale = len(results) if strategy.scaled else 1
            part = self._part(replace(made, kind=REDUCE, shape=box[1], reducer=strategy.reducer, scale=scale))
            self.edges += [(*port, part, at) for at, port in enumerate(terms)]
            ports.append((part, 0))
        return self._brought(op, output, ports, target, Need(kept_layouts))

    def _joined(self, have: list[Port], grid: PartAssembly, needed: Need, part: WorkerPart) -> Port:
        """Put one part together of its pieces, along the last dimension first; `part` says whose it is, of what."""
        blocks: list[tuple[Port, Shape]] = []
        for piece in grid.pieces:
            port, remote = have[piece.holder], piece.holder != part.worker
            # A block that is all of the holder's part is sent as it is, unless that is sent for another need already.
            if not (piece.whole and (not remote or self.sent.setdefault((port, part.worker), needed) == needed)):
                key = (port, piece.begin, piece.shape, needed)
                if key not in self.slices:
                    own = replace(part, kind=SLICE, worker=piece.holder, shape=piece.shape, begin=piece.begin)
                    self.slices[key] = self._part(own)
                    self.edges.append((*port, self.slices[key], 0))
                port = self.slices[key], 0
            blocks.append((port, piece.shape))
        for axis in range(len(grid.grid) - 1, -1, -1):
            many = grid.grid[axis]
            rows = [blocks[at : at + many] for at in range(0, len(blocks), many)] if many > 1 else []
            for number, row in enumerate(rows):
                extents = list(row[0][1])
                extents[axis] = sum(shape[axis] for _, shape in row)
                joined = self._part(replace(part, axis=axis, shape=tuple(extents)))
                self.edges += [(*port, joined, at) for at, (port, _) in enumerate(row)]
                blocks[number] = (joined, 0), tuple(extents)
            blocks = blocks[: len(rows)] if rows else blocks
        return blocks[0][0]

    def controls(self) -> list[tuple[int, int]]:
        """Return the control edges of clones: on each worker, and from and to what runs once.

        A constant that is known without its op hands on what that op waits for.
        """
        waits: dict[int, set[int]] = defaultdict(set)
        for p, i in zip(self.shaped.control_src.tolist(), self.shaped.control_dst.tolist(), strict=True):
            waits[i].add(p)
        result = []
        for op in range(self.shaped.ops):
            for p in self.known[op]:
                waits[op] |= waits[p]
            for p in sorted(waits[op]) if self.needed[op] else ():
                before, after = self.clone[p].tolist(), self.clone[op].tolist()
                together = -1 not in before and -1 not in after
                pairs = zip(before, after, strict=True) if together else ((a, b) for a in before for b in after)
                result += [(a, b) for a, b in pairs if a >= 0 and b >= 0]
        return result


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
    words = {CLONE: "", SLICE: "/block", JOIN: "/joined", REDUCE: "/reduced"}
    if len(devices) < division.workers:
        raise UsageError.build(
            f"{division.workers} workers for {len(devices)} accelerators", remedy="give fewer, or a cluster with more"
        )
    names = [
        f"w{part.worker}/{g.names[part.op]}{words[part.kind]}{'' if part.kind == CLONE else number}"
        for number, part in enumerate(parts.parts)
    ]
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
    once = np.array([ONCE_WAY in strategy.names for strategy in division.strategies])
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
        names=tuple(names), types=types, type_of=type_of, tensor_op=ints(part), tensor_bytes=sizes,
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


def _shares(graph: Graph, parts: WorkerParts) -> tuple[Floats, Floats, Ints]:
    """Return [n] parts of an op's work, [n] the share of its bytes, [n, 12] divisors of its kernel's sizes."""
    division, shaped, forms = parts.division, parts.shaped, graph.kernels[:, 0].tolist()
    known: dict[tuple[int, OpStrategy, int], tuple[float, float, list[int]]] = {}
    rows = []
    for op, kind in enumerate(shaped.signature_of.tolist()):
        key = (kind, division.strategies[op], forms[op])
        if key not in known:
            known[key] = work_share(shaped.signatures[kind], division.strategies[op], forms[op], division.factors)
        rows.append(known[key])
    cuts, share, divisors = zip(*rows, strict=True)
    return np.array(cuts, dtype=np.float64), np.array(share, dtype=np.float64), np.array(divisors)


def _copied(parts: WorkerParts, sizes: Ints, tensor: Ints) -> Ints:
    """Return [p] bytes that parts other than clones read and write: each input once, and the output."""
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


def work_share(signature: Signature, strategy: OpStrategy, form: int, factors: Shape) -> tuple[float, float, list[int]]:
    """Return the parts of an op's work, the share of its bytes, and the divisors of its kernel's sizes."""
    cut = [(name, k) for name, k in zip(strategy.names, factors, strict=True) if name not in NO_CUT]
    whole = part = 0
    read = (
        () if signature.type in _OUTPUTS_ALONE else range(int(signature.type.startswith(_TABLES)), len(strategy.needs))
    )
    tensors = [(signature.inputs[at].shape, signature.inputs[at].dtype, strategy.need(at)) for at in read]
    tensors += [
        (shape, dtype, Need(gives)) for (shape, dtype), gives in zip(signature.outputs, strategy.gives, strict=True)
    ]
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
