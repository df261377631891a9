"""Facts of a training step, for people and as one JSON object."""

from collections.abc import Iterable, Sequence
from typing import Any

from pesto.core.errors import describe_error
from pesto.core.quantities import plural, shorten, size
from pesto.reporting.show.lines import fact, paragraph
from pesto.tf.step_facts import ColocationTie, StepFacts, StepFeed

MOST = 5
"""Rows of a kind that a page has; the JSON object has all."""


def as_object(facts: StepFacts) -> dict[str, Any]:
    """The keys of `pesto inspect --json`; None where the source does not say."""
    feeds = None if facts.feeds is None else [_feed(feed) for feed in facts.feeds]
    return {
        "source": facts.source,
        "inputs": feeds,
        "batch": {"open": facts.open_batch, "given": facts.batch},
        "optimizer": {"class": facts.optimizer or None, "updates": dict(facts.updates)},
        "trains": None if facts.updated is None else facts.updated > 0,
        "updated_variables": facts.updated,
        "ops": facts.ops,
        "variables": facts.variables,
        "variable_bytes": facts.variable_bytes,
        "ends": list(facts.ends),
        "groups": [_tie(tie) for tie in facts.ties],
        "loops_and_branches": [_tie(tie) for tie in facts.holders],
        "pinned": dict(facts.pinned),
        "careful": list(facts.careful),
        "refused": [describe_error(error, None).as_object() for error in facts.refused],
    }


def _feed(feed: StepFeed) -> dict[str, Any]:
    shape = None if feed.shape is None else [None if d < 0 else d for d in feed.shape]
    return {"name": feed.name, "dtype": feed.dtype, "shape": shape}


def _tie(tie: ColocationTie) -> dict[str, Any]:
    return {"ops": tie.ops, "variables": tie.variables, "variable_bytes": tie.variable_bytes, "why": tie.why}


def page(facts: StepFacts) -> str:
    """A page for people."""
    rows = [
        paragraph(f"{facts.source}: {plural(facts.ops, 'op')}", 2),
        *(fact("input", _shaped(feed)) for feed in (facts.feeds or ())[:MOST]),
        *_more("input", len(facts.feeds or ())),
        fact("batch", _batch(facts)),
        fact("variables", f"{facts.variables}, {size(facts.variable_bytes)}"),
        *([] if facts.updated is None else [fact("trains", _updates(facts))]),
        *([fact("optimizer", facts.optimizer)] if facts.optimizer else []),
        *([fact("ends with", ", ".join(map(shorten, facts.ends)))] if 0 < len(facts.ends) <= MOST else []),
        *_ties("tied", [tie for tie in facts.ties if tie.variables != 1]),
        *_around_one([tie for tie in facts.ties if tie.variables == 1]),
        *_ties("holds", facts.holders),
        *([fact("pinned", _pinned(facts))] if any(facts.pinned.values()) else []),
        *(fact("careful", text) for text in facts.careful),
        *(fact("refused", str(error)) for error in facts.refused),
    ]
    return "\n".join([*rows, *([] if facts.refused else [fact("refused", "nothing: it can be planned")])])


def _shaped(feed: StepFeed) -> str:
    shape = "of unknown rank" if feed.shape is None else f"[{', '.join('?' if d < 0 else str(d) for d in feed.shape)}]"
    return f"{shorten(feed.name)}: {feed.dtype} {shape}"


def _batch(facts: StepFacts) -> str:
    if facts.feeds is None:
        return "as the file has it"
    if not facts.open_batch:
        given = f"; {facts.batch} was given for open first dimensions" if facts.batch else ""
        return f"fixed by the shapes, or none{given}"
    if facts.batch is None:
        text = "open: a size of it is needed to plan"
    else:
        text = f"{facts.batch}, where the graph leaves it open"
    if facts.size_ops:
        text += (
            f"; {plural(facts.size_ops, 'op')} read its size as the step runs, and others reckon with it: a fixed "
            "batch is shorter - give an example batch, or a signature with its size"
        )
    return text


def _updates(facts: StepFacts) -> str:
    if not facts.updated:
        return "no: it updates no variable, which is inference"
    types = ", ".join(f"{count} {kind}" for kind, count in facts.updates.items())
    return f"yes: it updates {facts.updated} of its variables, by {types}"


def _ties(label: str, ties: Sequence[ColocationTie]) -> Iterable[str]:
    for tie in ties[:MOST]:
        held = f"{plural(tie.variables, 'variable')}, {size(tie.variable_bytes)}" if tie.variables else "no variable"
        yield fact(label, f"{f'{tie.ops} ops, ' if tie.ops > 1 else ''}{held}: {tie.why}")
    yield from _more(label, len(ties))


def _around_one(ties: Sequence[ColocationTie]) -> Iterable[str]:
    """Groups that hold no two variables together."""
    if ties:
        many = f"{len(ties)} groups, each around a variable of its own, the largest " if len(ties) > 1 else ""
        yield fact("tied", f"{many}{plural(ties[0].ops, 'op')}, {size(ties[0].variable_bytes)}: {ties[0].why}")


def _pinned(facts: StepFacts) -> str:
    """Ops of each device, those with most first, and how many may run anywhere."""
    result = sorted((-many, device) for device, many in facts.pinned.items() if many)
    told = [f"{plural(-many, 'op')} to {shorten(device)}" for many, device in result]
    rest = [f"{len(told) - MOST} more devices"] if len(told) > MOST else []
    free = facts.ops - sum(facts.pinned.values())
    return f"{', '.join([*told[:MOST], *rest])}; {plural(free, 'op') if free else 'none'} without"


def _more(label: str, count: int) -> list[str]:
    return [fact(label, f"... and {count - MOST} more")] if count > MOST else []
