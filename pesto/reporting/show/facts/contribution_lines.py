"""Contributions of a solve's engines, as keys and as lines."""

from collections.abc import Sequence
from typing import Any

from pesto.core.problem import TICK_S
from pesto.core.quantities import duration
from pesto.planning.solving.contributions import Contribution
from pesto.reporting.show.lines import fact


def contribution_keys(first: int, contributions: Sequence[Contribution]) -> dict[str, Any]:
    """The first plan that fits, and by engine what was gained from it on, in seconds; together, the plan's step."""
    return {
        "first_s": first * TICK_S,
        "engines": [
            {
                "engine": one.engine,
                "solver": one.solver or None,
                "gained_s": one.gained * TICK_S,
                "bound_raised_s": one.raised * TICK_S,
                "cpu_s": round(one.cpu_s, 4),
            }
            for one in contributions
        ],
    }


def contribution_lines(first: int, contributions: Sequence[Contribution]) -> list[str]:
    """Two lines: what was gained by whom, and the CPU seconds of each."""
    gains = [f"{_name(one)} {_signed(one.gained)}" for one in contributions if one.gained]
    gains += [f"bound raised by {duration(one.raised * TICK_S)} ({_name(one)})" for one in contributions if one.raised]
    spent = [f"{_name(one)} {one.cpu_s:.2f}" for one in contributions]
    return [
        fact(
            "gained", ", ".join([f"from {duration(first * TICK_S)} on: {gains[0]}", *gains[1:]]) if gains else "nothing"
        ),
        fact("CPU seconds", ", ".join(spent)),
    ]


def _name(one: Contribution) -> str:
    return f"{one.engine} ({one.solver})" if one.solver else one.engine


def _signed(ticks: int) -> str:
    return f"{'-' if ticks < 0 else ''}{duration(abs(ticks) * TICK_S)}"
