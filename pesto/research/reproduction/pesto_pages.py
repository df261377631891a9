"""Pesto's Tables 1 to 3 and Figs 2, 4, 5, 7 and 8 beside ours."""

from collections.abc import Iterator, Sequence

from pesto.core.costs.network import PUBLISHED
from pesto.reporting.show.lines import geometric, ms
from pesto.research.reproduction.cached_cells import PAPER, Found
from pesto.research.reproduction.cell_lists import COUNTED, PCIE, PROFILED, SPEEDS, SWEPT, TIMED, TWO
from pesto.research.reproduction.grids import LACKS, PaperNumbers, Results, TextGrid, grid, plain, share
from pesto.research.reproduction.work.solves import BAECHI, LEVELS

CLASSES = ("short", "middle", "long")
QUOTED = ("RNN-based", "Placeto")


def table1(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Ops of each class."""
    columns = ("model", "< 10 µs", "10-100 µs", "> 100 µs", "all", "paper: < 10 µs", "10-100 µs", "> 100 µs", "all")
    rows = []
    for model in COUNTED:
        ours = results.found("durations", model)["ops"]
        theirs = [int(printed.numbers[model][name]) for name in CLASSES]
        rows.append((model, *ours, sum(ours), *theirs, sum(theirs)))
    return [grid(columns, rows)]


def table2(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Seconds here, minutes there."""
    columns = ("model", *(f"{name}, CPU s" for name in BAECHI), "solve, CPU s", "paper: Baechi, min", *QUOTED, "Pesto")
    rows = []
    for model in TIMED:
        took = results.found("placings", model, TWO)["cpu_s"]
        ours = [f"{took[name]:.2f}" for name in BAECHI]
        theirs = [plain(printed.number(model, name)) for name in ("Baechi", *QUOTED, "Pesto")]
        rows.append((model, *ours, f"{results.cpu_s('solves', model, TWO):.0f}", *theirs))
    return [grid(columns, rows)]


def effort(step_s: float, place_s: float, expert_s: float, steps: float) -> float:
    """Training effort relative to Expert, whose placement takes no time (5.3)."""
    return (step_s * steps + place_s) / (expert_s * steps)


def table3(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Efforts here and there."""
    columns = (
        "model", "Expert's step ms", "Baechi (best of)", "Baechi", "Pesto", "paper: Baechi", *QUOTED, "Pesto",
    )  # fmt: skip
    rows = []
    for model in TIMED:
        steps = printed.numbers[model]["steps"]
        expert_s = results.found("rivals", model, TWO)["methods"]["expert"]["step_s"]
        name, step_s = best_of_baechi(results, model)
        took = results.found("placings", model, TWO)["cpu_s"]
        pesto_s, solve_s = results.found("solves", model, TWO)["step_s"], results.cpu_s("solves", model, TWO)
        baechi = f"{effort(step_s, took[name], expert_s, steps):.2f}" if step_s else "OOM"
        ours = (f"{expert_s * 1e3:.1f}", name, baechi, f"{effort(pesto_s, solve_s, expert_s, steps):.2f}")
        rows.append((model, *ours, *(plain(printed.number(model, each)) for each in ("Baechi", *QUOTED, "Pesto"))))
    return [grid(columns, rows)]


def best_of_baechi(results: Results, model: str) -> tuple[str, float | None]:
    """Name and seconds of Baechi's shortest plan that fits; a hyphen and None where none does."""
    methods = results.found("rivals", model, TWO)["methods"]
    fit = [(methods[name]["step_s"], name) for name in BAECHI if methods[name]["fits"]]
    return min(fit)[::-1] if fit else (LACKS, None)


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
        runs, plan = results.found("rivals", model, TWO)["methods"], results.found("solves", model, TWO)
        steps = []
        for run in (runs[name] for name in methods):
            text = "refused" if run["step_s"] is None else ms(run["step_s"])
            steps.append(text if run["step_s"] is None or run["fits"] else f"OOM ({text})")
        saved = [share(one) for one in savings(results, model)]
        rows.append((model, *steps, ms(plan["step_s"]), ms(plan["bound_s"]), *saved))
    columns = ("model", *methods, "pesto", "lower bound", "saved of Expert", "of Baechi", "of the better")
    # A row a family, and one of all; the paper's is the mean of what is saved.
    means = []
    for name in (*dict.fromkeys(model.partition("/")[0] for model in PAPER), "all"):
        models = [model for model in PAPER if name in ("all", model.partition("/")[0])]
        ours = [mean_saving(column) for column in zip(*(savings(results, model) for model in models), strict=True)]
        theirs = [printed.number(name, each) for each in ("Expert", "Baechi", "best")]
        means.append((name, *(share(each) for pair in zip(ours, theirs, strict=True) for each in pair)))
    head = ("family", "saved of Expert", "paper", "of Baechi", "paper", "of the better", "paper")
    return [grid(columns, rows, "Step in ms, modelled"), grid(head, means, "Means")]


def savings(results: Results, model: str) -> tuple[float | None, float | None, float | None]:
    """Savings of Pesto's step over Expert's, Baechi's best and the better of both; None where one does not fit."""
    step_s = results.found("solves", model, TWO)["step_s"]
    expert = results.found("rivals", model, TWO)["methods"]["expert"]
    expert_s = expert["step_s"] if expert["fits"] else None
    baechi_s = best_of_baechi(results, model)[1]
    better_s = min((s for s in (expert_s, baechi_s) if s is not None), default=None)
    first, second, third = (1 - step_s / s if s is not None else None for s in (expert_s, baechi_s, better_s))
    return first, second, third


def mean_saving(savings: Sequence[float | None]) -> float | None:
    """Saving by the geometric mean of the steps' ratios; None without ratios."""
    ratios = [1 - each for each in savings if each is not None]
    return 1 - geometric(ratios) if ratios else None


def fig8(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """A table an axis, a row a model and factor."""
    del printed
    columns = (
        "model", "times", "Expert ms", "without search ms", "with ms", "bound ms", "saved of Expert", "without search",
    )  # fmt: skip
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
