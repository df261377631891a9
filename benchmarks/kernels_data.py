"""Measured kernels as rows of `Graph.kernels`, halved by a rule, and what the model says of them."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pesto.costs.kernels.engines import engine
from pesto.costs.kernels.launched import kernels
from pesto.costs.kernels.machine import Machine
from pesto.costs.presets import preset
from pesto.graph import CONV, CONV_FILTER, CONV_INPUT, MATMUL
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
class Table:
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
        return kernels(self.rows, self.machine)[0]


def tables() -> list[Table]:
    """Every table that has rows."""
    found = [table(device, dtype, kind) for device in ("V100", "P100") for dtype in DTYPES for kind in KINDS]
    return [t for t in found if len(t.rows)]


def table(device: str, dtype: str, kind: str) -> Table:
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
    return Table(device=device, dtype=dtype, kind=kind, rows=wide[there], seconds=seconds[there], fitted=half[there])


def _matmul(line: dict[str, str]) -> list[int]:
    """Read row by row, a column-major product has its factors exchanged."""
    n, m, k = (int(line[c]) for c in ("m", "n", "k"))
    return [m, n, k, 1, int(line["transpose_b"] == "T"), int(line["transpose_a"] == "T")]


def _convolution(line: dict[str, str]) -> list[int]:
    w, h, c, n, k, s, r, pad_w, pad_h, across, down = (int(line[x]) for x in list(line)[:11])
    return [n, c, h, w, k, r, s, down, across, (h + 2 * pad_h - r) // down + 1, (w + 2 * pad_w - s) // across + 1]
