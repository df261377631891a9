"""Names of what is fetched from a graph, checked before TensorFlow is loaded, too."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pesto.core.errors import InputError


def op_name(tensor: str) -> str:
    """The op of a tensor name `op:k`, a control input `^op`, or an op's own name."""
    return tensor.removeprefix("^").partition(":")[0]


def checked_fetches(fetches: Iterable[Any], outputs: Mapping[str, int], where: str) -> tuple[str, ...]:
    """Names of the ops to fetch, each once, from tensors, ops, variables or names of any.

    `outputs` maps op names to their number of outputs. InputError for a name that the graph lacks, with the nearest.
    """
    names: dict[str, None] = {}
    for fetch in fetches:
        name = fetch if isinstance(fetch, str) else str(getattr(fetch, "name", fetch))
        op = op_name(name)
        if op not in outputs:
            near = difflib.get_close_matches(op, outputs, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]!r}?" if near else "name an op of the graph"
            raise InputError.build(f"no op is named {op!r}", where=where, remedy=remedy)
        index = name.partition(":")[2]
        if index and not (index.isdigit() and int(index) < outputs[op]):
            raise InputError.build(f"op {op!r} has no output {index!r}", where=where, remedy=f"it has {outputs[op]}")
        names[op] = None
    if not names:
        raise InputError.build(
            "nothing to fetch", where=where, remedy="name the training op and the loss as what to fetch"
        )
    return tuple(names)
