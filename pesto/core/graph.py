"""The dataflow graph of one whole training step, as arrays. It knows no framework and no machine."""

import hashlib
import json
import reprlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pesto.core.errors import InputError
from pesto.core.quantities import plural
from pesto.core.source import GraphOrigin, origin_of
from solvers.arrays import Bools, Floats, Ints, bools, floats, ints, rank_of
from solvers.compiled.dag import find_cycle, topological_order

if TYPE_CHECKING:
    import networkx as nx

BOUND, SHARED, FREE, BRANCHED = range(4)
"""`Graph.loose`: an op has a place in every plan's order; none where other programs share the graph, as of v1 sessions
and GraphDefs; none at all, as of handles and feeds; none, and no other op can have it in its stead."""
NOT_SAID, SESSION, FUNCTION = MEANT = ("", "session", "function")
"""`Graph.way`."""
KERNEL_FORMS = (
    "", "matmul", "conv", "conv-input-gradient", "conv-filter-gradient",
    "depthwise", "depthwise-input-gradient", "depthwise-filter-gradient", "passes", "loop",
)  # fmt: skip
"""Forms of kernels, by the number in the first column of `Graph.kernels`."""
MATMUL, CONV, CONV_INPUT, CONV_FILTER, DEPTHWISE, DEPTHWISE_INPUT, DEPTHWISE_FILTER, PASSES, LOOP = range(1, 10)
KERNEL_SIZES = (0, 6, 11, 11, 11, 11, 11, 11, 2, 1)
"""How many sizes follow each form. Of a matmul m, n, k, batch, a transposed, b transposed; of a convolution batch,
channels, height, width, filters, filter height and width, stride down and across, output height and width; of passes
launches and bytes beyond `moved_bytes`; of a loop launches."""


class Variable(NamedTuple):
    """A variable that a training step reads or writes."""

    name: str
    """Unique within the step."""
    dtype: str = ""
    """Name of its data type; empty where not known."""
    shape: tuple[int, ...] | None = None
    """Its sizes, -1 for an open one; None where the rank is not known."""

    @property
    def told(self) -> str:
        """Data type and shape, for messages."""
        sizes = "?" if self.shape is None else ", ".join("?" if size < 0 else str(size) for size in self.shape)
        return f"{self.dtype or 'of unknown type'} [{sizes}]"


AGAIN = "#"
"""Separates a variable's name from its number where several of a step have that name."""


def unique_name(name: str, taken: dict[str, int]) -> str:
    """Return the name, with #2, #3 behind it where it is taken; `taken` counts the variables of each name so far."""
    made = name
    while made in taken:
        taken[name] += 1
        made = f"{name}{AGAIN}{taken[name]}"
    taken[made] = 1
    return made


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


_NO_ARRAYS = (
    "names", "types", "kinds", "given_kinds", "source", "origin", "batch", "feed_shapes", "dtypes", "way", "devices",
    "variables",
)  # fmt: skip
_MAY_BE_NONE = ("dtype_of", "tensor_dtype", "device_of", "variable_of")
"""Columns of indices in which -1 stands for none."""


