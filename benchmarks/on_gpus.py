"""What benchmarks of models on clusters of V100s share: the clusters, and the arguments that choose."""

import argparse
from collections.abc import Iterator

CLUSTERS = {2: "v100x2-nvlink", 4: "v100x4", 8: "v100x8", 16: "v100x16"}
"""Preset by number of GPUs."""


def parser(about: str, *, models: str, gpus: str = "2,4,8,16", seconds: float) -> argparse.ArgumentParser:
    """Which models on how many GPUs, and how long each solve searches; the defaults are given."""
    result = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--models", default=models)
    result.add_argument("--variant", help="by default tiny", default="tiny")
    result.add_argument("--gpus", default=gpus)
    result.add_argument("--time-limit", type=float, default=seconds, help="of each solve")
    return result


def cases(arguments: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """(model, GPUs) of each table row, or several rows."""
    for model in arguments.models.split(","):
        for gpus in map(int, arguments.gpus.split(",")):
            yield model, gpus


def head(columns: tuple[str, ...]) -> str:
    """The first two lines of a markdown table."""
    return f"{row(columns)}\n|{'---|' * len(columns)}"


def row(cells: tuple[object, ...] | list[str]) -> str:
    """A line of a markdown table."""
    return f"| {' | '.join(map(str, cells))} |"
