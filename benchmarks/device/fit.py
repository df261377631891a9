"""Fits constants of kernels to half of an H200's, and prints those of `pesto/core/costs/kernel_fits.toml`.

    python -m benchmarks.device.fit > tables.txt

The shapes of a kind, in the order in which they were measured (which is random), are fitted and held out in turn, each
in all its data types. Products on tensor cores are fitted in TF32 and bfloat16 together. Convolutions are fitted in the
layout that the libraries are quicker in: channels last on tensor cores, channels first elsewhere. The launch is that of
the replayed graphs. Filter gradients keep the V100's constants: fitted ones were off by as much on the other half.
Takes a minute of one core.
"""

import sys
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.device.report import FORMS, fitted_rows, read, replayed
from benchmarks.kernels_fit import CONV_PRIOR, MATMUL_PRIOR, badness, best_of, source_of, spread_of
from pesto.core.costs.kernel_rates import Constants, ConvConstants, Machine, engine
from pesto.core.costs.kernel_times import conv_seconds, matmul_seconds
from pesto.core.costs.presets import Preset, preset
from solvers.arrays import Floats, Ints

FILE = Path(__file__).parents[1] / "data" / "device" / "h200.json.gz"
DTYPES = {False: ("float32",), True: ("tf32", "bfloat16")}
LAYOUTS = {False: "channels first", True: "channels last"}
SHAPES = {"conv forward": (1, 32), "conv input gradient": (4, 64)}
"""The most splits and the least rows of a tile of fitted convolutions, as of the V100 in float32."""

Part = tuple[Ints, Floats, Machine]
"""Rows as `Graph.kernels`, seconds, and the device as they see it."""


def main() -> None:
    """Print the tables."""
    data = read(FILE)
    able = replayed(preset("H200"), data)
    for kind in sys.argv[1:] or ("matmul", *SHAPES):
        for tensor in (False, True):
            parts = list(halves(data["rows"], able, kind, tensor=tensor))
            made = fit_matmul(parts) if kind == "matmul" else fit_conv(parts, kind)
            lines = "\n".join(source_of(each) for each in made)
            print(f"# {kind}, {tensor}\n{lines}\n", flush=True)


def halves(rows: list[dict[str, Any]], able: Preset, kind: str, *, tensor: bool) -> Iterable[Part]:
    """The rows to fit to, by data type."""
    chosen = fitted_rows(rows)
    for dtype in DTYPES[tensor]:
        own = [
            r for r, fit in zip(rows, chosen, strict=True)
            if fit and kind in r["kind"] and r["op"]["dtype"] == dtype
            and r.get("layout") in (None, LAYOUTS[tensor])
        ]  # fmt: skip
        table = np.zeros((len(own), 12), dtype=np.int64)
        for line, r in zip(table, own, strict=True):
            line[: 1 + len(r["op"]["sizes"])] = [FORMS[kind], *r["op"]["sizes"]]
        yield table, np.array([r["seconds"] for r in own]), machine_of(dtype, able)


def machine_of(dtype: str, able: Preset) -> Machine:
    """The card as kernels of a data type see it; float32 without TF32."""
    if dtype == "float32":
        able = replace(able, peaks=tuple(p for p in able.peaks if p[0] != "tf32"))
    return engine("float32" if dtype == "tf32" else dtype, able)


def fit_matmul(parts: list[Part]) -> tuple[Constants]:
    """Constants of products."""
    prior = {name: value for name, value in MATMUL_PRIOR.items() if name not in ("launch", "unaligned")}
    prior["latency_s"] = (1.5e-6, 0.7)
    if parts[0][2].tensor:
        prior["misaligned"] = (1.0, 1.0)
    names, at, spread = spread_of(prior)

    def made(z: Floats) -> Constants:
        return Constants(launch=1.0, **dict(zip(names, np.exp(at + z * spread).tolist(), strict=True)))

    def score(z: Floats) -> float:
        own = made(z)
        return sum(badness(matmul_seconds(r, m, own), s) for r, s, m in parts) / len(parts) + 0.001 * float(z @ z)

    return (made(best_of(score, len(names), starts=2, rounds=250)),)


def fit_conv(parts: list[Part], kind: str) -> tuple[Constants, ConvConstants]:
    """Constants of one pass of convolutions."""
    names, at, spread = spread_of({name: value for name, value in CONV_PRIOR.items() if name != "launch"})
    splits, narrowest = SHAPES[kind]
    own = {f.name for f in fields(ConvConstants)}

    def made(z: Floats) -> tuple[Constants, ConvConstants]:
        every = dict(zip(names, np.exp(at + z * spread).tolist(), strict=True))
        conv = {name: value for name, value in every.items() if name in own}
        core = {name: value for name, value in every.items() if name not in own}
        return Constants(launch=1.0, **core), ConvConstants(**conv, splits=splits, narrowest=narrowest)

    def score(z: Floats) -> float:
        pair = made(z)
        return sum(badness(conv_seconds(r, m, *pair)[0], s) for r, s, m in parts) / len(parts) + 0.001 * float(z @ z)

    return made(best_of(score, len(names), starts=1, rounds=220))


if __name__ == "__main__":
    main()
