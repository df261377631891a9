"""ParDNN's tables and figures beside ours."""

from pesto.reporting.show.lines import geometric, ms
from pesto.research.reproduction.cell_lists import LARGE, RATIOS, SMALL, at, batches, sized
from pesto.research.reproduction.grids import LACKS, PaperNumbers, Results, TextGrid, grid, plain, share
from pesto.tf.models.counts import GPUS

SEVERAL = GPUS[1:]
"""Numbers of GPUs on which a model is divided."""


def fig4_2(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Ticks by each way of balancing."""
    result = results.found("toys", "mapped")["makespan"]
    rows = [(name, ticks, plain(printed.number(name, "makespan"))) for name, ticks in result.items()]
    return [grid(("load balancing", "units", "thesis"), rows)]


def fig4_3(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Peaks by order."""
    result = results.found("toys", "peaked")["peak"]
    rows = [(", ".join(order), peak, plain(printed.number(order, "peak"))) for order, peak in result.items()]
    return [grid(("order", "peak", "thesis"), rows)]


def table5_1(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Nodes."""
    rows = []
    for model in (*SMALL, *LARGE):
        ours, theirs = results.found("sizes", sized(model, 4))["ops"], printed.numbers[model]["nodes"]
        rows.append((model, ours, plain(theirs), f"{ours / theirs:.2f}"))
    return [grid(("model", "ops", "thesis: nodes", "ours / theirs"), rows)]


def table6_1(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Batch, and how full the fullest device is."""
    del printed
    rows = []
    for model in (*SMALL, *LARGE):
        fits = []
        for gpus in GPUS:
            batch = batches(model).get(gpus)
            if batch is None:
                fits.append(LACKS)
                continue
            one = results.found("singles" if gpus == 1 else "parts", sized(model, gpus), at(gpus))
            if gpus == 1:
                text = "fits" if one["fits"] else "OOM"
            elif one["fits"]:
                text = f"{one['fullest']:.0%}{'' if one['fitted_before'] else ', moved'}"
            else:
                text = f"OOM ({one['fullest']:.0%})"
            fits.append(f"{batch}: {text}")
        rows.append((model, *fits))
    return [grid(("model", *(f"{gpus} GPU{'s' * (gpus > 1)}" for gpus in GPUS)), rows)]


def fig6_1(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Examples a second over those of the fewest GPUs."""
    del printed
    rows = []
    for model in (*SMALL, *LARGE):
        rates = throughputs(results, model)
        base = next(iter(rates.values()))
        over = [f"{rates[n] / base:.2f}" if n in rates else LACKS for n in GPUS]
        rows.append((model, f"{base:.3g}", *over))
    return [grid(("model", "examples/s on the fewest", *map(str, GPUS)), rows, "Speedup by number of GPUs")]


def throughputs(results: Results, model: str) -> dict[int, float]:
    """Examples a second by number of GPUs, with the batch of each."""
    result = {}
    for gpus, batch in batches(model).items():
        one = results.found("singles" if gpus == 1 else "parts", sized(model, gpus), at(gpus))
        result[gpus] = batch / one["step_s"]
    return result


def fig6_2(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Two ratios a model."""
    rows = []
    for model in (*(sized(each, 4) for each in SMALL), *RATIOS):
        one = results.found("shapes", model, at(4))
        ours = (f"{one['parallelism']:.1f}", plain(one["ccr"], ".2f"))
        rows.append((model.replace("@", " batch "), *ours, plain(printed.number(model, "ccr"))))
    return [grid(("model", "degree of parallelism", "CCR", "thesis: CCR"), rows)]


def fig6_6(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Round robin, no refinement and emulated order over ParDNN."""
    result = []
    for name, title in (
        ("round-robin", f"Round robin; thesis: {printed.number('round-robin', 'mean'):g} on average"),
        ("pardnn-unrefined", "Without refinement; thesis: 1.05 to 1.25"),
        ("pardnn-emulated", "By the emulated scheduler in place of list order"),
    ):
        result.append(_ratios(results, name, "pardnn", title))
    return result


def fig6_7(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """ParDNN over linear clustering."""
    worst = f"thesis: at worst {printed.number('worst', 'ratio')}"
    return [_ratios(results, "pardnn", "linear-clustering", f"ParDNN over linear clustering; {worst}")]


def _ratios(results: Results, name: str, other: str, title: str) -> TextGrid:
    """By model: the step of one method over another's, for each number of GPUs."""
    rows, every = [], []
    for model in SMALL:
        steps = [results.found("others", sized(model, 4), at(gpus))["steps_s"] for gpus in SEVERAL]
        row = [each[name] / each[other] for each in steps]
        every += row
        rows.append((model, *(f"{ratio:.2f}" for ratio in row), f"{geometric(row):.2f}"))
    rows.append(("all", *[""] * len(SEVERAL), f"{geometric(every):.2f}"))
    return grid(("model", *(f"{gpus} GPUs" for gpus in SEVERAL), "mean"), rows, title)


def overhead(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Seconds and moved ops of each part."""
    rows, moved = [], []
    for model in (*SMALL, *LARGE):
        for gpus in [each for each in batches(model) if each > 1]:
            key = sized(model, gpus)
            one = results.found("parts", key, at(gpus))
            moved.append(one["moved"] / one["ops"])
            took = [f"{one[name]:.2f}" for name in ("step_1_cpu_s", "step_2_cpu_s")]
            theirs = plain(
                printed.number(key, "seconds") if (gpus == (2 if key.startswith("word-rnn") else 16)) else None
            )
            rows.append((model, one["ops"], gpus, *took, share(moved[-1]), theirs))
    rows.append(("mean", "", "", "", "", share(sum(moved) / len(moved)), ""))
    said = f"thesis: {share(printed.number('mean', 'moved'))} moved on average"
    columns = ("model", "ops", "GPUs", "step 1, CPU s", "step 2, CPU s", "moved", "thesis: s")
    return [grid(columns, rows, f"Seconds to place; {said}")]


def quoted(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Throughput on four GPUs, beside what is said of the alternatives."""
    rows = []
    for model in SMALL:
        one = results.found("parts", sized(model, 4), at(4))
        rows.append((model, batches(model)[4], ms(one["step_s"]), f"{batches(model)[4] / one['step_s']:.3g}"))
    del printed
    return [grid(("model", "batch on 4 GPUs", "step ms, modelled", "examples/s"), rows)]
