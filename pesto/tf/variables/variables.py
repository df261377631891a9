"""Variables of a step: their sizes, the origins of their handles, and the ops that read and write each.

A resource is touched by the ops that take its handle: ReadVariableOp returns a value, since updates copy a buffer that
others hold. A *reference* variable (VariableV2) is updated in place: Identity and other views of it share its buffer,
between logical CPUs too, so every op behind a view touches it. Effects are followed through calls, loops and branches.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from pesto.core.graph import Variable, unique_name
from pesto.tf.nodes.inline import CALLS, find_called_names
from pesto.tf.nodes.needed_nodes import RESOURCE, TRAVELS_NOT, Shape, Signatures, StepNodes

_REF_VARIABLES = ("VariableV2", "Variable", "TemporaryVariable")
NAMED = ("VarHandleOp", "VariableV2", "Variable")
"""Ops that make a named variable; ops with equal names make one variable."""
_ANONYMOUS = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"
"""The shared name that TensorFlow gives to handles that share with none."""
_ALIGNED = ("While", "StatelessWhile", "IdentityN")
_TOO_LARGE = 1 << 62


@functools.cache
def size_of(dtype: int) -> int:
    """Return the bytes of one element, by data type number; at least 1 for packed types."""
    return max(1, int(tf.as_dtype(dtype).size))


def bytes_of(dtype: int, shape: Shape) -> int:
    """Return the bytes of a tensor, capped so that sums fit 64 bits; 0 if its shape is unknown or it stays."""
    if shape is None or -1 in shape or dtype in TRAVELS_NOT:
        return 0
    return min(math.prod(shape) * size_of(dtype), _TOO_LARGE)


Roots = list[tuple[int, ...]]
"""[n] For each output of a node, the node that made the handle in it; -1 where it is no resource."""


def find_resource_origins(nodes: StepNodes) -> Roots:
    """Return the origin of each resource, through identities, switches, and loops (output k is argument k)."""
    origins: Roots = []
    for i, dtypes in enumerate(nodes.dtypes):
        if RESOURCE not in dtypes:
            origins.append((-1,) * len(dtypes))
            continue
        # The edge that closes a v1 loop comes from a node that is not reached yet.
        input_origins = [origins[p][k] if p < i else -1 for p, k in nodes.inputs[i]]
        aligned = nodes.defs[i].op in _ALIGNED
        first = next((g for g in input_origins if g >= 0), i)
        origins.append(
            tuple(-1 if t != RESOURCE else input_origins[k] if aligned else first for k, t in enumerate(dtypes))
        )  # fmt: skip
    return origins


def value_bytes(nodes: StepNodes, root: Roots) -> list[int]:
    """Return [n] the bytes of the variable behind a handle or reference; 0 for every other op."""
    sizes = [0] * len(nodes.defs)
    for i, node in enumerate(nodes.defs):
        if node.op == "VarHandleOp" or node.op in _REF_VARIABLES:
            sizes[i] = bytes_of(node.attr["dtype"].type, declared_shape(node))
    # A handle without a shape (a captured one, in a GraphDef from a file) has the size of its readers' output.
    for i, node in enumerate(nodes.defs):
        if node.op == "ReadVariableOp" and nodes.inputs[i]:
            p, k = nodes.inputs[i][0]
            handle = root[p][k]
            if handle >= 0 and not sizes[handle]:
                sizes[handle] = bytes_of(nodes.dtypes[i][0], nodes.shapes[i][0])
    return sizes


def shared_key(node: Any) -> tuple[bytes, bytes]:
    """Return container and name of the variable that a node makes: nodes with the same ones make one variable."""
    name = node.attr["shared_name"].s
    return node.attr["container"].s, node.name.encode() if name in (b"", _ANONYMOUS) else name


def find_variables(nodes: StepNodes) -> tuple[tuple[Variable, ...], list[int]]:
    """Return the variables of a step, and [n] the index of the variable that each node makes, or -1."""
    place: dict[tuple[bytes, bytes], int] = {}
    variables: list[Variable] = []
    taken: dict[str, int] = {}
    of = [-1] * len(nodes.defs)
    for i, node in enumerate(nodes.defs):
        if node.op in NAMED:
            key = shared_key(node)
            of[i] = place.setdefault(key, len(place))
            if of[i] == len(variables):
                name = unique_name(key[1].decode(errors="replace"), taken)
                dtype = tf.as_dtype(node.attr["dtype"].type).base_dtype.name
                variables.append(Variable(name, dtype, declared_shape(node)))
    return tuple(variables), of


def declared_shape(node: Any) -> Shape:
    """Return the `shape` attribute of a variable or placeholder."""
    shape = node.attr["shape"].shape
    return None if shape.unknown_rank else tuple(d.size for d in shape.dim)


READS = frozenset(
    """ReadVariableOp _ReadVariablesOp ResourceGather ResourceGatherNd VariableShape VarIsInitializedOp
    DisableCopyOnRead IsResourceHandleRefCounting ResourceInitializedOp IteratorToStringHandle IteratorGetDevice
    LookupTableFind LookupTableFindV2 LookupTableSize LookupTableSizeV2 LookupTableExport LookupTableExportV2
    QueueSize QueueSizeV2 QueueIsClosed QueueIsClosedV2 ResourceAccumulatorNumAccumulated IsVariableInitialized
    RefIdentity RefEnter RefExit RefNextIteration RefSwitch RefMerge RefSelect DebugGradientRefIdentity""".split()  # noqa: SIM905
)  # fmt: skip
"""Ops that take a handle or reference and change nothing behind it; every other op counts as a writer."""

OTHERWISE_ORDERED = ("TensorArray", "Stack", "SummaryWriter")
"""Prefixes of resources whose ops are ordered by their flow, or need no order."""

LOOPS = frozenset(("While", "StatelessWhile"))
BRANCHES = frozenset(("If", "StatelessIf", "Case", "StatelessCase"))
FLOW = LOOPS | BRANCHES
_PASSES = {
    **dict.fromkeys(("Identity", "Enter", "Exit", "NextIteration", "Merge"), (0,)),
    "Switch": (0, 1),
}  # fmt: skip
"""Op type -> outputs at which it hands on a resource."""
_MAX_DEPTH = 64


class ResourceEffect(NamedTuple):
    """Effect of an op or a function on a resource that it is given."""

    written: bool
    outputs: frozenset[int] = frozenset()
    """Outputs at which the resource is passed on."""


class _TensorUses(NamedTuple):
    """Readers of the tensors of a function; tensors by their names in the function."""

    readers: dict[str, list[tuple[Any, int]]]
    """Tensor -> nodes that read it, with the number of the input."""
    outputs: dict[str, set[str]]
    """Node -> its tensors that something reads."""
    results: dict[str, list[int]]
    """Tensor -> numbers of the function's results that it is."""


