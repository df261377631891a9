"""Tofu's tables and figures beside ours."""

from collections.abc import Mapping

from pesto.research.reproduction.cached_cells import Found
from pesto.research.reproduction.cell_lists import ALGORITHMS, BOX, CLUSTERS, RNN, TOFU_FAMILIES, WRN_OF
from pesto.research.reproduction.grids import LACKS, PaperNumbers, Results, TextGrid, grid, plain, share

GPUS = 8
COPIES = 3
"""Weight, gradient and history (Tofu, 6.1)."""
GB = 2**30
"""Bytes of a "GB" in the paper's Table 1."""
Rates = Mapping[str, float | None]
"""Samples a second by method; None where it is out of memory."""


def table1(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Weights, gradients and history."""
    rows = []
    for family, variants in TOFU_FAMILIES.items():
        for variant in variants:
            ours = results.found("tofu-weights", family, variant)["weight_bytes"] / GB
            theirs = printed.numbers[f"{family}/{variant}"]["gb"]
            copies = (COPIES * ours, COPIES * round(ours, 1))
            rows.append((f"{family}/{variant}", f"{ours:.2f}", *(f"{each:.1f}" for each in copies), f"{theirs:.1f}"))
    return [grid(("model", "weights, GiB", "three times", "three times the tenths", "paper, GB"), rows)]


def fig9(results: Results, printed: PaperNumbers, layers: int) -> list[TextGrid]:
    """Wide residual networks of so many layers: a table a cluster."""
    columns = ("model", "batch", "Ideal, samples/s", "Tofu", "exact cuts", "SmallBatch", "order")
    grids = []
    for cluster in CLUSTERS:
        rows = []
        for variant in WRN_OF[layers]:
            name = f"tofu-wrn/{variant}"
            rates, batch = rates_of(results, "tofu-wrn", variant, cluster)
            small = results.found("tofu-small", "tofu-wrn", variant, BOX)
            cells = (_rate_text(rates, "Tofu"), _rate_text(rates, "exact"), _rate_text(rates, "SmallBatch", small))
            order = against_wrn(rates, printed.number(name, "SmallBatch over Tofu"))
            rows.append((name, batch, plain(rates["Ideal"], ".3g"), *cells, order))
        grids.append(grid(columns, rows, f"`{cluster}`"))
    return grids


def fig10(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Recurrent networks: a table a cluster."""
    columns = (
        "model", "batch", "Ideal, samples/s", "Tofu", "exact cuts", "SmallBatch", "op placement", "order",
        "paper: Tofu, samples/s", "op placement",
    )  # fmt: skip
    grids = []
    for cluster in CLUSTERS:
        rows = []
        for variant in RNN:
            name = f"tofu-rnn/{variant}"
            rates, batch = rates_of(results, "tofu-rnn", variant, cluster)
            small = results.found("tofu-small", "tofu-rnn", variant, BOX)
            placed = results.found("tofu-placed", "tofu-rnn", variant, BOX)["runs"][BOX]
            cells = [_rate_text(rates, "Tofu"), _rate_text(rates, "exact")]
            cells += [_rate_text(rates, "SmallBatch", small), _rate_text(rates, "op placement", placed)]
            order = against_rnn(rates, fits=printed.number(name, "out of memory") is None)
            theirs = [plain(printed.number(name, each)) for each in ("Tofu", "op placement")]
            rows.append((name, batch, plain(rates["Ideal"], ".3g"), *cells, order, *theirs))
        grids.append(grid(columns, rows, f"`{cluster}`"))
    return grids


def rates_of(results: Results, family: str, variant: str, cluster: str) -> tuple[Rates, int]:
    """Samples a second of each method on a cluster, and the batch of Tofu's, of exact cuts and of Ideal."""
    cut, small = results.found("tofu-splits", family, variant, BOX), results.found("tofu-small", family, variant, BOX)
    batch, runs = int(cut["batch"]), cut["runs"][cluster]
    result: dict[str, float | None] = {
        "Ideal": GPUS * batch / cut["single_s"],
        "Tofu": _rate(runs["tofu"], batch),
        "exact": _rate(runs["exact"], batch),
        "SmallBatch": _rate(small, GPUS * small["batch"]),
    }
    if family == "tofu-rnn":
        placed = results.found("tofu-placed", family, variant, BOX)["runs"]
        result["op placement"] = _rate(placed[cluster], placed[BOX]["batch"])
    return result, batch


def _rate(run: Found, samples: int) -> float | None:
    return samples / run["step_s"] if run["fits"] else None


def _rate_text(rates: Rates, name: str, run: Found | None = None) -> str:
    """Share of Ideal, samples a second and, of a `run`, its batch."""
    rate, ideal = rates[name], rates["Ideal"]
    if rate is None or not ideal:
        return "OOM"
    return f"{rate / ideal:.2f} ({rate:.3g})" + ("" if run is None else f", batch {run['batch']}")


def against_wrn(rates: Rates, better: float | None) -> str:
    """Deviations from the printed order: SmallBatch `better` than Tofu, or out of memory where no number says so."""
    tofu, small = rates["Tofu"], rates["SmallBatch"]
    if tofu is None:
        return "Tofu OOM"
    if better is None:
        return "as printed" if small is None else "SmallBatch fits"
    if small is None:
        return "SmallBatch OOM"
    return "as printed" if small > tofu else "SmallBatch below Tofu"


def against_rnn(rates: Rates, *, fits: bool) -> str:
    """Deviations from the printed order: op placement, if it `fits`, and SmallBatch, where that does, below Tofu."""
    tofu, small, placed = rates["Tofu"], rates["SmallBatch"], rates["op placement"]
    if tofu is None:
        return "Tofu OOM"
    result = ["op placement above Tofu"] if placed is not None and placed > tofu else []
    result += ["op placement OOM" if fits else "op placement fits"] if fits != (placed is not None) else []
    result += ["SmallBatch above Tofu"] if small is not None and small > tofu else []
    return "; ".join(result) or "as printed"


def fig11(results: Results, printed: PaperNumbers) -> list[TextGrid]:
    """Ways to choose cuts: bytes, steps, and what transfers add to them."""
    columns = (
        "method", "of the paper", "GB sent", "seconds to choose", "step without transfers, s",
        *(word for cluster in CLUSTERS for word in (f"step, s: `{cluster}`", "transfers' share")),
        "peak, GiB", "paper: transfers' share",
    )  # fmt: skip
    rows = []
    for method, called in ALGORITHMS.items():
        result = results.found("tofu-algorithms", "tofu-rnn", "4x8192", BOX, method)
        silent, runs = result["silent_s"], [result["runs"][cluster] for cluster in CLUSTERS]
        steps = []
        for run in runs:
            step = f"{run['step_s']:.2f}"
            steps += [step if run["fits"] else f"OOM ({step})", f"{1 - silent / run['step_s']:.0%}"]
        theirs = "OOM" if printed.number(method, "out of memory") else share(printed.number(method, "transfers"))
        peak = f"{runs[0]['peak_bytes'] / GB:.1f}"
        took = f"{result['seconds']:.1f}"
        rows.append(
            (method, called or LACKS, f"{result['bytes'] / 1e9:.1f}", took, f"{silent:.2f}", *steps, peak, theirs)
        )
    return [grid(columns, rows, texts=2)]
