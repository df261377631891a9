"""Every placement method on every step: step times by cluster, a summary, and the ratios that papers speak of."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from benchmarks.tables.steps import CLUSTERS, PARDNN
from pesto.choosing.comparison.contest import Entrants, chosen_methods, compete
from pesto.choosing.comparison.methods import METHODS
from pesto.core.files.disk import write_atomic
from pesto.reporting.show.comparison_page import comparison_object, draw_comparison
from pesto.reporting.show.lines import head, ms, ratio, row
from pesto.research.reproduction.cached_cells import PAPER, CellResult, CellSettings, Found, Key, WorkCell, step

LARGE = "v100x16"
"""Where ParDNN's models are placed."""
NAMES = tuple(name for name in chosen_methods("all") if name != "pesto")
"""Pesto's own plans are those of the results."""
APART = ("framework-default", "random", "pardnn-unrefined", "pardnn-glb")
"""In the summary alone: TensorFlow's placement is one GPU, and parts of ParDNN are among the pairs."""
PAIRS = (
    ("pesto", "expert"), ("pesto", "m-sct"), ("pesto", "mcmc"), ("m-sct", "m-etf"), ("m-sct", "m-topo"),
    ("pardnn", "round-robin"), ("pardnn", "pardnn-unrefined"), ("pardnn", "pardnn-glb"),
    ("pardnn", "linear-clustering"), ("metis", "single"), ("metis", "expert"), ("mcmc", "expert"),
)  # fmt: skip
"""What publications compare."""
Methods = Mapping[Key, dict[str, Any]]
"""By model and cluster: method -> what `pesto compare --json` says of it."""


def cells() -> list[WorkCell]:
    """A comparison for each variant and cluster, and one of each of ParDNN's models."""
    keys = [(model, cluster) for model in PAPER for cluster in CLUSTERS] + [(model, LARGE) for model in PARDNN]
    return [
        *(WorkCell("comparison", key, compared) for key in keys),
        WorkCell("chart", (PAPER[8], CLUSTERS[0]), charted),
    ]


def compared(key: Key, settings: CellSettings) -> Found:
    """What `pesto compare --json` says, without Pesto's own plan; nothing is cut off by the clock."""
    graph, machine, costs = step(key[0], key[1], settings)
    return comparison_object(
        compete(graph, machine, costs, settings.settings, lambda _: None, entrants=Entrants(NAMES)), {}
    )


def charted(key: Key, settings: CellSettings) -> Found:
    """The picture of a comparison of all methods, Pesto's own plan among them."""
    graph, machine, costs = step(key[0], key[1], settings)
    result = compete(graph, machine, costs, settings.settings, lambda _: None, entrants=Entrants(chosen_methods("all")))
    write_atomic(settings.drawn / "compare-nasnet.png", draw_comparison(result, "png"))
    return {}


def methods(done: Mapping[Key, CellResult], own: Mapping[Key, CellResult]) -> dict[Key, dict[str, Any]]:
    """The methods of each cell; `own` are the cells of the results, which give the last one."""
    result = {key: dict(one.found["methods"]) for key, one in done.items()}
    for key, one in own.items():
        if key in result:
            result[key]["pesto"] = {"makespan_s": one.found["step_s"], "fits": True}
    return result


def tables(done: Mapping[Key, CellResult], every: Methods) -> Iterator[str]:
    """A table for each cluster, a model a row."""
    for cluster in dict.fromkeys(at for _, at in done):
        here = {model: every[model, at] for model, at in done if at == cluster}
        names = [name for name in METHODS if any(name in result for result in here.values()) and name not in APART]
        yield f"\n### {cluster}\n"
        yield from head(("model", "bound", *names))
        for model, result in here.items():
            best = min((m["makespan_s"] for m in result.values() if m["fits"]), default=None)
            bound = ms(done[model, cluster].found["lower_bound_s"])
            yield row((model, bound, *(_step(result.get(name), best) for name in names)))


def _step(result: Found | None, best: float | None) -> str:
    if result is None or result["makespan_s"] is None:
        return "-" if result is None else "refused"
    text = ms(result["makespan_s"])
    if not result["fits"]:
        return f"OOM ({text})"
    return f"**{text}**" if result["makespan_s"] == best else text


def summary(every: Methods) -> Iterator[str]:
    """How many plans of each method fit, and how long they are beside Pesto's."""
    yield from head(("method", "plans that fit", "OOM", "refused", "step to pesto's, geometric mean", "best"))
    clusters = {at for _, at in every}
    rivals = {key: {n: m for n, m in result.items() if n != "pesto"} for key, result in every.items()}
    for name in NAMES:
        rows = [result[name] for result in rivals.values() if name in result]
        if not rows:
            continue
        fit, refused = sum(r["fits"] for r in rows), sum(r["makespan_s"] is None for r in rows)
        best = sum(_best(result) == name for result in rivals.values())
        mean = ratio(_of(every, name, "pesto", clusters))
        yield row((name, fit, len(rows) - fit - refused, refused, mean, best))


def _best(result: Mapping[str, Found]) -> str:
    return min(((m["makespan_s"], name) for name, m in result.items() if m["fits"]), default=(0.0, ""))[1]


def pairs(every: Methods) -> Iterator[str]:
    """The step of one method over that of another, where both fit: geometric means by cluster."""
    clusters = list(dict.fromkeys(at for _, at in every))
    papers = [at for at in clusters if at != LARGE]
    titles = [f"{at}, ParDNN's models" if at == LARGE else at for at in clusters]
    yield from head(("step of, to step of", *titles, "paper's variants", "least and most there"))
    for name, other in PAIRS:
        here = [_of(every, name, other, (at,)) for at in clusters]
        all_four = _of(every, name, other, papers)
        means = map(ratio, (*here, all_four))
        yield row((f"{name}, {other}", *means, f"{min(all_four):.3f} to {max(all_four):.3f}" if all_four else "-"))


def _of(every: Methods, name: str, other: str, clusters: Collection[str]) -> list[float]:
    """The ratio in each cell of these clusters where both fit."""
    rows = [(result.get(name), result.get(other)) for (_, at), result in every.items() if at in clusters]
    return [a["makespan_s"] / b["makespan_s"] for a, b in rows if a and b and a["fits"] and b["fits"]]