class GraphIdentity(NamedTuple):
    """Hashes by which a plan knows its graph."""

    fingerprint: str
    """Hash of structure and sizes (`Graph.fingerprint`)."""
    layout: str
    """Hash of structure by index (`Graph.layout`)."""
    listing: str
    """Hash of layout and sizes by index (`Graph.listing`)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """n ops, t tensors, e data edges, c control edges. Arrays are copied and made read-only.

    InputError, naming the first offender and where it is, when names repeat, lengths differ, an index dangles, a
    number is negative or not finite, an edge carries another op's tensor, an op can run on no kind of device, or
    the edges form a cycle (which is printed).
    """

    names: tuple[str, ...]
    """[n] unique labels; identity is the index."""
    types: tuple[str, ...]
    """Distinct op types."""
    type_of: Ints
    """[n] index into `types`."""
    tensor_op: Ints
    """[t] op that produces each tensor."""
    tensor_bytes: Ints
    """[t] bytes; 0 for handles, strings and others without a known size (a transfer of 0 bytes still has latency)."""
    src: Ints
    """[e] tail of each data edge."""
    dst: Ints
    """[e] head of each data edge."""
    tensor: Ints
    """[e] tensor that the edge carries."""
    control_src: Ints
    """[c] tail of each control edge."""
    control_dst: Ints
    """[c] head of each control edge."""
    group: Ints
    """[n] ops of one group (>= 0) share a device; -1 for none."""
    kinds: tuple[str, ...]
    """[k] kinds of device that `runs_on` speaks of, such as cpu and gpu."""
    runs_on: Bools
    """[n, k] true where an op has a kernel for a kind of device."""
    param_bytes: Ints
    """[n] bytes that live at the op's device for ever: a variable's value at its handle."""
    flops: Floats
    """[n] floating point operations of one execution; exact for matmuls, convolutions and their gradients."""
    moved_bytes: Ints
    """[n] bytes that one execution reads and writes in its device's memory."""
    launches: Bools
    """[n] true for an op that starts a kernel; False for constants, handles, reshapes and other bookkeeping."""
    given_kinds: tuple[str, ...] = ()
    """[g] device kinds or presets for which the source itself gives op times."""
    given_s: Floats
    """[n, g] seconds, NaN where not given."""
    source: str
    """Where the graph comes from, for people: a model and variant, or a file's name."""
    origin: GraphOrigin = GraphOrigin()  # noqa: RUF009
    """The same as fields; when left out that of a `GraphSource`, and kind "other" for a plain line."""
    batch: int | None = None
    """Batch size for open first dimensions; None when the source gave every size. Not part of the fingerprint."""
    feed_shapes: tuple[str, ...] = ()
    """Shapes given for feeds and ops whose sizes the source leaves open: NAME=16,40. Not part of the fingerprint."""
    dtypes: tuple[str, ...] = ()
    """Distinct names of data types, such as float16; also ones that nothing here knows. Not part of the fingerprint."""
    dtype_of: Ints = field(default_factory=_none)
    """[n] index into `dtypes` of what each op computes in; -1 where not known, as everywhere when left out."""
    tensor_dtype: Ints = field(default_factory=_none)
    """[t] index into `dtypes` of each tensor's elements; -1 where not known, as everywhere when left out."""
    loose: Ints = field(default_factory=_none)
    """[n] which place in the order each op can have: BOUND (everywhere when left out), SHARED, FREE or BRANCHED. Not
    part of the fingerprint."""
    kernels: Ints = field(default_factory=_none)
    """[n, 12] Form of each op's kernel, by its place in docs/reference/graph-file.md from 1, its sizes, zeros; 0
    where the op has none of these forms, as everywhere when left out. Not part of the fingerprint."""
    way: str = NOT_SAID
    """Mode in which the step is meant to be run: SESSION or FUNCTION, of which `loose` tells; else NOT_SAID."""
    devices: tuple[str, ...] = ()
    """Distinct names of devices that ops are pinned to, such as gpu:0."""
    device_of: Ints = field(default_factory=_none)
    """[n] index into `devices` of the one device that each op must run on; -1 for none, as everywhere when left out."""
    variables: tuple[Variable, ...] = ()
    """Inside: variables of the step, as far as their names are known. Not part of the fingerprint."""
    variable_of: Ints = field(default_factory=_none)
    """[n] index into `variables` of the variable that each op stands for; -1 for none, as everywhere when left out."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate every array."""
        if not self.origin.kind:
            object.__setattr__(self, "origin", origin_of(self.source))
        object.__setattr__(self, "source", str(self.source))
        for name, count in (("dtype_of", self.ops), ("tensor_dtype", len(self.tensor_op))):
            said = np.asarray(getattr(self, name))
            if not len(said) or (not self.dtypes and (said < 0).all()):
                object.__setattr__(self, name, np.full(count, -1))
        for name in ("device_of", "variable_of"):
            if not np.any(np.asarray(getattr(self, name)) >= 0):
                object.__setattr__(self, name, np.full(self.ops, -1))
        if not np.any(self.kernels):
            object.__setattr__(self, "kernels", np.zeros((self.ops, 1 + max(KERNEL_SIZES)), dtype=np.int64))
        if not np.any(self.loose):
            object.__setattr__(self, "loose", np.full(self.ops, BOUND))
        as_array = {"runs_on": bools, "launches": bools, "flops": floats, "given_s": floats}
        for f in fields(self):
            if f.name not in _NO_ARRAYS:
                object.__setattr__(self, f.name, as_array.get(f.name, ints)(getattr(self, f.name)))
        _check_columns(self)
        _check_values(self)
        if len({variable.name for variable in self.variables}) != len(self.variables):
            raise InputError.build("graph: two variables have one name", remedy="give each a name of its own")
        if len(set(self.names)) != self.ops:
            seen: set[str] = set()
            twice = next(n for n in self.names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
            raise InputError(f"graph: two ops are named {twice!r}")
        if len(topological_order(self.ops, self.edge_src, self.edge_dst)) != self.ops:
            cycle = [self.names[i] for i in find_cycle(self.ops, self.edge_src, self.edge_dst)]
            shown = [*cycle[:8], *(["..."] if len(cycle) > 8 else []), cycle[0]]
            raise InputError(f"graph: a cycle of {len(cycle)} ops: {' -> '.join(shown)}")

    def __repr__(self) -> str:
        """Return one line, without arrays."""
        edges = f"{len(self.src)} data + {len(self.control_src)} control edges"
        batch = "" if self.batch is None else f", batch {self.batch}"
        return f"Graph({reprlib.repr(self.source)}, {plural(self.ops, 'op')}, {edges}{batch})"

    @property
    def ops(self) -> int:
        """Number of ops, n."""
        return len(self.names)

    @property
    def edge_src(self) -> Ints:
        """[e + c] tails of data edges, then of control edges."""
        return np.concatenate([self.src, self.control_src])

    @property
    def edge_dst(self) -> Ints:
        """[e + c] heads of data edges, then of control edges."""
        return np.concatenate([self.dst, self.control_dst])

    def identity(self) -> "GraphIdentity":
        """Return the hashes that tell whether a plan is for this graph."""
        return GraphIdentity(fingerprint=self.fingerprint(), layout=self.layout(), listing=self.listing())

    def fingerprint(self) -> str:
        """Return the SHA-256 over structure, op types, work, bytes, groups and kinds in topological order, but names.

        Two traces of one program in one process name their ops differently but have the same fingerprint.
        """
        src, dst = self.edge_src, self.edge_dst
        listed = np.lexsort((dst, src))  # ties in the order must not depend on how a source lists its edges
        order = topological_order(self.ops, src[listed], dst[listed])
        rank = rank_of(order)
        digest = hashlib.sha256(b"pesto graph 1\n")
        digest.update("\n".join([*sorted(self.kinds), *(self.types[i] for i in self.type_of[order])]).encode())
        for columns in _identity_rows(self, rank, order):
            _digest_rows(digest, columns)
        return digest.hexdigest()

    def layout(self, order: Ints | None = None) -> str:
        """Return the SHA-256 over op types, edges and groups by index; names, costs, bytes, listing do not count.

        Two graphs with one layout have the same structure, op i of one being op i of the other. With `order` [n] it is
        the layout of this graph with its ops rearranged: order[i] is the op that stands at place i. Raise InputError
        when `order` does not hold every op once.
        """
        order, rank = _arrange(self, order)
        names = [t.encode() for t in self.types]
        digest = hashlib.sha256(b"pesto layout 1\n")
        digest.update(b"\n".join([names[i] for i in self.type_of[order].tolist()]))
        data = [rank[self.src], rank[self.dst], _outputs(self)[self.tensor]]
        own = [np.arange(self.ops), _leaders(self, order)]
        for columns in (own, data, [rank[self.control_src], rank[self.control_dst]]):
            _digest_rows(digest, columns)
        return digest.hexdigest()

    def listing(self, order: Ints | None = None) -> str:
        """Return the SHA-256 over the layout, and work, bytes and kinds by index: all that a plan rests on, but names.

        Where two graphs have one listing, op i of one may stand for op i of the other, whatever tells twins of another
        size apart included. `order` and InputError are as in `layout`.
        """
        order, rank = _arrange(self, order)
        digest = hashlib.sha256(b"pesto listing 1\n" + self.layout(order).encode())
        digest.update("\n".join(sorted(self.kinds)).encode())
        for columns in _identity_rows(self, rank, order):
            _digest_rows(digest, columns)
        return digest.hexdigest()

    def to_networkx(self) -> "nx.MultiDiGraph":
        """Return the graph for networkx (docs/guides/other-graphs.md): a node an op, an edge a reader or a wait.

        Attributes are numbers, truths and strings, which files of any format have, and those that would say nothing are
        left out; `pesto.graph_from_networkx` makes the same graph of them. InputError where a kind of device or a data
        type has a comma in its name, which keeps them apart.
        """
        import networkx as nx

        for label in (*self.kinds, *self.dtypes):
            if "," in label:
                raise InputError.build(
                    f"graph: {label!r} has a comma, which separates kinds and data types", remedy="rename it"
                )
        origin = {key: value for key, value in asdict(self.origin).items() if value not in (None, "")}
        said = {
            "source": self.source, "graph_origin": "" if self.origin.kind == "other" else json.dumps(origin),
            "batch": self.batch, "feed_shapes": " ".join(self.feed_shapes), "way": self.way,
            "kinds": ",".join(self.kinds),
        }  # fmt: skip
        multigraph = nx.MultiDiGraph(**_drop_unset(said))
        columns = _node_columns(self)
        for name, *values in zip(self.names, *columns.values(), strict=True):
            multigraph.add_node(name, **_drop_unset(dict(zip(columns, values, strict=True))))
        carried = [column[self.tensor].tolist() for column in (_outputs(self), self.tensor_bytes, self.tensor_dtype)]
        dtypes = [*self.dtypes, ""]
        for a, b, output, size, dtype in zip(self.src.tolist(), self.dst.tolist(), *carried, strict=True):
            said = {"output": output, "bytes": size, "dtype": dtypes[dtype]}
            multigraph.add_edge(self.names[a], self.names[b], **_drop_unset(said))
        for a, b in zip(self.control_src.tolist(), self.control_dst.tolist(), strict=True):
            multigraph.add_edge(self.names[a], self.names[b], control=True)
        return multigraph


def kernel_counts(kernels: Ints, launches: Bools) -> Ints:
    """Return [n] the number of kernels that each op starts: none, one, or as many as its form says."""
    return np.where(launches, np.where(kernels[:, 0] >= PASSES, kernels[:, 1], 1), 0)


def _drop_unset(said: dict[str, Any]) -> dict[str, Any]:
    """The entries that have a value."""
    return {key: value for key, value in said.items() if value is not None and value != ""}


def _node_columns(g: Graph) -> dict[str, list[Any]]:
    """[n] values of each attribute of a node, None or "" where it would say nothing."""
    kinds, dtypes = np.array(g.kinds, dtype=np.object_), np.array([*g.dtypes, ""], dtype=np.object_)
    forms = zip(g.kernels[:, 0].tolist(), g.kernels[:, 1:].tolist(), strict=True)
    first = np.searchsorted(g.tensor_op, np.arange(g.ops + 1)).tolist()
    read = np.bincount(g.tensor, minlength=len(g.tensor_op)) > 0
    spans = [None if read[a:b].all() else slice(a, b) for a, b in pairwise(first)]
    made = dtypes[g.tensor_dtype].tolist()
    none = Variable("")
    of = [none if v < 0 else g.variables[v] for v in g.variable_of.tolist()]
    given = {f"seconds_{kind}": g.given_s[:, k].tolist() for k, kind in enumerate(g.given_kinds)}
    return {
        "type": [g.types[k] for k in g.type_of.tolist()],
        "scope": [name.rpartition("/")[0] for name in g.names],
        "runs_on": [",".join(kinds[row]) for row in g.runs_on],
        "flops": g.flops.tolist(),
        "moved_bytes": g.moved_bytes.tolist(),
        "param_bytes": g.param_bytes.tolist(),
        "launches": g.launches.tolist(),
        "group": [None if k < 0 else k for k in g.group.tolist()],
        "pinned_to": [None if d < 0 else g.devices[d] for d in g.device_of.tolist()],
        "variable": [v.name for v in of],
        "variable_dtype": [v.dtype for v in of],
        "variable_shape": ["" if v.shape is None else ",".join(map(str, v.shape)) or "()" for v in of],
        "dtype": dtypes[g.dtype_of].tolist(),
        "loose": [k or None for k in g.loose.tolist()],
        "kernel": [KERNEL_FORMS[form] for form in g.kernels[:, 0].tolist()],
        "sizes": [",".join(map(str, sizes[: KERNEL_SIZES[form]])) for form, sizes in forms],
        "outputs": [span and ",".join(map(str, g.tensor_bytes[span].tolist())) for span in spans],
        "dtypes": ["" if span is None or not any(made[span]) else ",".join(made[span]) for span in spans],
        **{key: [None if s != s else s for s in seconds] for key, seconds in given.items()},  # noqa: PLR0124
    }


def _arrange(g: Graph, order: Ints | None) -> tuple[Ints, Ints]:
    """([n] op at each place, [n] place of each op); InputError unless every op has one place."""
    order = np.arange(g.ops) if order is None else np.asarray(order, dtype=np.int64)
    if not np.array_equal(np.sort(order), np.arange(g.ops)):
        raise InputError.build(
            f"graph: the order does not hold each of the {g.ops} ops once", remedy="list every op by index"
        )
    return order, rank_of(order)


def _digest_rows(digest: "hashlib._Hash", columns: Sequence[Ints]) -> None:
    """Add rows, given as columns, whatever their order; the first column counts most."""
    rows = np.stack([np.asarray(c, dtype=np.int64) for c in columns], axis=1)
    rows = rows[np.lexsort(rows.T[::-1])]
    digest.update(f"\n{rows.shape}\n".encode() + rows.astype("<i8").tobytes())


def _leaders(g: Graph, order: Ints) -> Ints:
    """[n] for the op at each place of `order`, the first place of its group; -1 for none."""
    group = g.group[order]
    least = np.full(int(g.group.max(initial=-1)) + 2, g.ops)
    np.minimum.at(least, group, np.arange(g.ops))
    return np.where(group < 0, -1, least[group])


def _outputs(g: Graph) -> Ints:
    """[t] which output of its op each tensor is."""
    return np.arange(len(g.tensor_op)) - np.searchsorted(g.tensor_op, np.arange(g.ops))[g.tensor_op]


def _identity_rows(g: Graph, rank: Ints, order: Ints) -> list[list[Ints]]:
    """The rows that identify a graph, as columns; `rank` is the topological index of each op."""
    place = np.arange(g.ops)
    kinds = sorted(range(len(g.kinds)), key=lambda k: g.kinds[k])
    output = _outputs(g)
    own = [place, _leaders(g, order), g.param_bytes, g.moved_bytes, g.launches, g.flops.view(np.int64)]
    # A device that ops are pinned to counts by a number of its name.
    numbers = [int.from_bytes(hashlib.sha256(name.encode()).digest()[:7]) for name in g.devices]
    pinned = [np.array([*numbers, -1], dtype=np.int64)[g.device_of]] if (g.device_of >= 0).any() else []
    return [
        [*own[:2], *(column[order] for column in (*own[2:], *pinned)), *(g.runs_on[order, k] for k in kinds)],
        [rank[g.tensor_op], output, g.tensor_bytes],
        [rank[g.src], rank[g.dst], output[g.tensor]],
        [rank[g.control_src], rank[g.control_dst]],
    ]


def _check_columns(g: Graph) -> None:
    """Shapes of all columns, and indices that point at something."""
    n, e, k = g.ops, len(g.src), len(g.kinds)
    want = {
        "type_of": (n,), "tensor_bytes": (len(g.tensor_op),), "dst": (e,), "tensor": (e,),
        "control_dst": (len(g.control_src),), "group": (n,), "runs_on": (n, k), "param_bytes": (n,), "flops": (n,),
        "moved_bytes": (n,), "launches": (n,), "given_s": (n, len(g.given_kinds)), "dtype_of": (n,),
        "tensor_dtype": (len(g.tensor_op),), "loose": (n,), "kernels": (n, 1 + max(KERNEL_SIZES)),
        "device_of": (n,), "variable_of": (n,),
    }  # fmt: skip
    for name, shape in want.items():
        if getattr(g, name).shape != shape:
            raise InputError(f"graph: {name} has shape {getattr(g, name).shape}, expected {shape}")
    beyond = {
        "type_of": len(g.types), "tensor_op": g.ops, "src": g.ops, "dst": g.ops, "tensor": len(g.tensor_op),
        "control_src": g.ops, "control_dst": g.ops, "dtype_of": len(g.dtypes), "tensor_dtype": len(g.dtypes),
        "loose": BRANCHED + 1, "device_of": len(g.devices), "variable_of": len(g.variables),
    }  # fmt: skip
    for name, limit in beyond.items():
        values = getattr(g, name)
        bad = np.flatnonzero((values < (-1 if name in _MAY_BE_NONE else 0)) | (values >= limit))
        if len(bad):
            raise InputError(f"graph: {name}[{bad[0]}] = {values[bad[0]]} points at nothing (0..{limit - 1} exist)")
    if not bool((np.diff(g.tensor_op) >= 0).all()):
        raise InputError("graph: tensors must be listed in the order of the ops that produce them")
    wrong = np.flatnonzero(g.tensor_op[g.tensor] != g.src)
    if len(wrong):
        op = g.names[g.src[wrong[0]]]
        raise InputError(f"graph: data edge {wrong[0]} leaves op {op} with a tensor of another op")


def _check_values(g: Graph) -> None:
    for name in ("tensor_bytes", "param_bytes", "flops", "moved_bytes"):
        values = getattr(g, name)
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if len(bad):
            raise InputError.build(f"graph: {name}[{bad[0]}] = {values[bad[0]]}", remedy="it must be finite and >= 0")
    bad = np.flatnonzero((np.isinf(g.given_s) | (g.given_s < 0)).any(axis=1))
    if len(bad):
        raise InputError(f"graph: the time given for op {g.names[bad[0]]} is negative or infinite")
    rows = g.kernels
    form = rows[:, 0]
    unknown = (form < 0) | (form >= len(KERNEL_FORMS))
    sizes = np.array(KERNEL_SIZES)[np.where(unknown, 0, form)]
    listed = np.arange(1, rows.shape[1]) <= sizes[:, None]
    # Flags, and bytes that a kernel may not have, may be zero; a size may not.
    least = np.where(((form == MATMUL)[:, None] & (np.arange(1, rows.shape[1]) > 4)) | (form >= PASSES)[:, None], 0, 1)
    wrong = (rows[:, 1:] < np.where(listed, least, 0)) | (~listed & (rows[:, 1:] != 0))
    bad = np.flatnonzero(unknown | wrong.any(axis=1))
    if len(bad):
        raise InputError.build(
            f"graph: kernels[{bad[0]}] = {rows[bad[0]].tolist()}", remedy="it is no form with its sizes"
        )
    if g.batch is not None and g.batch < 1:
        raise InputError.build(f"graph: batch is {g.batch}", remedy="it must be at least 1")
    if g.way not in MEANT:
        raise InputError.build(f"graph: way is {g.way!r}", remedy=f"it must be one of {MEANT}")
    nowhere = np.flatnonzero(~g.runs_on.any(axis=1)) if g.kinds else np.arange(g.ops)
    if len(nowhere):
        raise InputError.build(
            f"graph: op {g.names[nowhere[0]]} can run on no kind of device", remedy=f"give it one of {g.kinds}"
        )
