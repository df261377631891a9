"""Fits the constants of the kernel model to every second row of the V100's tables, and prints them as TOML.

    python -m benchmarks.kernels_fit > fits.toml

Errors are relative, of each kernel and a little of the sum; a prior keeps constants that few rows speak of near what
they mean. The rows not fitted are never looked at here. Takes some minutes of one core.
"""

import sys
from collections.abc import Callable
from dataclasses import fields

import numpy as np

from benchmarks.kernels import KernelTable, table
from pesto.core.costs.kernel_rates import Constants, ConvConstants
from pesto.core.costs.kernel_times import conv_seconds, matmul_seconds
from solvers.arrays import Floats

Score = Callable[[Floats], float]

MATMUL_PRIOR = {
    "launch": (0.7, 0.7), "efficiency": (0.93, 0.3), "small": (0.3, 1.0), "split_s": (3e-6, 1.0),
    "wave_s": (1.2e-6, 1.0), "half": (3000.0, 1.0), "l2": (1.0, 0.7), "fill": (12.0, 0.8), "bandwidth": (0.9, 0.7),
    "spread": (5.0, 1.5), "transposed": (0.5, 1.0), "transposed_work": (0.03, 1.0), "unaligned": (1.0, 1.0),
}  # fmt: skip
"""Median and deviation (of the logarithm) of each constant before any row is seen."""
CONV_PRIOR = {
    "launch": (0.8, 0.15), "efficiency": (0.93, 0.2), "small": (0.35, 0.4), "split_s": (3e-6, 0.5),
    "wave_s": (1.2e-6, 0.5), "half": (2000.0, 0.5), "l2": (1.3, 0.3), "fill": (12.0, 0.5), "bandwidth": (0.7, 0.2),
    "gathered": (0.9, 0.4), "pointwise": (1.0, 0.1), "strided": (0.8, 0.15), "strided_pointwise": (0.8, 0.15),
    "large": (1.1, 0.3), "few": (1.0, 0.7), "extra_s": (2e-6, 0.5), "winograd": (0.8, 0.15), "transforms": (0.6, 0.15),
    "fused": (1.6, 0.25), "zeroed": (0.5, 0.3), "plain": (0.2, 1.0),
}  # fmt: skip
SHAPES = {
    ("fp32", "conv forward"): (1, 32), ("fp32", "conv input gradient"): (4, 64),
    ("fp32", "conv filter gradient"): (64, 64),
    ("fp16", "conv forward"): (1, 32), ("fp16", "conv input gradient"): (1, 32),
    ("fp16", "conv filter gradient"): (64, 32),
}  # fmt: skip
"""Most splits and least rows of a tile, chosen by cross-validation within the fitted rows."""


def main() -> None:
    """Print the tables."""
    only = sys.argv[1:]
    for dtype in ("fp32", "fp16"):
        if not only or f"{dtype} matmul" in only:
            print(f"# {dtype}\n{source_of(fit_matmul(table('V100', dtype, 'matmul')))}\n", flush=True)
    for dtype, kind in SHAPES:
        if not only or f"{dtype} {kind}" in only:
            core, conv = fit_conv(table("V100", dtype, kind))
            print(f"# {dtype}, {kind}\n[[fits.passes]]\n{source_of(core)}\n{source_of(conv)}\n", flush=True)


def fit_matmul(measured: KernelTable) -> Constants:
    """The constants of one table of matmuls."""
    names, at, spread = spread_of(MATMUL_PRIOR)
    rows, seconds, machine = measured.rows[measured.fitted], measured.seconds[measured.fitted], measured.machine

    def made(z: Floats) -> Constants:
        return Constants(**dict(zip(names, np.exp(at + z * spread).tolist(), strict=True)))

    def score(z: Floats) -> float:
        return badness(matmul_seconds(rows, machine, made(z)), seconds) + 0.001 * float(z @ z)

    return made(best_of(score, len(names), starts=4, rounds=450))


