"""Random structured graphs of 20 to 300 ops on two devices: how many plans are proven optimal, how far others are.

    python -m benchmarks.small_graphs [--sizes 20,40,60,80,100,150,200,300] [--seeds 1] [--time-limit 30] [--each]
    python -m benchmarks.small_graphs --towers    # 64 ops: two chains, tied layer by layer

Layers, grids of recurrent cells, series-parallel graphs and two towers tied layer by layer. Ops take 1 to 10 us, each
some ns of its own; a transfer takes a tenth of a mean op to a whole one. CPU seconds are of this process and its
solvers; the load is that of the machine at the end.
"""

import argparse
import os
import time
from typing import NamedTuple

import networkx as nx
import numpy as np

import pesto
from pesto.core.cluster import Cluster, Device, Path
from pesto.core.graph import Graph
from solvers.instances.table import make

FAMILIES = ("layered", "lstm-grid", "series-parallel", "towers")
TOLERANCE = 1e-4
"""The relative gap at which integer programming solvers call a solution optimal unless told otherwise."""
BYTES_A_TICK = 1000
"""Of the cluster below, which sends a byte in a nanosecond; a tick of the families is a microsecond here."""


class SmallGraphRow(NamedTuple):
    """One graph, solved."""

    family: str
    ops: int
    gap: float
    wall_s: float
    cpu_s: float
    step_us: float
    bound: str


def main() -> None:
    """Solve the graphs one by one, and print a line a graph or a row a size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="20,40,60,80,100,150,200,300")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--each", action="store_true", help="a line a graph as well")
    parser.add_argument("--towers", action="store_true", help="the 64 ops of two chains alone")
    asked = parser.parse_args()
    if asked.towers:
        print(_line(_solved("towers", graph_of("towers", 64, 0), asked.time_limit)))
        return
    rows = []
    for size in map(int, asked.sizes.split(",")):
        for family in asked.families.split(","):
            for seed in range(asked.seeds):
                rows.append((size, _solved(family, graph_of(family, size, seed), asked.time_limit)))
                if asked.each:
                    print(_line(rows[-1][1]), flush=True)
    _table(rows)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def graph_of(family: str, ops: int, seed: int) -> Graph:
    """A graph of about so many ops."""
    rng = np.random.default_rng([17, ops, seed])
    transfer = int(rng.integers(1, 6))
    if family == "towers":
        return _towers(ops, rng, transfer)
    width = int(rng.integers(3, 8))
    steps = max(1, (ops - width) // (2 * width + 1))
    p = {
        "layered": lambda: make("layered", seed, layers=ops // width, width=width, longest=9, transfer=transfer),
        "lstm-grid": lambda: make("lstm-grid", layers=width, steps=steps, transfer=transfer, op=5),
        "series-parallel": lambda: make("series-parallel", seed, tasks=ops, longest=9, transfer=transfer),
    }[family]()  # fmt: skip
    graph = nx.DiGraph()
    ticks = p.duration[:, 0] * BYTES_A_TICK + rng.integers(0, BYTES_A_TICK, p.tasks)
    sent = p.transfer[:, 0] * BYTES_A_TICK if p.payloads else p.transfer
    for task in range(p.tasks):
        graph.add_node(f"t{task:03}", seconds=float(ticks[task]) * 1e-9, runs_on="gpu")
    for src, dst, payload in zip(p.src.tolist(), p.dst.tolist(), p.payload.tolist(), strict=True):
        data = {"control": True} if payload < 0 else {"bytes": int(sent[payload]), "output": 0}
        graph.add_edge(f"t{src:03}", f"t{dst:03}", **data)
    return pesto.graph_from_networkx(graph, source=f"{family} {ops} {seed}")


def _towers(ops: int, rng: np.random.Generator, transfer: int) -> Graph:
    """Two chains; group i holds the i-th op of one and the i-th of the other, as a weight that both read."""
    graph, layers = nx.DiGraph(), ops // 2
    for chain in range(2):
        for k in range(layers):
            ns = int(rng.integers(1000, 10_000))
            graph.add_node(f"c{chain}/{k:03}", seconds=ns * 1e-9, runs_on="gpu", group=f"g{k}")
            if k:
                graph.add_edge(f"c{chain}/{k - 1:03}", f"c{chain}/{k:03}", bytes=transfer * BYTES_A_TICK)
    return pesto.graph_from_networkx(graph, source=f"towers {ops}")


def two_devices() -> Cluster:
    """Two equal GPUs with a link each way, which sends a byte in a nanosecond."""
    gpus = tuple(Device(name=f"gpu:{k}", kind="gpu", preset="V100", host=0, memory_bytes=2**34) for k in range(2))
    there, back = (Path(latency_s=0.0, s_per_byte=1e-9, links=(k,)) for k in range(2))
    return Cluster(name="two", devices=gpus, links=("there", "back"), paths=((None, there), (back, None)), source="two")


def _solved(family: str, graph: Graph, limit: float) -> SmallGraphRow:
    began, cpu = time.perf_counter(), _cpu()
    plan = pesto.solve(graph, cluster=two_devices(), time_limit_s=limit)
    made = plan.provenance
    return SmallGraphRow(family, graph.ops, plan.gap, time.perf_counter() - began, _cpu() - cpu, plan.makespan_s * 1e6,
               f"{made.chosen}, {made.lower_bound_name}")  # fmt: skip


def _cpu() -> float:
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def _line(row: SmallGraphRow) -> str:
    return (
        f"{row.family:>16} {row.ops:4} ops: gap {row.gap:7.3%}, step {row.step_us:9.3f} us, {row.wall_s:5.1f} s, "
        f"{row.cpu_s:5.1f} CPU s; {row.bound}"
    )


def _table(rows: list[tuple[int, SmallGraphRow]]) -> None:
    print("| ops | graphs | proven | to 0.01 % | mean gap | largest gap | wall s | CPU s |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for size in sorted({size for size, _ in rows}):
        of = [row for at, row in rows if at == size]
        gaps = np.array([row.gap for row in of])
        wall, cpu = np.mean([row.wall_s for row in of]), np.mean([row.cpu_s for row in of])
        proven = f"{np.mean(gaps == 0):.0%} | {np.mean(gaps <= TOLERANCE):.0%}"
        print(f"| {size} | {len(of)} | {proven} | {gaps.mean():.2%} | {gaps.max():.2%} | {wall:.1f} | {cpu:.1f} |")


if __name__ == "__main__":
    main()
