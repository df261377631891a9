"""Ops that read and write each variable.

A resource is touched by the ops that take its handle: what ReadVariableOp returns is a value, since updates copy a
buffer that others hold. A *reference* variable (VariableV2) is updated in place: Identity and other views of it share
its buffer, between logical CPUs too, so every op behind a view touches it.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.signatures import RESOURCE
from pesto.tf.variables.function_effects import FLOW, OTHERWISE_ORDERED, READS, FunctionEffects
from pesto.tf.variables.variables import NAMED, Roots, resource_origins, shared_key

_IN_PLACE = frozenset(("InplaceUpdate", "InplaceAdd", "InplaceSub"))
"""Ops that write into the buffer of a plain input."""

_WHOLE = _IN_PLACE | frozenset(
    """Identity IdentityN StopGradient PreventGradient PlaceholderWithDefault GuaranteeConst Reshape ExpandDims Squeeze
    EnsureShape CheckNumerics CheckNumericsV2 Print Copy CopyHost DebugIdentity DebugIdentityV2 DebugIdentityV3
    DebugGradientIdentity Switch _SwitchN Merge Enter Exit NextIteration Cast Select AddN Pack Transpose Tile Pad PadV2
    MirrorPad MirrorPadGrad BroadcastTo Sum Mean Max Min Prod RandomShuffle SpaceToBatchND BatchToSpaceND
    MatrixBandPart""".split()  # noqa: SIM905
)
"""Ops whose CPU kernel may hand its input's buffer on, whole; some only when they have nothing to do."""

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
    """Variable (first op that makes it) -> the ops that touch it, in the order of `nodes`."""
    scan = _Scan(nodes, resource_origins(nodes), FunctionEffects(nodes.signatures))
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
                self._handle(i, slot, self.root[p][k])
            elif tensor in self._refs and _at(self.nodes.signatures.input_refs(node), slot):
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
            if _at(ref_outputs, k):
                # An update returns the reference it was given first; RefMerge and RefSelect return any of theirs.
                given = taken if node.op.startswith("Ref") else taken[:1]
                self._refs[i, k] = set().union(*given) or {self._variable(i)}
            elif views:
                self._hand_on(i, k, views)

    def _hand_on(self, i: int, k: int, views: list[tuple[Tensor, dict[int, int]]]) -> None:
        shared: dict[int, int] = {}
        for tensor, view in views:
            if _shares(self.nodes, tensor, (i, k)):
                shared = view | shared
        if shared:
            self._views[i, k] = shared

    def _handle(self, i: int, slot: int, made_by: int) -> None:
        op = self.nodes.defs[i].op
        hands_on = any(r >= 0 and r != i for r in self.root[i]) and op not in FLOW
        # An edge that closes a v1 loop has no known origin; the loop's Enter has told it.
        if made_by < 0 or hands_on or self.nodes.defs[made_by].op.startswith(OTHERWISE_ORDERED):
            return
        writes = self.bodies.fate(self.nodes.defs[i], slot).written if op in FLOW else op not in READS
        self._touch(i, {self._variable(made_by): i}, writes=writes)

    def _touch(self, i: int, variables: Mapping[int, int], *, writes: bool) -> None:
        for variable, since in variables.items():
            self.touched[variable].append(Touch(i, writes, since))

    def _variable(self, i: int) -> int:
        """The first op that makes the variable of node `i`: those with one shared name are one variable."""
        node = self.nodes.defs[i]
        return self._shared.setdefault(shared_key(node), i) if node.op in NAMED else i


def _at(is_ref: tuple[bool, ...], k: int) -> bool:
    return bool(is_ref) and is_ref[k]


def _shares(nodes: StepNodes, given: Tensor, made: Tensor) -> bool:
    """Return True if output `made` may share the buffer of `given`, an input of its op."""
    (p, q), (i, k) = given, made
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
