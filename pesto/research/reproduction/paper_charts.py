"""The figures as pictures (need matplotlib); the same results give the same bytes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pesto.reporting.show.drawing import BLUE, COLOURS, GREY, INK, RED, figure_bytes
from pesto.research.reproduction.cached_cells import PAPER
from pesto.research.reproduction.cell_lists import LARGE, PCIE, PROFILED, SMALL, SPEEDS, SWEPT, TWO
from pesto.research.reproduction.grids import Results
from pesto.research.reproduction.pesto_pages import best_of_baechi, points
from pesto.research.reproduction.thesis_pages import throughputs
from pesto.research.reproduction.work.solves import LEVELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MADE_BY = "pesto reproduce"


def draw_figure(size: tuple[float, float], parts: tuple[int, int], fill: Callable[[Any], None], **shape: Any) -> bytes:
    """A figure of so many inches with rows and columns of axes, which `fill` is given, as PNG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    look: dict[Any, Any] = {"font.size": 8.0, "axes.titlesize": 9.0, "text.parse_math": False}
    with mpl.rc_context(look):
        figure: Figure = Figure(figsize=size, layout="constrained")
        fill(figure.subplots(*parts, squeeze=False, **shape))
        return figure_bytes(figure, "png", MADE_BY)


def plain(axis: "Axes", title: str) -> None:
    """No frame, a faint grid, and the title at the left."""
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.grid(visible=True, alpha=0.18)
    axis.set_axisbelow(True)
    axis.set_title(title, loc="left")


def below(axis: "Axes") -> None:
    """Draw the legend below the axes."""
    axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def fig2(results: Results) -> bytes:
    """The three schedules of the toy."""
    result = results.found("toys", "ordered")

    def fill(axes: Any) -> None:
        for axis, (name, run) in zip(axes[:, 0], result["runs"].items(), strict=True):
            for op, gpu, start, finish in run["ops"]:
                long = op in "FG"
                axis.barh(gpu, finish - start, left=start, color=BLUE if long else GREY, edgecolor="white", height=0.7)
                axis.annotate(op, ((start + finish) / 2, gpu), ha="center", va="center", color="white")
            for op, _, start, finish in run["sent"]:
                axis.barh(2, finish - start, left=start, color=RED, edgecolor="white", height=0.7)
                axis.annotate(op, ((start + finish) / 2, 2), ha="center", va="center", color="white")
            axis.set_yticks((0, 1, 2), labels=("GPU 0", "GPU 1", "link"))
            axis.invert_yaxis()
            axis.set_xlim(0, 21)
            plain(axis, f"{name}: {result['makespan'][name]} ticks")

    return draw_figure((6.0, 4.6), (3, 1), fill, sharex=True)