def plain_effect(op_type: str, slot: int) -> ResourceEffect:
    """Return the effect of an op that has no functions on input `slot`."""
    if op_type in READS or op_type.startswith(OTHERWISE_ORDERED):
        return ResourceEffect(written=False)
    if op_type == "IdentityN":
        return ResourceEffect(written=False, outputs=frozenset((slot,)))
    return ResourceEffect(written=op_type not in _PASSES, outputs=frozenset(_PASSES.get(op_type, ())))


@dataclass(frozen=True, slots=True)
class FunctionEffects:
    """Follows resources through the functions of a library; each argument of a function once."""

    signatures: Signatures
    _known: dict[tuple[str, int], ResourceEffect] = field(default_factory=dict)
    _uses: dict[str, _TensorUses] = field(default_factory=dict)

    def fate(self, node: Any, slot: int, depth: int = 0) -> ResourceEffect:
        """Return the effect of a NodeDef on its input `slot`, a resource; written where a function is missing."""
        if node.op in LOOPS:
            # A loop hands each round's results to the next, and the last ones on.
            visited, stack, written = set[int](), [slot], False
            while stack and not written:
                argument = stack.pop()
                if argument not in visited:
                    visited.add(argument)
                    rounds = self.of(node.attr["body"].func.name, argument, depth)
                    written = rounds.written
                    stack += rounds.outputs
            tested = (self.of(node.attr["cond"].func.name, argument, depth).written for argument in visited)
            return ResourceEffect(written=written or any(tested), outputs=frozenset(visited))
        if node.op in BRANCHES:
            if slot == 0:  # what chooses the branch
                return ResourceEffect(written=False)
            # Combine the effects of functions of which one runs; without any, the resource counts as written.
            fates = [self.of(name, slot - 1, depth) for name in find_called_names(node)]
            return ResourceEffect(
                not fates or any(f.written for f in fates), frozenset().union(*(f.outputs for f in fates))
            )
        if node.op in CALLS:
            return self.of(node.attr["f"].func.name, slot, depth)
        return self.of(node.op, slot, depth) if node.op in self.signatures.library else plain_effect(node.op, slot)

    def of(self, name: str, argument: int, depth: int = 0) -> ResourceEffect:
        """Return the effect of a function on an argument."""
        function = self.signatures.library.get(name)
        if function is None or argument >= len(function.signature.input_arg) or depth > _MAX_DEPTH:
            return ResourceEffect(written=True)
        if (name, argument) not in self._known:
            self._known[name, argument] = ResourceEffect(written=False)  # the answer to a function that calls itself
            self._known[name, argument] = self._follow(function, argument, depth + 1)
        return self._known[name, argument]

    def _follow(self, function: Any, argument: int, depth: int) -> ResourceEffect:
        uses = self._uses.setdefault(function.signature.name, _TensorUses({}, {}, {}))
        if not uses.readers:
            for node in function.node_def:
                for slot, tensor in enumerate(node.input):
                    if not tensor.startswith("^"):
                        uses.readers.setdefault(tensor, []).append((node, slot))
                        uses.outputs.setdefault(tensor.partition(":")[0], set()).add(tensor)
            for k, result in enumerate(function.signature.output_arg):
                tensor = function.ret.get(result.name, "")
                uses.results.setdefault(tensor, []).append(k)
                uses.outputs.setdefault(tensor.partition(":")[0], set()).add(tensor)
        # A depth-first search through the ops that pass the resource on.
        visited = {function.signature.input_arg[argument].name}
        stack, written = list(visited), False
        while stack:
            for node, slot in uses.readers.get(stack.pop(), ()):
                fate = self.fate(node, slot, depth)
                written |= fate.written
                for tensor in uses.outputs.get(node.name, ()) if fate.outputs else ():
                    _, output, number = (*tensor.split(":"), "", "")[:3]
                    position = self.signatures.output_offset(node, output) + int(number or 0)
                    if tensor not in visited and position in fate.outputs:
                        visited.add(tensor)
                        stack.append(tensor)
        return ResourceEffect(written, frozenset(k for tensor in visited for k in uses.results.get(tensor, ())))


