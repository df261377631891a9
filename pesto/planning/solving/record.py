"""Where a plan comes from: everything that led to it, put on record beside it."""

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
    """What a solve was given, and what it proved on the way."""

    graph: Graph
    cluster: Cluster
    costs: Costs
    settings: Settings
    bound: tuple[int, str] | FullBound
    """Ticks of the full graph's lower bound, its name, and the evidence of one beyond the quick ones."""
    exact: ExactOutcome | None
    """What the exact solver did; None when it did not run."""
    beside: CompanionPlan | None = None
    """The other step's plan whose variables stay in place; None without one."""


def make_plan(record: SolveRecord, chosen: Candidate, candidates: dict[str, Candidate]) -> Plan:
    """The chosen candidate as a plan with its provenance; not yet verified."""
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
        coarse=_coarse(record.exact) if record.exact is not None else None,
        settings=_requested_options(record.settings),
        pesto_version=VERSION,
    )


def _requested_options(settings: Settings) -> dict[str, float | int | str | bool]:
    """The options by their names; later ones only where they differ from their defaults: other plans stay equal."""
    usual = asdict(Settings())
    return {name: value for name, value in asdict(settings).items() if name in _ALWAYS or value != usual[name]}


def _coarse(exact: ExactOutcome) -> CoarseSolve:
    """What the exact solver did on the coarse graph."""
    coarsening, result = exact.coarsening, exact.result
    return CoarseSolve(
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
