"""Names that go from a rewritten GraphDef, since what is fed under them would no longer reach all that reads it.

A small constant has a copy on each device that reads it, and the readers of a barrier are led around it. A program that
feeds, maps or fetches such a name in the written graph gets TensorFlow's own error, and no other result.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pesto.core.errors import UsageError
from pesto.core.files.json import quoted, shown
from pesto.tf.apply_placement.placement import StepPlacement
from pesto.tf.apply_placement.relays import small_constants
from pesto.tf.apply_placement.step_graph import StepTrace
from pesto.tf.nodes.fetches import op_name
from pesto.tf.nodes.needed_nodes import COPY, producer

_COLOCATED = "loc:@"
_OWN = f"{COPY}own"


def constants_to_keep(wanted: Iterable[str], trace: StepTrace, names: Collection[str]) -> frozenset[str]:
    """The ops that `wanted` names, by op or tensor: small constants of the step that stay one node each.

    names: all of the program's ops. UsageError for what is no such constant.
    """
    # Feeding a constant replaces its value for all readers. With copies on several devices a feed would reach one of
    # them only, so the name is removed unless the user keeps it.
    small, kept = small_constants(trace), set()
    for text in wanted:
        name = op_name(text)
        if text.startswith("^"):
            raise UsageError.build(
                f"keep: {shown(text)} names an op to wait for, no tensor to feed, map or fetch",
                remedy=f"give {shown(name)}",
            )
        if name not in small:
            raise UsageError(f"keep: {_why_not(name, trace, names, small)}")
        kept.add(name)
    return frozenset(kept)


def _why_not(name: str, trace: StepTrace, names: Collection[str], small: Collection[str]) -> str:
    if name in trace.passed:
        through = ", ".join(shown(tensor) for tensor in trace.passed[name][:4])
        return f"{shown(name)} passes tensors on, and its readers are led around it - feed or fetch these: {through}"
    if name in names:
        return f"{shown(name)} is no constant that a plan copies, so its name stays - leave it out"
    near = difflib.get_close_matches(name, small, n=1, cutoff=0.5)
    remedy = f"did you mean {quoted(near[0])}?" if near else "name a constant of the step, of at most 128 bytes"
    return f"no op is named {quoted(name)} - {remedy}"


def constant_renames(placement: StepPlacement) -> dict[str, str]:
    """Return the new names of constants that have copies: on its own device the constant is one more copy."""
    return {copy.constant: f"{copy.constant}{_OWN}" for copy in placement.copies}


def rename_nodes(nodes: Iterable[Any], names: Mapping[str, str]) -> None:
    """Call nodes otherwise, in place: by themselves, as inputs, and where others are tied to them."""
    for node in nodes:
        node.name = names.get(node.name, node.name)
        if any(producer(text) in names for text in node.input):
            node.input[:] = [_renamed(text, names) for text in node.input]
        if "_class" in node.attr:
            tied = node.attr["_class"].list.s
            tied[:] = [_tied(place, names) for place in tied]


def _renamed(text: str, names: Mapping[str, str]) -> str:
    name = producer(text)
    return text.replace(name, names[name], 1) if name in names else text


def _tied(place: bytes, names: Mapping[str, str]) -> bytes:
    name = place.decode(errors="replace").removeprefix(_COLOCATED)
    return f"{_COLOCATED}{names[name]}".encode() if name in names else place


def bypassed_barriers(program: Any, passed: Mapping[str, Sequence[str]], planned: Collection[str]) -> tuple[str, ...]:
    """Barriers of a GraphDef that something reads, but for those that the step itself fetches, which are `planned`."""
    read = {producer(text) for node in program.node for text in node.input}
    return tuple(name for name in passed if name in read and name not in planned)


def remove_nodes(graph_def: Any, names: Collection[str]) -> None:
    """Take nodes that nothing reads out of a GraphDef, in place."""
    # Deletion from a repeated field shifts later indices, hence from the end.
    for k in reversed([k for k, node in enumerate(graph_def.node) if node.name in names]):
        del graph_def.node[k]