def fit_conv(measured: KernelTable) -> tuple[Constants, ConvConstants]:
    """The constants of one pass of convolutions."""
    names, at, spread = spread_of(CONV_PRIOR)
    rows, seconds, machine = measured.rows[measured.fitted], measured.seconds[measured.fitted], measured.machine
    splits, narrowest = SHAPES[measured.dtype, measured.kind]
    own = {f.name for f in fields(ConvConstants)}

    def made(z: Floats) -> tuple[Constants, ConvConstants]:
        all_ = dict(zip(names, np.exp(at + z * spread).tolist(), strict=True))
        conv = {name: value for name, value in all_.items() if name in own}
        core = {name: value for name, value in all_.items() if name not in own}
        return Constants(**core), ConvConstants(**conv, splits=splits, narrowest=narrowest)

    def score(z: Floats) -> float:
        return badness(conv_seconds(rows, machine, *made(z))[0], seconds) + 0.001 * float(z @ z)

    return made(best_of(score, len(names), starts=3, rounds=250))


def badness(predicted: Floats, measured: Floats) -> float:
    """Mean error of logarithms, a little of its root mean square and of the sum's."""
    error = np.log(predicted / measured)
    whole = abs(float(np.log(predicted.sum() / measured.sum())))
    return float(np.abs(error).mean() + 0.2 * np.sqrt((error**2).mean())) + 0.1 * whole


def best_of(score: Score, size: int, *, starts: int, rounds: int) -> Floats:
    """The best of several searches with seeds 0, 1, ..."""
    return min((evolved(score, size, rounds, seed) for seed in range(starts)), key=lambda found: found[0])[1]


def evolved(score: Score, size: int, rounds: int, seed: int) -> tuple[float, Floats]:
    """CMA-ES (Hansen 2016) from the prior's centre: the least score and where it is."""
    rng = np.random.default_rng(seed)
    count = 4 + 2 * int(3 * np.log(size))
    kept = count // 2
    weight = np.log(kept + 0.5) - np.log(np.arange(1, kept + 1))
    weight /= weight.sum()
    mass = 1 / float((weight**2).sum())
    c_path, c_step = (4 + mass / size) / (size + 4 + 2 * mass / size), (mass + 2) / (size + mass + 5)
    c_one = 2 / ((size + 1.3) ** 2 + mass)
    c_rank = min(1 - c_one, 2 * (mass - 2 + 1 / mass) / ((size + 2) ** 2 + mass))
    damping = 1 + 2 * max(0.0, float(np.sqrt((mass - 1) / (size + 1))) - 1) + c_step
    usual = np.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size**2))
    centre, step, shape = np.zeros(size), 0.5, np.eye(size)
    path, path_step = np.zeros(size), np.zeros(size)
    best = (score(centre), centre)
    for _ in range(rounds):
        values, axes = np.linalg.eigh(shape)
        length = np.sqrt(np.maximum(values, 1e-20))
        moves = (axes * length) @ rng.standard_normal((size, count))
        scores = np.array([score(centre + step * moves[:, k]) for k in range(count)])
        order = np.argsort(scores)
        if scores[order[0]] < best[0]:
            best = (float(scores[order[0]]), centre + step * moves[:, order[0]])
        top = moves[:, order[:kept]]
        move = top @ weight
        centre = centre + step * move
        path_step = (1 - c_step) * path_step
        path_step = path_step + np.sqrt(c_step * (2 - c_step) * mass) * (axes @ ((axes.T @ move) / length))
        path = (1 - c_path) * path + np.sqrt(c_path * (2 - c_path) * mass) * move
        shape = (1 - c_one - c_rank) * shape + c_one * np.outer(path, path) + c_rank * (top * weight) @ top.T
        step *= float(np.exp((c_step / damping) * (np.linalg.norm(path_step) / usual - 1)))
    return best


def spread_of(table: dict[str, tuple[float, float]]) -> tuple[list[str], Floats, Floats]:
    """Names, logarithms of the medians, and deviations."""
    return list(table), np.log([median for median, _ in table.values()]), np.array([d for _, d in table.values()])


def source_of(constants: Constants | ConvConstants) -> str:
    """The constants as a line of `pesto/core/costs/kernel_fits.toml`, to four digits."""
    said = [f"{f.name} = {_short(getattr(constants, f.name))}" for f in fields(constants)]
    return f"{'conv' if isinstance(constants, ConvConstants) else 'matmul'} = {{ {', '.join(said)} }}"


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"


if __name__ == "__main__":
    main()
