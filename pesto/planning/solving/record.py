"""The plan of a chosen candidate, with its provenance: everything that led to it."""

from dataclasses import asdict, dataclass

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.distribution import VERSION
from pesto.core.graph import Graph
from pesto.core.plans.plan import FCFS, PER_DEVICE, PER_EDGE, CoarseSolve, Plan, Provenance
from pesto.core.plans.shared_variables import OF_PINNED, CompanionPlan, StepVariables
from pesto.core.problem import TICK_S, lanes
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import Candidate
from pesto.planning.solving.exact import ExactOutcome
from solvers import ANSWERED
from solvers.bounds.evidence import FullBound

_ALWAYS = (
    "time_limit_s", "gap", "search", "seed", "coarsen_to", "solver", "formulation", "workers", "deterministic",
    "per_edge", "congestion",
)  # fmt: skip
"""Settings that plans of every version have."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolveRecord:
    """Inputs of a solve, and what it proved."""

    graph: Graph
    cluster: Cluster
    costs: Costs
    settings: Settings
    bound: tuple[int, str] | FullBound
    """Ticks of the full graph's lower bound, its name, and the evidence of one beyond the quick ones."""
    exact: ExactOutcome | None
    """Outcome of the exact solver; None if it did not run."""
    beside: CompanionPlan | None = None
    """The other step's plan whose variables stay in place; None without one."""


def make_plan(record: SolveRecord, chosen: Candidate, candidates: dict[str, Candidate]) -> Plan:
    """Return the chosen candidate as a plan with its provenance; not yet verified."""
    processors = lanes(record.cluster)
    devices = record.cluster.devices
    return Plan(
        names=record.graph.names,
        lanes=tuple(name for name, _ in processors),
        lane_device=tuple(devices[d].name for _, d in processors),
        rank=chosen.rank,
        schedule=chosen.timeline.schedule,
        tick_s=TICK_S,
        peak_bytes={d.name: int(p) for d, p in zip(devices, chosen.peak, strict=True)},
        provenance=_provenance(record, chosen, candidates),
        held=StepVariables.of(record.graph),
        beside=record.beside,
        feed_shapes=record.graph.feed_shapes,
    )


def _provenance(record: SolveRecord, chosen: Candidate, candidates: dict[str, Candidate]) -> Provenance:
    # Options added later are recorded only where they differ from their defaults, so that other plans stay equal.
    usual = asdict(Settings())
    options = {k: value for k, value in asdict(record.settings).items() if k in _ALWAYS or value != usual[k]}
    coarse = None
    if record.exact is not None:
        coarsening, result = record.exact.coarsening, record.exact.result
        # After a failure the schedule is what the solver was given, not what it found.
        own = result.schedule if result.status in ANSWERED else None
        coarse = CoarseSolve(
            nodes=coarsening.nodes, reason=coarsening.reason, solver=result.solver, version=result.version,
            status=str(result.status), limit=str(result.limit), makespan_ticks=own.makespan if own else None,
            lower_bound_ticks=result.lower_bound, detail=result.detail, bound_by=result.bound_by,
        )  # fmt: skip
    return Provenance(
        graph_fingerprint=record.graph.fingerprint(),
        graph_source=record.graph.source,
        graph_origin=record.graph.origin,
        graph_layout=record.graph.layout(),
        graph_listing=record.graph.listing(),
        graph_batch=record.graph.batch,
        cluster=record.cluster.name,
        cluster_source=record.cluster.source,
        cluster_origin=record.cluster.origin,
        costs=record.costs.source,
        costs_files=record.costs.files,
        costs_basis=record.costs.basis,
        chosen=chosen.name,
        rule=chosen.rule,
        candidates_ticks={c.name: c.makespan for c in candidates.values()},
        candidates_fit={c.name: c.fits for c in candidates.values()},
        lower_bound_ticks=record.bound[0],
        lower_bound_name=record.bound[1] + ("" if record.beside is None else OF_PINNED + record.beside.pinned),
        lower_bound_evidence=record.bound.evidence if isinstance(record.bound, FullBound) else None,
        links=FCFS,
        transfers=PER_EDGE if record.settings.per_edge else PER_DEVICE,
        coarse=coarse,
        settings=options,
        pesto_version=VERSION,
    )
