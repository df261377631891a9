"""Differences of a graph from the one that a plan is for, as far as the names of the ops and the batch tell."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from pesto.core.files.json import shown
from pesto.core.graph import Graph

_NUMBER = re.compile(r"(_\d+)+$")
_OPTIMIZERS = (
    "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "gradientdescent", "lamb", "lion",
    "lossscaleoptimizer", "momentum", "muon", "nadam", "rmsprop", "sgd",
)  # fmt: skip
"""Scopes of Keras' and TensorFlow's optimizers, in small letters and without underscores."""
_PLAIN = ("Const", "ReadVariableOp", "Shape", "x", "y", "input", "resource")
"""Last parts of names that say little of what an op is for."""
_LISTED = 3
PART = "pesto_part"
"""Begins the last part of the names of what takes a branch op's place where it is divided, one for each variable."""


def differences(names: Sequence[str], batch: int | None, graph: Graph) -> str:
    """Describe in a clause how `graph` differs from the plan whose ops are `names`, made with an open batch if any."""
    if batch is not None and graph.batch is not None and batch != graph.batch:
        return f"it was planned with batch={batch}, this is batch={graph.batch}"
    planned, here = _counts(names), _counts(graph.names)
    lost, new = planned - here, here - planned
    branch = _divided_branch(lost, new)
    if branch:
        return (
            f"its branch {shown(branch)} is divided into one for each variable, and whole in the plan, as older "
            "versions left it"
        )
    if not lost and not new:
        return "its ops are the same by name, of other sizes, types of data or pins"
    if (batch is None) != (graph.batch is None):
        opened, fixed = ("the plan", "this step") if batch is not None else ("this step", "the plan")
        return f"{opened} has an open batch (batch={batch or graph.batch}), {fixed} one of a fixed size"
    where = {_scope(name) for name in [*lost, *new] if "/" in name}
    old, now = (
        sorted({name.partition("/")[0] for name in counts if _scope(name) in _OPTIMIZERS}) for counts in (planned, here)
    )
    if old and now and old != now:
        return f"the plan is for the optimizer {'+'.join(old)}, this step has {'+'.join(now)}"
    what = f"its optimizer ({'+'.join(now)}) is set otherwise: " if where and where.issubset(_OPTIMIZERS) else ""
    # How many ops are more or fewer, and what most are called by their own part of the name.
    clauses = []
    for counts, word in ((new, "more"), (lost, "fewer")):
        kinds: Counter[str] = Counter()
        for name, count in counts.items():
            *scopes, last = name.split("/")
            if last not in _PLAIN:
                kinds["/".join([*scopes[-1:], last])] += count
        listed = ", ".join(f"{count} {shown(kind, 40)}" for kind, count in kinds.most_common(_LISTED))
        if counts:
            clauses.append(f"{sum(counts.values())} ops {word}{f' ({listed})' if listed else ''}")
    return what + " and ".join(clauses)


def graph_remedy(names: Sequence[str], batch: int | None, graph: Graph) -> str:
    """Name what to do about a plan of these ops and this batch size that is not for `graph`."""
    planned, here = _counts(names), _counts(graph.names)
    if _divided_branch(planned - here, here - planned):
        return "solve this one again, starting from the plan"
    if batch is not None and graph.batch is not None and batch != graph.batch:
        return f"give a batch of {batch} (batch={batch}), or solve this one"
    return "give the graph that it was made for, or solve this one"


def _divided_branch(lost: Counter[str], new: Counter[str]) -> str | None:
    """A branch op among those that a graph lost whose parts are among the new ones, as it is called there."""
    parts = (name.partition(f"/{PART}")[0] for name in new if f"/{PART}" in name)
    return next((name for name in parts if name in lost), None)


def _counts(names: Iterable[str]) -> Counter[str]:
    """Names without the numbers that tell one trace from the next, and how many ops have each."""
    return Counter("/".join(_NUMBER.sub("", part) for part in name.split("/")) for name in names)


def _scope(name: str) -> str:
    """The outermost, as `_OPTIMIZERS` has it: Keras makes adam_w of AdamW."""
    return name.partition("/")[0].lower().replace("_", "")
