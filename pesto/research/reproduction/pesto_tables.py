"""Pesto's Tables 1 to 3 beside ours."""

from pesto.research.reproduction.cell_lists import COUNTED, TIMED, TWO
from pesto.research.reproduction.grids import LACKS, Results, TextGrid, grid, plain
from pesto.research.reproduction.printed_numbers import PaperNumbers
from pesto.research.reproduction.work.solves import BAECHI

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