_IN_PLACE = frozenset(("InplaceUpdate", "InplaceAdd", "InplaceSub"))
"""Ops that write into the buffer of a plain input."""
_WHOLE = _IN_PLACE | frozenset(
    """Identity IdentityN StopGradient PreventGradient PlaceholderWithDefault GuaranteeConst Reshape ExpandDims Squeeze
    EnsureShape CheckNumerics CheckNumericsV2 Print Copy CopyHost DebugIdentity DebugIdentityV2 DebugIdentityV3
    DebugGradientIdentity Switch _SwitchN Merge Enter Exit NextIteration Cast Select AddN Pack Transpose Tile Pad PadV2
    MirrorPad MirrorPadGrad BroadcastTo Sum Mean Max Min Prod RandomShuffle SpaceToBatchND BatchToSpaceND
    MatrixBandPart""".split()  # noqa: SIM905
)
"""Ops whose CPU kernel may hand on its whole input buffer; some only when they have nothing to do."""
_PARTS = frozenset(("Slice", "StridedSlice", "Split", "SplitV", "Unpack"))
"""Ops that may hand on rows of their input's buffer."""
_HOLDERS = ("Bitcast", "TensorList", "TensorArray", "Optional")
"""Prefixes of ops that hand on a buffer as another type, or within a container."""

Tensor = tuple[int, int]
"""A node and the number of its output."""


class Touch(NamedTuple):
    """A read or write of a variable by one op."""

    op: int
    writes: bool
    since: int
    """The op that took the reference behind the view which `op` reads; `op` itself otherwise."""


def touches(nodes: StepNodes) -> dict[int, list[Touch]]:
    """Return {variable (first op that makes it): the ops that touch it, in the order of `nodes`}."""
    scan = _Scan(nodes, find_resource_origins(nodes), FunctionEffects(nodes.signatures))
    for i in range(len(nodes.defs)):
        scan.visit(i)
    return scan.touched


