"""The scheduling problems of training steps: what the exact solver gets, at any size of the coarse graph."""

from pathlib import Path

from pesto.core.costs.analytical import LaunchCost, split_launches
from pesto.core.problem import TICK_S, add_launches
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs, load_graph
from pesto.planning.coarsen import coarsen, contract
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.quick_candidates import baselines, multilevel
from pesto.planning.solving.tracker import run_stage
from solvers import Problem
from solvers.files.problem_json import Instance


def coarse_problem(
    model: str, variant: str | None, cluster: str, nodes: int, batch: int | None = None, per_edge: bool = False
) -> Problem:
    """The coarse problem of a built-in model: see `coarsened`. `variant` None is the model's first."""
    source = Source(model=model, variant=variant, batch=batch)
    return coarsened(source, cluster, Settings(coarsen_to=nodes, per_edge=per_edge)).problem


def coarsened(
    source: Source, cluster: str, settings: Settings, costs: Path | None = None, launch: LaunchCost | None = None
) -> Instance:
    """The problem that `pesto solve` gives its solver: of at most `settings.coarsen_to` nodes, where that is feasible.

    Ticks are `pesto.core.problem.TICK_S`; memory is what baselines plan with. Of the two coarse graphs of that size it
    is the one with the better list schedule, simulated on the full graph (`pesto.planning.solving.quick_candidates`).
    `cluster` is a preset or a file, `costs` a profile. launch: launches are tasks of their own (Pesto, 3.2.1), and it
    is the coarse graph that is reached at once. PestoError for what is wrong with any of them.
    """
    graph = load_graph(source)
    machine = load_cluster(cluster)
    known = load_costs(graph, machine, costs)
    problem = formulate(graph, known, machine, settings)
    bench = CandidateEvaluator.of(graph, problem, per_edge=settings.per_edge)
    planning = run_stage(baselines(bench, machine))
    edges = ", a payload an edge" if settings.per_edge else ""
    if launch is None:
        coarse = run_stage(multilevel(bench, planning, settings))[0].problem
    else:
        apart = add_launches(planning, graph, machine, split_launches(graph, machine, known, launch))[0]
        coarse, edges = contract(apart, coarsen(apart, settings.coarsen_to).node_of), f"{edges}, launches apart"
    name = f"{graph.source} on {machine.name}, {coarse.tasks} nodes{edges}"
    return Instance(problem=coarse, name=name, ticks_per_second=round(1 / TICK_S))