def fig4(results: Results) -> bytes:
    """The spread's distribution on the machine at hand, and the published fits."""
    from pesto.core.costs.network import PUBLISHED

    def fill(axes: Any) -> None:
        left, right = axes[0]
        for colour, model in zip(COLOURS, PROFILED, strict=False):
            result = results.found("spread", model)
            for name, dash in (("trimmed", "-"), ("raw", ":")):
                if result[name]:
                    label = model.partition("/")[0] if name == "trimmed" else None
                    left.plot(result[name], LEVELS, dash, color=colour, label=label)
        left.set_xlim(0, 1.5)
        left.set_xlabel("standard deviation / mean (dotted: all samples)")
        left.set_ylabel("share of ops of 10 µs or more")
        left.legend(frameon=False)
        plain(left, "measured on the processor at hand")
        sizes = [4.0**k for k in range(1, 15)]
        for colour, (name, fit) in zip(COLOURS, PUBLISHED.items(), strict=False):
            times = [max(fit.floor_s, fit.latency_s + size * fit.s_per_byte) * 1e6 for size in sizes]
            right.loglog(sizes, times, color=colour, label=name.removeprefix("paper-"))
        for axis in (right.xaxis, right.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
        right.set_xticks([10.0**k for k in range(1, 9, 2)])
        right.set_xlabel("bytes")
        right.set_ylabel("µs")
        right.legend(frameon=False)
        plain(right, "published fits")

    return draw_figure((9.0, 3.4), (1, 2), fill)


def fig5(results: Results) -> bytes:
    """Timelines of ops and transfers, with links and without, for each kind of link."""

    def fill(axes: Any) -> None:
        for row, cluster in zip(axes, (PCIE, TWO), strict=True):
            result = results.found("congestion", "rnnlm/2x2048", cluster)
            for axis, (name, one) in zip(row, result.items(), strict=True):
                # Devices, a host's cores as one, above links, which are named FROM>TO.
                merged: dict[str, list[list[float]]] = {}
                for lane, stripes in one["rows"].items():
                    merged.setdefault(lane.partition("/")[0], []).extend(stripes)
                for at, (lane, stripes) in enumerate(merged.items()):
                    spans = [(start * 1e3, (finish - start) * 1e3) for start, finish in stripes]
                    axis.broken_barh(spans, (at - 0.35, 0.7), color=RED if ">" in lane else BLUE, linewidth=0)
                axis.set_yticks(range(len(merged)), labels=list(merged))
                axis.invert_yaxis()
                axis.set_xlabel("ms")
                axis.set_xlim(0, max(each["step_s"] for each in result.values()) * 1e3)
                plain(axis, f"{cluster}, {name} congestion constraints: {one['step_s'] * 1e3:.0f} ms")

    return draw_figure((11.0, 5.0), (2, 2), fill)


def fig7(results: Results) -> bytes:
    """Bars by variant: Expert, Baechi's best, Pesto, and the lower bound."""

    def fill(axes: Any) -> None:
        axis = axes[0][0]
        for at, model in enumerate(PAPER):
            result, plan = results.found("rivals", model, TWO)["methods"], results.found("solves", model, TWO)
            steps = (result["expert"]["step_s"], best_of_baechi(results, model)[1], plan["step_s"])
            for k, (step_s, colour) in enumerate(zip(steps, (GREY, RED, BLUE), strict=True)):
                label = ("Expert", "Baechi, the best of three", "Pesto")[k] if at == 0 else None
                axis.bar(at + 0.27 * (k - 1), (step_s or 0.0) * 1e3, 0.25, color=colour, label=label)
            low = plan["bound_s"] * 1e3
            axis.plot(
                [at - 0.42, at + 0.42], [low, low], color=INK, linewidth=1.0, label="lower bound" if at == 0 else None
            )
        axis.set_xticks(range(len(PAPER)), labels=[model.replace("/", "\n") for model in PAPER])
        axis.legend(frameon=False)
        plain(axis, "step in ms on two V100s with NVLink, modelled")

    return draw_figure((11.0, 3.6), (1, 1), fill)


def fig8(results: Results) -> bytes:
    """Savings over Expert's step by speed of devices and of links, with search and without."""

    def fill(axes: Any) -> None:
        for axis, (name, models) in zip(axes[0], SWEPT.items(), strict=True):
            for colour, model in zip(COLOURS, models, strict=False):
                rows = [row for row in points(results, model, name) if row[1]]
                speeds = [row[0] for row in rows]
                axis.plot(
                    speeds, [100 * (1 - r[3]["step_s"] / r[1]) for r in rows if r[1]], "o-", color=colour, label=model
                )
                axis.plot(speeds, [100 * (1 - r[2] / r[1]) for r in rows if r[1]], "s:", color=colour, markersize=3)
            axis.set_xscale("log", base=2)
            axis.set_xticks(SPEEDS[name], labels=[f"{speed:g}" for speed in SPEEDS[name]])
            axis.set_xlabel(f"speed of {name}, times the cluster's")
            below(axis)
            plain(axis, "saved of Expert's step, % (dotted: without search)")

    return draw_figure((9.0, 3.4), (1, 2), fill)


def fig6_1(results: Results) -> bytes:
    """Speedups over the fewest GPUs that hold a model."""

    def fill(axes: Any) -> None:
        for axis, models in zip(axes[0], (SMALL, LARGE), strict=True):
            for colour, model in zip(COLOURS, models, strict=False):
                rates = throughputs(results, model)
                base = next(iter(rates.values()))
                axis.plot(list(rates), [rate / base for rate in rates.values()], "o-", color=colour, label=model)
            least = min(throughputs(results, models[0]))
            ideal = [gpus for gpus in (1, 2, 4, 8, 16) if gpus >= least]
            axis.plot(ideal, [gpus / least for gpus in ideal], "--", color=GREY, label="linear")
            axis.set_xscale("log", base=2)
            axis.set_yscale("log", base=2)
            axis.set_xticks(ideal, labels=[str(gpus) for gpus in ideal])
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_xlabel("GPUs, each with its batch of Table 6.1")
            below(axis)
            plain(axis, f"examples a second over those of {least} GPU{'s' * (least > 1)}, modelled")

    return draw_figure((9.0, 3.6), (1, 2), fill)