@dataclass(frozen=True, slots=True)
class _Scan:
    """A pass over the nodes that follows references and the views of their buffers."""

    nodes: StepNodes
    root: Roots
    bodies: FunctionEffects
    touched: dict[int, list[Touch]] = field(default_factory=lambda: defaultdict(list))
    _refs: dict[Tensor, set[int]] = field(default_factory=dict)
    """Reference -> the variables it may refer to."""
    _views: dict[Tensor, dict[int, int]] = field(default_factory=dict)
    """Tensor that may share a variable's buffer -> the variable and the op that took its reference."""
    _shared: dict[tuple[bytes, bytes], int] = field(default_factory=dict)

    _plain: set[str] = field(default_factory=set)
    """Op types that return no references."""

    def visit(self, i: int) -> None:
        """Record what node `i` touches, and what its outputs refer to or share."""
        node = self.nodes.defs[i]
        taken: list[set[int]] = []
        views: list[tuple[Tensor, dict[int, int]]] = []
        for slot, tensor in enumerate(self.nodes.inputs[i]):
            p, k = tensor
            if self.nodes.dtypes[p][k] == RESOURCE:
                self._touch_resource(i, slot, self.root[p][k])
            elif tensor in self._refs and _get_flag(self.nodes.signatures.input_refs(node), slot):
                taken.append(self._refs[tensor])
                self._touch(i, dict.fromkeys(taken[-1], i), writes=node.op not in READS)
            elif tensor in self._refs or tensor in self._views:
                view = self._views.get(tensor) or dict.fromkeys(self._refs[tensor], i)
                views.append((tensor, view))
                self._touch(i, view, writes=node.op in _IN_PLACE)
        if node.op in self._plain and not views:
            return
        ref_outputs = self.nodes.signatures.output_refs(node)
        if not ref_outputs:
            self._plain.add(node.op)
        for k in range(len(self.nodes.dtypes[i])):
            if _get_flag(ref_outputs, k):
                # An update returns the reference it was given first; RefMerge and RefSelect return any of theirs.
                inputs = taken if node.op.startswith("Ref") else taken[:1]
                self._refs[i, k] = set().union(*inputs) or {self._variable(i)}
            elif views:
                shared: dict[int, int] = {}
                for tensor, view in views:
                    if _may_share(self.nodes, tensor, (i, k)):
                        shared = view | shared
                if shared:
                    self._views[i, k] = shared

    def _touch_resource(self, i: int, slot: int, made_by: int) -> None:
        op = self.nodes.defs[i].op
        hands_on = any(r >= 0 and r != i for r in self.root[i]) and op not in FLOW
        # An edge that closes a v1 loop has no known origin; the loop's Enter touches the variable.
        if made_by < 0 or hands_on or self.nodes.defs[made_by].op.startswith(OTHERWISE_ORDERED):
            return
        writes = self.bodies.fate(self.nodes.defs[i], slot).written if op in FLOW else op not in READS
        self._touch(i, {self._variable(made_by): i}, writes=writes)

    def _touch(self, i: int, variables: Mapping[int, int], *, writes: bool) -> None:
        for variable, since in variables.items():
            self.touched[variable].append(Touch(i, writes, since))

    def _variable(self, i: int) -> int:
        # Ops with one shared name make one variable; its first op stands for it.
        node = self.nodes.defs[i]
        return self._shared.setdefault(shared_key(node), i) if node.op in NAMED else i


def _get_flag(is_ref: tuple[bool, ...], k: int) -> bool:
    return bool(is_ref) and is_ref[k]


def _may_share(nodes: StepNodes, argument: Tensor, result: Tensor) -> bool:
    """Return True if output `result` may share the buffer of `argument`, an input of its op."""
    (p, q), (i, k) = argument, result
    op = nodes.defs[i].op
    if op.startswith(_HOLDERS):
        return True
    if nodes.dtypes[p][q] != nodes.dtypes[i][k]:
        return False
    if op not in _WHOLE:
        return op in _PARTS or op in FLOW
    before, after = nodes.shapes[p][q], nodes.shapes[i][k]
    if before is None or after is None or -1 in (*before, *after):
        return True
    return math.prod(before) == math.prod(after)
