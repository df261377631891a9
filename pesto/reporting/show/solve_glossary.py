"""Glossary of names and lines of a solve's output: `pesto solve --explain-output`."""

from pesto.planning.solving.baselines import RIVALS
from pesto.reporting.show.lines import LABEL, fact, paragraph

WORDS = (
    (("start",), "the plan that the solve began from"),
    (("single",), "all on one GPU"),
    (("expert", "layer-balanced"), "layer after layer, as by hand"),
    (RIVALS, "methods of the literature"),
    (("list", "levels"), "list schedules of the graph and of coarser ones"),
    (("repaired",), "what does not fit, with ops moved until it does"),
    (("coarse",), "the exact solver's, of the coarse graph or of a small one itself"),
    (("search",), "annealed op by op"),
    (("windows",), "the best, window by window, by the exact solver"),
)
"""Meaning of the names in a solve's table; together those of `pesto.planning.solving.flow.CANDIDATES`."""
LINES = (
    ("beaten by", "what the chosen plan saves of that candidate's step; -: none was made"),
    ("costs", "where the times of ops and transfers come from: measured, given or modelled"),
    ("batch", "where its size is open: what the plan was made for, and what that costs"),
    ("step time", "predicted seconds of one training step, and what made the plan"),
    ("lower bound", "no plan of this graph on this cluster at these costs is shorter; gap: the rest, of the step"),
    ("order", "what the enforced order saves against first in, first out, on the same placement"),
    ("turns", "the step in other orders of what nothing enforces: whom links serve first of those that ask at once"),
    ("trust", "the step where times are wrong: its spread, how often it stays the shortest, what the spread is due to"),
    ("tie", "an op that keeps many variables on one device, and what that costs"),
    ("session, function, graphdef", "the step with the part of the order that this way of running enforces"),
    ("coarse graph", "what the exact solver was given, and did; its bound holds there alone"),
    ("exact solver", "what it did on the graph itself; its bound is the graph's"),
    ("layers", "scopes by the device that has most of their time, those that take the most first"),
    ("peak memory", "most bytes alive at one moment of the step"),
    ("gained", "by how much the plan became shorter through each engine, from the first that fits on"),
    ("CPU seconds", "of each engine, in this process and in those that it started"),
    ("compiled", "what was left out, as what it runs was still being compiled when the time was over"),
    ("seconds", "on the clock: of starting the program, of reading the graph, of each stage and of writing"),
    ("verified", "the plan was checked by code that shares none with what made it"),
    ("next", "a command to go on with"),
)
"""Meaning of the lines below the table."""


def glossary_text() -> str:
    """All of it, for a terminal."""
    return "\n".join(
        [
            paragraph("The table has candidates for the plan, and how long each one's step is:"),
            *(_line(", ".join(names), text) for names, text in WORDS),
            "",
            paragraph("The other words:"),
            *(_line(name, text) for name, text in LINES),
        ]
    )


def _line(name: str, text: str) -> str:
    return fact(name, text) if len(name) < LABEL else paragraph(f"{name}: {text}", LABEL)
