"""What the model of kernels says of measured ones, on the rows that its constants were not fitted to.

    python benchmarks/kernels.py [--json] [--fitted] [--picture docs/kernels.png]

Per device, precision and kind: rows, mean relative error, and of predicted over measured the median, the 10th and 90th
percentile, and the sums'. `--fitted` reports the rows that were fitted to instead.
"""

import argparse
import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.costs.kernel_rates import Machine, engine
from pesto.core.costs.kernel_times import kernel_times
from pesto.core.costs.presets import preset
from pesto.core.graph import CONV, CONV_FILTER, CONV_INPUT, MATMUL
from solvers.arrays import Bools, Floats, Ints

FOLDER = Path(__file__).parent / "data" / "kernels"
DTYPES = {"fp32": "float32", "fp16": "float16"}
KINDS = {
    "matmul": (MATMUL, "gemm", {"fp32": "fp32_ms", "fp16": "fp16_fp32acc_ms"}),
    "conv forward": (CONV, "conv", {d: f"{d}_forward_ms" for d in DTYPES}),
    "conv input gradient": (CONV_INPUT, "conv", {d: f"{d}_input_gradient_ms" for d in DTYPES}),
    "conv filter gradient": (CONV_FILTER, "conv", {d: f"{d}_filter_gradient_ms" for d in DTYPES}),
}
"""Form of the kernel, table and columns of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTable:
    """Measured kernels of one device, precision and kind."""

    device: str
    dtype: str
    kind: str
    rows: Ints
    """[n, 12] as `Graph.kernels`."""
    seconds: Floats
    """[n] measured."""
    fitted: Bools
    """[n] rows that constants are fitted to: every second of a V100's table, its first included; none of a P100's."""

    @property
    def machine(self) -> Machine:
        """The device as these kernels see it."""
        return engine(DTYPES[self.dtype], preset(self.device))

    def predicted(self) -> Floats:
        """[n] seconds by the model."""
        return kernel_times(self.rows, self.machine)[0]


def tables() -> list[KernelTable]:
    """Every table that has rows."""
    result = [table(device, dtype, kind) for device in ("V100", "P100") for dtype in DTYPES for kind in KINDS]
    return [t for t in result if len(t.rows)]


def table(device: str, dtype: str, kind: str) -> KernelTable:
    """The measured kernels of one device, precision and kind."""
    form, name, columns = KINDS[kind]
    with (FOLDER / f"{device.lower()}-{name}.csv").open() as file:
        lines = list(csv.DictReader(file))
    there = np.array([bool(line[columns[dtype]]) for line in lines])
    # By the file's rows, not by those with a value: the halves are of whole rows.
    half = (np.arange(len(lines)) % 2 == 0) & (device == "V100")
    make = _matmul if form == MATMUL else _convolution
    rows = np.array([[form, *make(line)] for line in lines], dtype=np.int64).reshape(len(lines), -1)
    wide = np.zeros((len(rows), 12), dtype=np.int64)
    wide[:, : rows.shape[1]] = rows
    seconds = np.array([float(line[columns[dtype]] or "nan") / 1e3 for line in lines])
    return KernelTable(
        device=device, dtype=dtype, kind=kind, rows=wide[there], seconds=seconds[there], fitted=half[there]
    )


def _matmul(line: dict[str, str]) -> list[int]:
    """Read row by row, a column-major product has its factors exchanged."""
    n, m, k = (int(line[c]) for c in ("m", "n", "k"))
    return [m, n, k, 1, int(line["transpose_b"] == "T"), int(line["transpose_a"] == "T")]


def _convolution(line: dict[str, str]) -> list[int]:
    w, h, c, n, k, s, r, pad_w, pad_h, across, down = (int(line[x]) for x in list(line)[:11])
    return [n, c, h, w, k, r, s, down, across, (h + 2 * pad_h - r) // down + 1, (w + 2 * pad_w - s) // across + 1]


def main() -> None:
    """Report the rows that were not fitted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON list")
    parser.add_argument("--fitted", action="store_true", help="the rows that were fitted to")
    parser.add_argument("--picture", type=Path, help="draw predicted against measured")
    asked = parser.parse_args()
    halves = [(t, t.fitted if asked.fitted else ~t.fitted) for t in tables()]
    said = [row(t, half) for t, half in halves if half.any()]
    if asked.json:
        print(json.dumps(said, indent=1))
    else:
        print_errors(said)
    if asked.picture:
        draw(halves, asked.picture)


def row(measured: KernelTable, half: Bools) -> dict[str, Any]:
    """The error of some rows of a table."""
    head = {"device": measured.device, "dtype": measured.dtype, "kind": measured.kind}
    return head | errors(measured.predicted()[half], measured.seconds[half])


def errors(predicted: Floats, seconds: Floats) -> dict[str, Any]:
    """Compare predicted with measured seconds: return the count of rows, the mean relative error, and ratios."""
    ratio = predicted / seconds
    figures = {
        "mean_error": np.abs(ratio - 1).mean(), "median_ratio": np.median(ratio), "p10": np.quantile(ratio, 0.1),
        "p90": np.quantile(ratio, 0.9), "sum_ratio": predicted.sum() / seconds.sum(),
    }  # fmt: skip
    return {"n": len(ratio)} | {name: round(float(value), 4) for name, value in figures.items()}


def print_errors(rows: list[dict[str, Any]]) -> None:
    """Print a markdown table of the rows that `row` gives."""
    print("| device | dtype | kind | n | mean error | median | p10 | p90 | sum |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for r in rows:
        ratios = " | ".join(f"{r[k]:.2f}" for k in ("median_ratio", "p10", "p90", "sum_ratio"))
        print(f"| {r['device']} | {r['dtype']} | {r['kind']} | {r['n']} | {100 * r['mean_error']:.1f} % | {ratios} |")


def draw(halves: list[tuple[KernelTable, Bools]], path: Path) -> None:
    """Predicted over measured against measured, a panel for each device and precision."""
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((t.device, t.dtype) for t, half in halves if half.any()))
    figure = Figure(figsize=(4.6 * len(panels), 4.2), layout="constrained")
    for axes, panel in zip(np.ravel(figure.subplots(1, len(panels), sharey=True)), panels, strict=True):
        for measured, half in halves:
            if (measured.device, measured.dtype) == panel and half.any():
                ratio = measured.predicted()[half] / measured.seconds[half]
                axes.plot(measured.seconds[half] * 1e3, ratio, ".", label=measured.kind, alpha=0.8)
        for level, style in ((1.0, "-"), (0.5, ":"), (2.0, ":")):
            axes.axhline(level, color="grey", linewidth=0.8, linestyle=style)
        axes.set(xscale="log", yscale="log", ylim=(0.1, 10), xlabel="measured, ms", title=" ".join(panel))
        axes.legend(fontsize=7)
    np.ravel(figure.axes)[0].set_ylabel("predicted / measured")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
