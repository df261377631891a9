"""How far to trust a plan, as pages and JSON objects say it."""

from dataclasses import asdict
from typing import Any

from pesto.core.quantities import duration, durations, percent, plural
from pesto.planning.solving.trust import Trust
from pesto.reporting.show.lines import fact
from pesto.reporting.show.table import align_rows

_HARDLY = 0.05
"""Share of the variance below which a page names no kind."""
_NAMED = 3
"""Kinds that a line names at most."""


def trust_keys(trust: Trust) -> dict[str, Any]:
    """The JSON object; seconds of seconds, shares of shares."""
    return asdict(trust)


def trust_line(trust: Trust) -> str:
    """One fact: the plan's spread, whether it stays the best, and what matters most."""
    plan = trust.plan
    spread = f"{duration(plan.p10_s)} to {duration(plan.p90_s)} (p10 to p90, median {duration(plan.p50_s)})"
    return fact("trust", "; ".join([f"{spread} at {_noise(trust)}", *_stays(trust), *_most(trust, _NAMED)]))


def trust_table(trust: Trust) -> list[str]:
    """Lines: the plan and its rivals, and what matters most."""
    named = {"plan": trust.plan, **trust.rivals}
    spreads = [(each.step_s, each.p10_s, each.p50_s, each.p90_s) for each in named.values()]
    times = durations([seconds for each in spreads for seconds in each])
    rows = [(f"  {name}", *times[4 * k : 4 * k + 4], percent(named[name].best)) for k, name in enumerate(named)]
    head = ("", "step", "p10", "p50", "p90", "shortest in")
    most = _most(trust, len(trust.kinds) + len(trust.links))
    return ["", *align_rows([head, *rows], "<>"), "", fact("trust", "; ".join([_noise(trust), *_stays(trust), *most]))]


def _noise(trust: Trust) -> str:
    return f"noise {trust.noise:g} ({plural(trust.draws, 'draw')})"


def _stays(trust: Trust) -> list[str]:
    """How often the plan stays the best, who else is, and whose p90 is less."""
    if not trust.rivals:
        return ["no rival fits the memory"]
    often = max(trust.rivals, key=lambda name: trust.rivals[name].best)
    safe = min(trust.rivals, key=lambda name: trust.rivals[name].p90_s)
    also = f" ({often} in {percent(trust.rivals[often].best)})" if trust.rivals[often].best else ""
    least = trust.rivals[safe].p90_s
    less = [f"{safe} has a lower p90, {duration(least)}"] if least < trust.plan.p90_s else []
    return [f"the shortest in {percent(trust.plan.best)}{also}", *less]


def _most(trust: Trust, named: int) -> list[str]:
    """Name the cost that explains most of the variance, if one does."""
    shares = {**trust.kinds, **{f"transfers {name}": share for name, share in trust.links.items()}}
    most = sorted(((share, name) for name, share in shares.items() if share >= _HARDLY), reverse=True)[:named]
    return [f"variance by {', '.join(f'{name} {percent(share)}' for share, name in most)}"] if most else []
