"""Steps of several micro-batches: pipelined by each schedule, and placed and done one after the other; all modelled.

    python benchmarks/pipelines.py [--steps transformer:10x8x1024,nmt:2x1024,rnnlm:2x2048,tofu-wrn:50x4]
        [--clusters v100x4,v100x8] [--micro-batches 16] [--time-limit 5] [--search 10]

A markdown row for each step and cluster: ms of the step by each schedule ("-": none, "!": out of memory), `own`: the
shortest of those whose devices share no stage; `serial`: what `pesto solve` places within the time limit (below 0: not
asked), its batches one after the other; the chosen step over the least of the others; both gaps to the bound of all
plans; the chain's own prediction over the chosen schedule's step before search; CPU seconds of the pipeline.
"""

import argparse
import math
import os
import time

import numpy as np

from pesto.core.costs.analytical import model_costs
from pesto.core.errors import PestoError
from pesto.core.graph import Graph
from pesto.core.micro_batches import unroll
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.core.step_parts import AFTER, step_parts
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_graph
from pesto.pipelining.schedules import REPLICATED
from pesto.pipelining.staged_step import MappedSchedule
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.flow import solve
from pesto.verbs.pipeline_step import pipeline_step
from pesto.verbs.requests import Context, PipelineRequest
from pesto.verbs.verb_options import PipelineOptions
from solvers import relative_gap
from solvers.arrays import ints, rank_of
from solvers.compiled.dag import after_all, topological_order
from solvers.heuristics.devices_of_location import devices_at

SHOWN = ("1f1b*", "thinned", "gpipe", "1f1b", "interleaved-2", "zero-bubble", "zero-bubble-v", "replicated")


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--steps", default="transformer:10x8x1024,nmt:2x1024,rnnlm:2x2048,tofu-wrn:50x4")
    asked.add_argument("--clusters", default="v100x4,v100x8")
    asked.add_argument("--micro-batches", type=int, default=16)
    asked.add_argument("--time-limit", type=float, default=5.0)
    asked.add_argument("--search", type=float, default=10.0)
    given = asked.parse_args()
    columns = ("chosen", *SHOWN, "own", "serial", "chosen / others", "gap", "own gap", "chain / step", "CPU s")
    print(f"| step | {' | '.join(columns)} |")
    print("|---|---" + "|---:" * (len(columns) - 1) + "|")
    for each in given.steps.split(","):
        model, _, variant = each.partition(":")
        graph = load_graph(Source(model=model, variant=variant), quiet=True)
        for cluster in given.clusters.split(","):
            cells = " | ".join(row(graph, cluster, given.micro_batches, (given.time_limit, given.search)))
            print(f"| {model} {variant}, {cluster} | {cells} |", flush=True)


def row(graph: Graph, name: str, batches: int, seconds: tuple[float, float]) -> list[str]:
    """The columns of one step on one cluster; seconds: of the serial step's solve, and of search."""
    cluster, began = load_cluster(name), time.process_time()
    result = pipeline_step(
        PipelineRequest(
            source=graph, cluster=cluster, micro_batches=batches, options=PipelineOptions(search_s=seconds[1])
        ),
        Context(),
    ).pipeline
    took, step = time.process_time() - began, result.plan.makespan_s * 1e3
    alone = serial(graph, name, batches, seconds[0]) if seconds[0] >= 0 else math.inf
    known = {each.schedule.name: each for each in result.mapped if each is not result.chosen or not result.search}
    others = [
        each.candidate.makespan * 1e-6
        for each in known.values()
        if each.candidate and each.fits and each.schedule.name in ("gpipe", "1f1b", "interleaved-2", "zero-bubble")
    ] + [alone]
    own = min(
        each.candidate.makespan for key, each in known.items() if each.candidate and each.fits and key != REPLICATED
    )
    begun = known[result.chosen.schedule.name]
    before = begun.candidate.makespan if begun.candidate else 1
    return [
        f"{begun.schedule.name}{' + search' if result.search else ''} {step:.0f}",
        *(shown(each) for each in known.values() if each.schedule.name in SHOWN),
        f"{own * 1e-6:.0f}", f"{alone:.0f}", f"{step / min(others):.3f}", f"{result.plan.gap:.1%}",
        f"{relative_gap(own, result.bound_ticks):.1%}", f"{begun.predicted / before:.2f}", f"{took:.1f}",
    ]  # fmt: skip


def shown(mapped: MappedSchedule) -> str:
    """Milliseconds of a schedule."""
    if mapped.candidate is None:
        return "-"
    return f"{mapped.candidate.makespan * 1e-6:.0f}{'' if mapped.fits else '!'}"


def serial(graph: Graph, name: str, batches: int, seconds: float) -> float:
    """Milliseconds of all batches one after the other, placed and ordered as one is; infinite where none fits."""
    cluster, parts = load_cluster(name), step_parts(graph)
    try:
        plan = solve(graph, cluster, model_costs(graph, cluster), Settings(time_limit_s=seconds), lambda _: None).plan
        step = unroll(graph, parts, batches)
        problem = formulate(step.graph, model_costs(step.graph, cluster), cluster, Settings())
    except PestoError:
        return float("inf")
    location = plan.schedule.device[step.op]
    known = formulate(graph, model_costs(graph, cluster), cluster, Settings())
    device = devices_at(problem, ints(known.location[location]))
    after = (parts.part[step.op] == AFTER) & ~step.sums
    key = np.maximum(step.batch, 0) * (graph.ops + 1) + plan.rank[step.op]
    order = topological_order(problem.tasks, problem.src, problem.dst)
    key = after_all(order, problem.src, problem.dst, ints(np.where(after, batches * (graph.ops + 1), key)))
    rank = rank_of(ints(np.lexsort((rank_of(order), key))))
    result = CandidateEvaluator.of(step.graph, problem).ordered("serial", "one after the other", device, rank)
    return result.makespan * 1e-6 if result.fits else float("inf")


if __name__ == "__main__":
    print(f"<!-- load {os.getloadavg()[0]:.1f} -->")
    main()
