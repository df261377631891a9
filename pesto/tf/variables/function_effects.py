"""Effects of ops on a resource that they are given, through the functions of calls, loops and branches too."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pesto.tf.nodes.inline import CALLS, called_names
from pesto.tf.nodes.signatures import Signatures

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
"""Op type -> the outputs at which it hands on a resource."""
_MAX_DEPTH = 64


class ResourceEffect(NamedTuple):
    """Effect of an op or a function on a resource that it is given."""

    written: bool
    outputs: frozenset[int] = frozenset()
    """Outputs at which the resource is passed on."""


class _TensorUses(NamedTuple):
    """Readers of the tensors of a function; tensors by the names that the function gives them."""

    takers: dict[str, list[tuple[Any, int]]]
    """Tensor -> the nodes that take it, and as which input."""
    outputs: dict[str, set[str]]
    """Node -> its tensors that something takes."""
    results: dict[str, list[int]]
    """Tensor -> where the function returns it."""


def plain_effect(op_type: str, slot: int) -> ResourceEffect:
    """The fate of input `slot` of an op that has no functions."""
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
        """The fate of input `slot` (a resource) of a NodeDef; written where one of its functions is missing."""
        if node.op in LOOPS:
            return self._loop(node, slot, depth)
        if node.op in BRANCHES:
            if slot == 0:  # what chooses the branch
                return ResourceEffect(written=False)
            # Combine the effects of functions of which one runs; without any, the resource counts as written.
            fates = [self.of(name, slot - 1, depth) for name in called_names(node)]
            return ResourceEffect(
                not fates or any(f.written for f in fates), frozenset().union(*(f.outputs for f in fates))
            )
        if node.op in CALLS:
            return self.of(node.attr["f"].func.name, slot, depth)
        return self.of(node.op, slot, depth) if node.op in self.signatures.library else plain_effect(node.op, slot)

    def of(self, name: str, argument: int, depth: int = 0) -> ResourceEffect:
        """The fate of an argument of a function."""
        function = self.signatures.library.get(name)
        if function is None or argument >= len(function.signature.input_arg) or depth > _MAX_DEPTH:
            return ResourceEffect(written=True)
        if (name, argument) not in self._known:
            self._known[name, argument] = ResourceEffect(written=False)  # what a function that calls itself finds
            self._known[name, argument] = self._follow(function, argument, depth + 1)
        return self._known[name, argument]

    def _loop(self, node: Any, slot: int, depth: int) -> ResourceEffect:
        """A loop hands each round's results to the next, and the last ones on."""
        rounds = self.of(node.attr["body"].func.name, slot, depth)
        seen, stack = {slot}, list(rounds.outputs)
        written = rounds.written
        while stack and not written:
            at = stack.pop()
            if at not in seen:
                seen.add(at)
                rounds = self.of(node.attr["body"].func.name, at, depth)
                written = rounds.written
                stack += rounds.outputs
        tested = (self.of(node.attr["cond"].func.name, at, depth).written for at in seen)
        return ResourceEffect(written=written or any(tested), outputs=frozenset(seen))

    def _follow(self, function: Any, argument: int, depth: int) -> ResourceEffect:
        uses = self._uses.setdefault(function.signature.name, _TensorUses({}, {}, {}))
        if not uses.takers:
            _fill(uses, function)
        seen = {function.signature.input_arg[argument].name}
        stack, written = list(seen), False
        while stack:
            for node, slot in uses.takers.get(stack.pop(), ()):
                fate = self.fate(node, slot, depth)
                written |= fate.written
                handed = uses.outputs.get(node.name, ()) if fate.outputs else ()
                new = {t for t in handed if t not in seen and self._position(node, t) in fate.outputs}
                seen |= new
                stack += new
        return ResourceEffect(written, frozenset(k for tensor in seen for k in uses.results.get(tensor, ())))

    def _position(self, node: Any, tensor: str) -> int:
        _, output, k = (*tensor.split(":"), "", "")[:3]
        return self.signatures.output_offset(node, output) + int(k or 0)


def _fill(uses: _TensorUses, function: Any) -> None:
    for node in function.node_def:
        for slot, tensor in enumerate(node.input):
            if not tensor.startswith("^"):
                uses.takers.setdefault(tensor, []).append((node, slot))
                uses.outputs.setdefault(tensor.partition(":")[0], set()).add(tensor)
    for k, result in enumerate(function.signature.output_arg):
        tensor = function.ret.get(result.name, "")
        uses.results.setdefault(tensor, []).append(k)
        uses.outputs.setdefault(tensor.partition(":")[0], set()).add(tensor)
