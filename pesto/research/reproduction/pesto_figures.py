"""Pesto's Figs 2, 4, 5, 7 and 8 beside ours."""

from collections.abc import Iterator, Sequence

from pesto.core.costs.network import PUBLISHED
from pesto.reporting.show.markdown import geometric, ms
from pesto.research.reproduction.cached_cells import Found
from pesto.research.reproduction.cell_lists import PCIE, PROFILED, SPEEDS, SWEPT, TWO
from pesto.research.reproduction.graph_steps import PAPER
from pesto.research.reproduction.grids import LACKS, Results, TextGrid, grid, plain, share
from pesto.research.reproduction.pesto_tables import best_of_baechi
from pesto.research.reproduction.printed_numbers import PaperNumbers
from pesto.research.reproduction.work.solves import BAECHI
from pesto.research.reproduction.work.spread import LEVELS

QUANTILES = (0.5, 0.9)


def fig2(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Steps of the toy in ticks."""
    result = results.found("toys", "ordered")
    best, rows = result["optimum"], []
    for name, ticks in result["makespan"].items():
        rows.append((name, ticks, share(1 - best / ticks), share(printed.number(name, "saved"))))
    return [grid(("schedule", "ticks", "the best saves", "paper"), rows)]


def fig4(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Quantiles of the spread, and the published fits."""
    rows = []
    for model in PROFILED:
        result = results.found("spread", model)
        at = [LEVELS.index(level) for level in QUANTILES]
        pairs = [result[name][k] if result[name] else None for name in ("trimmed", "raw") for k in at]
        cores = result["others_cores"]
        rows.append((
            model.replace("@", " batch "), f"{result['long_ops']} of {result['ops']}",
            *(plain(v, ".3f") for v in pairs),
            plain(cores, ".2f"),
        ))  # fmt: skip
    columns = ("model", "ops of 10 µs or more", "trimmed: half below", "90 % below", "all: half below", "90 % below")
    spread = grid((*columns, "cores that others used"), rows, "(a) standard deviation / mean, measured here")
    least, most = (printed.number("R2", name) for name in ("least", "most"))
    fits = [
        (name, f"{fit.latency_s * 1e6:g}", f"{fit.s_per_byte * 1e6:g}", f"{fit.floor_s * 1e6:g}", f"{least} to {most}")
        for name, fit in PUBLISHED.items()
    ]
    return [
        spread,
        grid(("fit", "latency µs", "µs per byte", "floor µs", "paper: R²"), fits, "(b) transfers, published"),
    ]


def fig5(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Promised and real, with links and without."""
    rows = []
    for cluster in (PCIE, TWO):
        result = results.found("congestion", "rnnlm/2x2048", cluster)
        each = [(ms(one["promised_s"]), ms(one["step_s"]), one["transfers"]) for one in result.values()]
        times = result["without"]["step_s"] / result["with"]["step_s"]
        theirs = f"nearly {printed.number('rnnlm/2x2048', 'times'):g}" if cluster == TWO else LACKS
        rows.append((cluster, *(cell for one in each for cell in one), f"{times:.2f}", theirs))
    with_, without = ((f"{w}: promised ms", "real ms", "transfers") for w in ("with", "without"))
    return [grid(("cluster", *with_, *without, "times", "paper"), rows)]


def fig7(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Every variant, and the means by family."""
    methods = ("single", "expert", *BAECHI)
    rows = []
    for model in PAPER:
        result, plan = results.found("rivals", model, TWO)["methods"], results.found("solves", model, TWO)
        saved = [share(one) for one in savings(results, model)]
        rows.append(
            (model, *(_step(result[name]) for name in methods), ms(plan["step_s"]), ms(plan["bound_s"]), *saved)
        )
    columns = ("model", *methods, "pesto", "lower bound", "saved of Expert", "of Baechi", "of the better")
    return [
        grid(columns, rows, "Step in ms, modelled"),
        grid(
            ("family", "saved of Expert", "paper", "of Baechi", "paper", "of the better", "paper"),
            _means(results, printed), "Means",
        ),
    ]  # fmt: skip


def savings(results: Results, model: str) -> tuple[float | None, float | None, float | None]:
    """Savings of Pesto's step over Expert's, Baechi's best and the better of both; None where one does not fit."""
    step_s, expert = (
        results.found("solves", model, TWO)["step_s"],
        results.found("rivals", model, TWO)["methods"]["expert"],
    )
    expert_s = expert["step_s"] if expert["fits"] else None
    baechi_s = best_of_baechi(results, model)[1]
    better_s = min((s for s in (expert_s, baechi_s) if s is not None), default=None)
    first, second, third = (1 - step_s / s if s is not None else None for s in (expert_s, baechi_s, better_s))
    return first, second, third


def _means(results: Results, printed: PaperNumbers) -> Iterator[tuple[str, ...]]:
    """A row a family, and one of all; the paper's is the mean of what is saved."""
    families = dict.fromkeys(model.partition("/")[0] for model in PAPER)
    for name in (*families, "all"):
        models = [model for model in PAPER if name in ("all", model.partition("/")[0])]
        columns = zip(*(savings(results, model) for model in models), strict=True)
        theirs = [printed.number(name, each) for each in ("Expert", "Baechi", "best")]
        ours = [mean_saving(column) for column in columns]
        yield name, *(share(each) for pair in zip(ours, theirs, strict=True) for each in pair)


def mean_saving(savings: Sequence[float | None]) -> float | None:
    """Saving by the geometric mean of the steps' ratios; None without ratios."""
    ratios = [1 - each for each in savings if each is not None]
    return 1 - geometric(ratios) if ratios else None


def _step(method: Found) -> str:
    if method["step_s"] is None:
        return "refused"
    return ms(method["step_s"]) if method["fits"] else f"OOM ({ms(method['step_s'])})"


def fig8(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """A table an axis, a row a model and factor."""
    del printed
    columns = (
        "model",
        "times",
        "Expert ms",
        "without search ms",
        "with ms",
        "bound ms",
        "saved of Expert",
        "without search",
    )
    result = []
    for part, axis in (("a", "compute"), ("b", "links")):
        rows = []
        for model in SWEPT[axis]:
            for speed, expert_s, quick_s, one in points(results, model, axis):
                saved = [share(1 - s / expert_s) if expert_s else LACKS for s in (one["step_s"], quick_s)]
                rows.append(
                    (model, f"{speed:g}", ms(expert_s), ms(quick_s), ms(one["step_s"]), ms(one["bound_s"]), *saved)
                )
        result.append(grid(columns, rows, f"({part}) {axis}"))
    return result


def points(results: Results, model: str, axis: str) -> Iterator[tuple[float, float | None, float, Found]]:
    """Factor, Expert's seconds where it fits, those of the best without search, and what the solve found."""
    for speed in SPEEDS[axis]:
        key = (model, TWO) if speed == 1 else (model, TWO, axis, f"{speed:g}")
        one = results.found("solves" if speed == 1 else "sweeps", *key)
        quick = {name: s for name, s in one["candidates_s"].items() if name != "search"}
        yield speed, quick.get("expert"), min(quick.values()), one
