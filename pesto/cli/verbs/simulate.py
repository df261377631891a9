"""pesto simulate: predict the step time of a plan, also on another cluster."""

from pathlib import Path

import click
import numpy as np

from pesto.cli.options import Existing, cluster_option, costs_option, json_option, source_options
from pesto.cli.outputs import check_outputs
from pesto.cli.verbs.check import plan_cluster, plan_source
from pesto.cluster import Cluster
from pesto.errors import InputError, MismatchError, UsageError
from pesto.files.disk import write_atomic
from pesto.graph import Graph
from pesto.inputs.load import load_cluster, load_costs, load_graph
from pesto.memory.peaks import footprint
from pesto.plans.plan import PER_EDGE, Plan
from pesto.plans.plan_file import load
from pesto.plans.tf_pesto_files import read_placement
from pesto.problem import TICK_S, lanes
from pesto.settings import Settings
from pesto.show.solve_report import to_json
from pesto.solving.candidates import Bench, Candidate
from pesto.solving.flow import formulate
from pesto.source import Source
from solvers.memory.usage import over_time


@click.command("simulate")
@click.argument("plan", type=Existing(), required=False)
@source_options
@cluster_option(default=None)
@costs_option()
@click.option("--part", type=Existing(), help="The authors' part.json, in place of a plan.")
@click.option("--cdep", type=Existing(), help="The authors' cdep.json, with --part.")
@click.option("--per-edge", is_flag=True, help="With --part: one transfer an edge, as the paper counts them.")
@click.option(
    "--memory", type=click.Path(path_type=Path), help="Also write the bytes alive over the step here, as CSV."
)
@json_option()
def simulate_command(
    *,
    plan: Path | None,
    source: Source,
    cluster: str | None,
    costs: Path | None,
    part: Path | None,
    cdep: Path | None,
    per_edge: bool,
    memory: Path | None,
    as_json: bool,
) -> None:
    """Predict the step time of PLAN, or of a placement in the authors' files.

    \b
    pesto simulate plan.json --cluster v100x2-pcie
    pesto simulate plan.json --memory bytes.csv
    pesto simulate --part part.json --cdep cdep.json --model nmt
    """
    if (plan is None) == (part is None):
        raise UsageError("give either a PLAN or --part FILE [--cdep FILE]")
    if memory is not None:
        check_outputs([memory], [file for file in (plan, part, cdep, source.file) if file], as_json=as_json)
    found = load(plan) if plan is not None else None
    graph = load_graph(plan_source(found, source) if found else source.checked())
    machine = load_cluster(cluster or (plan_cluster(found) if found else "v100x2-nvlink"))
    per_edge = found.provenance.transfers == PER_EDGE if found else per_edge
    problem = formulate(graph, load_costs(graph, machine, costs), machine, Settings(per_edge=per_edge))
    bench = Bench.of(graph, problem, per_edge=per_edge)
    if found is not None:
        run = _planned(found, graph, bench, tuple(name for name, _ in lanes(machine)))
    else:
        run = _foreign(Path(str(part)), cdep, bench, machine)
    names = [d.name for d in machine.devices]
    if memory is not None:
        write_atomic(memory, _curves(run, bench, names))
    _say(run, bench, names, as_json=as_json)


def _curves(run: Candidate, bench: Bench, names: list[str]) -> bytes:
    """device,seconds,bytes: from that time on the device holds so many; each device's rows in order of time."""
    held = footprint(bench.graph, per_edge=bench.per_edge)
    rows = ["device,seconds,bytes"]
    for name, (ticks, level) in zip(names, over_time(bench.problem, held, run.timeline.schedule), strict=True):
        rows += [f"{name},{at * TICK_S:.9f},{size}" for at, size in zip(ticks.tolist(), level.tolist(), strict=True)]
    return ("\n".join(rows) + "\n").encode()


def _foreign(part: Path, cdep: Path | None, bench: Bench, machine: Cluster) -> Candidate:
    device, order = read_placement(part, cdep, bench.graph, bench.problem, machine)
    if order is None:
        return bench.placed("part", str(part), device)
    return bench.ordered("part", str(part), device, order)


def _planned(plan: Plan, graph: Graph, bench: Bench, names: tuple[str, ...]) -> Candidate:
    if plan.provenance.graph_fingerprint != graph.fingerprint() or plan.names != graph.names:
        raise MismatchError("the plan is for another graph - give the one that it was made for")
    index = {name: k for k, name in enumerate(names)}
    missing = sorted(set(plan.lanes) - set(index))
    used = {plan.lanes[d] for d in np.unique(plan.schedule.device)}
    if used & set(missing):
        raise InputError(
            f"the cluster has no {sorted(used & set(missing))[0]}, which the plan uses - give one that has"
        )
    device = np.array([index.get(name, -1) for name in plan.lanes])[plan.schedule.device]
    return bench.ordered("plan", "as planned", device, plan.rank)


def _say(run: Candidate, bench: Bench, names: list[str], *, as_json: bool) -> None:
    line, problem = run.timeline, bench.problem
    busy = np.bincount(problem.location, weights=line.busy_s, minlength=problem.locations)
    sent_s = float((line.schedule.sent_finish - line.schedule.sent_start).sum() * TICK_S)
    result = {
        "makespan_s": line.makespan_s,
        "busy_s": dict(zip(names, busy.tolist(), strict=True)),
        "transfers": len(line.schedule.sent_payload),
        "sent_s": sent_s,
        "peak_bytes": dict(zip(names, run.peak.tolist(), strict=True)),
        "fits": run.fits,
    }
    if as_json:
        click.echo(to_json(result))
        return
    click.echo(
        f"step time     {line.makespan_s * 1e3:.2f} ms predicted{'' if run.fits else ' (does not fit the memory)'}"
    )
    click.echo(f"transfers     {result['transfers']} ({sent_s * 1e3:.2f} ms in all)")
    for name, seconds, peak in zip(names, busy.tolist(), run.peak.tolist(), strict=True):
        click.echo(f"{name:13s} busy {seconds * 1e3:.2f} ms, peak {peak / 2**30:.2f} GiB")
