"""Plans of `pesto solve --deterministic --solver list`, beside the best rival of the comparison."""

from collections.abc import Iterator, Mapping
from statistics import mean

from benchmarks.tables.steps import CLUSTERS
from pesto.reporting.show.lines import head, ms, ratio, row
from pesto.research.reproduction.cached_cells import PAPER, CellResult, Found, Key, WorkCell
from pesto.research.reproduction.work.solves import solved

OURS = ("mcmc", "pesto")
"""Methods that search as long as they are given: no rivals here."""
SHOWN = ("single", "expert", "pardnn", "m-etf", "metis", "list", "levels", "coarse")
"""Candidates of a solve that are compared with its plan."""
Rivals = Mapping[Key, Found]
"""By model and cluster: the methods of `pesto compare --json`."""


def cells() -> list[WorkCell]:
    """A solve for each variant and cluster."""
    return [WorkCell("results", (model, cluster), solved) for model in PAPER for cluster in CLUSTERS]


def tables(done: Mapping[Key, CellResult], rivals: Rivals) -> Iterator[str]:
    """A table for each cluster."""
    for cluster in dict.fromkeys(at for _, at in done):
        yield f"\n### {cluster}\n"
        yield from head(("model", "step ms", "bound ms", "gap", "best rival ms", "ratio", "order saves", "CPU s"))
        ratios, bounds, here = [], [], {m: d for (m, at), d in done.items() if at == cluster}
        for model, one in here.items():
            step_s, name, rival = one.found["step_s"], *best_rival(rivals.get((model, cluster)))
            ratios += [step_s / rival] if rival else []
            bounds += [one.found["bound_s"] / rival] if rival else []
            said = (f"{ms(rival)} ({name})", f"{step_s / rival:.3f}") if rival else ("-", "-")
            result = one.found
            yield row((
                model, ms(step_s), ms(result["bound_s"]), f"{result['gap']:.1%}", *said,
                f"{result['order_saves']:.1%}", f"{one.cpu_s:.0f}",
            ))  # fmt: skip
        gaps, saves = (mean(d.found[name] for d in here.values()) for name in ("gap", "order_saves"))
        worst = f"{ratio(ratios)} (worst {max(ratios):.3f}; bound {ratio(bounds)})" if ratios else "-"
        yield row(("mean", "", "", f"{gaps:.1%}", "", worst, f"{saves:.1%}", ""))


def best_rival(methods: Found | None) -> tuple[str, float | None]:
    """Name and seconds of the shortest plan that fits, of all methods but searches."""
    fit = [(m["makespan_s"], name) for name, m in (methods or {}).items() if m["fits"] and name not in OURS]
    return min(fit)[::-1] if fit else ("", None)


def stages(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """How much longer than the plan the candidates are that fit: geometric means, and how often each is the plan."""
    clusters = tuple(dict.fromkeys(at for _, at in done))
    yield from head(("candidate", *clusters, "is the plan"))
    for name in (*SHOWN, "search"):
        means = []
        for cluster in clusters:
            here = [d.found for (_, at), d in done.items() if at == cluster and name in d.found["candidates_s"]]
            means.append([result["candidates_s"][name] / result["step_s"] for result in here])
        chosen = sum(d.found["chosen"] == name for d in done.values())
        yield row((name, *map(ratio, means), f"{chosen} of {len(done)}"))


def alone(done: Mapping[Key, CellResult]) -> Iterator[str]:
    """Steps with no rivals: all candidates that fit, a row each, and the bound."""
    yield from head(("model", "cluster", "candidate", "step ms"), 3)
    for (model, cluster), one in done.items():
        for name, step_s in sorted(one.found["candidates_s"].items(), key=lambda each: -each[1]):
            yield row((model, cluster, name, ms(step_s)))
        yield row((model, cluster, "lower bound", ms(one.found["bound_s"])))
