"""Where a plan comes from: everything that led to it, put on record beside it."""

from dataclasses import asdict, dataclass
from importlib.metadata import version

from pesto.cluster import Cluster
from pesto.coarsen import Coarsening
from pesto.costs import Costs
from pesto.graph import Graph
from pesto.plans.plan import FCFS, PER_DEVICE, PER_EDGE, Coarse, Plan, Provenance
from pesto.problem import TICK_S, lanes
from pesto.settings import Settings
from pesto.solving.candidates import Candidate
from solvers.bounds.evidence import FullBound
from solvers.result import ANSWERED, Result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Account:
    """What a solve was given, and what it proved on the way."""

    graph: Graph
    cluster: Cluster
    costs: Costs
    settings: Settings
    bound: tuple[int, str] | FullBound
    """Ticks of the full graph's lower bound, its name, and the evidence of one beyond the quick ones."""
    coarse: Coarse | None
    """What the exact solver did; None when it did not run."""


def make_plan(account: Account, chosen: Candidate, candidates: dict[str, Candidate]) -> Plan:
    """The chosen candidate as a plan with its provenance; not yet verified."""
    processors = lanes(account.cluster)
    devices = account.cluster.devices
    return Plan(
        names=account.graph.names,
        lanes=tuple(name for name, _ in processors),
        lane_device=tuple(devices[d].name for _, d in processors),
        rank=chosen.rank,
        schedule=chosen.timeline.schedule,
        tick_s=TICK_S,
        peak_bytes={d.name: int(p) for d, p in zip(devices, chosen.peak, strict=True)},
        provenance=_provenance(account, chosen, candidates),
    )


def _provenance(account: Account, chosen: Candidate, candidates: dict[str, Candidate]) -> Provenance:
    return Provenance(
        graph_fingerprint=account.graph.fingerprint(),
        graph_source=account.graph.source,
        graph_layout=account.graph.layout(),
        graph_listing=account.graph.listing(),
        graph_batch=account.graph.batch,
        cluster=account.cluster.name,
        cluster_source=account.cluster.source,
        costs=account.costs.source,
        costs_basis=account.costs.basis,
        chosen=chosen.name,
        rule=chosen.rule,
        candidates_ticks={c.name: c.makespan for c in candidates.values()},
        candidates_fit={c.name: c.fits for c in candidates.values()},
        lower_bound_ticks=account.bound[0],
        lower_bound_name=account.bound[1],
        lower_bound_evidence=account.bound.evidence if isinstance(account.bound, FullBound) else None,
        links=FCFS,
        transfers=PER_EDGE if account.settings.per_edge else PER_DEVICE,
        coarse=account.coarse,
        settings=asdict(account.settings),
        pesto_version=version("pesto"),
    )


def coarse_account(coarsening: Coarsening, result: Result) -> Coarse:
    """What the exact solver did on the coarse graph, for the record."""
    return Coarse(
        nodes=coarsening.nodes,
        reason=coarsening.reason,
        solver=result.solver,
        version=result.version,
        status=str(result.status),
        limit=str(result.limit),
        # After a failure the schedule is what the solver was given, not what it found.
        makespan_ticks=result.schedule.makespan if result.schedule and result.status in ANSWERED else None,
        lower_bound_ticks=result.lower_bound,
        detail=result.detail,
        bound_by=result.bound_by,
    )
