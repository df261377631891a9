"""Plan cells: what is recorded of a whole plan, and what congestion is worth (Pesto, 3.2.2, Fig 5)."""

import pytest

from pesto.core.cluster import Path
from pesto.core.problem import StepOnCluster
from pesto.core.settings import Settings
from pesto.planning.solving import exact, flow, quick_candidates
from pesto.research.study.cells import CellAnswer, StudyCell, TrainingInstance
from pesto.research.study.execute import plan_cell
from solvers.result import Limit, Result, Status

LINK = Path(latency_s=0.0, s_per_byte=1e-9)


@pytest.fixture
def step(make_graph, make_cluster, make_costs) -> StepOnCluster:
    """Ten producers of 1 us that share a GPU, and a consumer of 10 us each; a transfer takes 30 us.

    With k consumers on the other GPU, the first GPU is busy until 10 + 10 (10 - k) us. Were links free, the first
    transfer would arrive after 31 us, and the other GPU would end at 31 + 10 k: best is k = 4, 71 us. One at a time,
    the k-th arrives at 1 + 30 k, so k = 4 really takes 121 + 10 = 131 us, and the best is k = 2, 90 us.
    """
    ops = [{"name": f"p{k}", "s": 1e-6, "bytes": 30_000, "group": "g", "kinds": ("gpu",)} for k in range(10)]
    ops += [{"name": f"c{k}", "s": 1e-5, "inputs": [f"p{k}"], "kinds": ("gpu",)} for k in range(10)]
    graph, cluster = make_graph(ops), make_cluster(path=LINK)
    return StepOnCluster(graph=graph, cluster=cluster, costs=make_costs(graph, cluster))


def cell(*, congestion: bool) -> StudyCell:
    of = TrainingInstance(
        model="m", variant="v", cluster="c", sha256="", path=b"c", nodes=None, batch=None, per_edge=False,
    )  # fmt: skip
    settings = {"workers": 8, "gap": 0.0, "deterministic": False, "coarsen_to": 50, "congestion": congestion}
    return StudyCell(
        key="k", ordinal=0, stage="plan", instance=of, solver="cpsat", formulation="", limit_s=20.0, seed=0,
        settings=settings,
    )  # fmt: skip


def planned(one: StudyCell, step: StepOnCluster, measures: dict[str, int]) -> CellAnswer:
    return plan_cell(one, step, CellAnswer(key=one.key, status="refused", measures=measures))


def test_with_congestion_the_promise_is_kept(step):
    """The list start is that good already: the solver proves it, and finds nothing of its own."""
    answer = planned(cell(congestion=True), step, {"cores": 2})
    found = answer.measures
    assert (answer.status, answer.makespan) == ("optimal", 90_000)
    assert (found["coarse_nodes"], found["coarse_ms"], found["coarse_bound_ms"]) == (20, None, 0.09)
    assert (found["candidates"]["coarse_ms"], found["last_step_ms"], found["step_ms"]) == (0.09, None, 0.09)
    assert answer.lower_bound == found["bound_ms"] * 1e6
    assert set(found["stages"]) == {
        f"{name}_s" for name in ("problem", "baselines", "coarsen", "solve", "repair", "verify", "ties", "trust")
    }
    assert found["candidates"]["single_ms"] == 0.11  # 10 + 10 x 10 us
    assert found["cores"] == 2
    assert answer.trace[0].seconds == 0.0
    assert answer.trace[-1].makespan == 90_000


def test_without_congestion_four_transfers_wait_for_each_other(step):
    """The solver is sure of 71 us, and its plan takes 131 us."""
    found = planned(cell(congestion=False), step, {}).measures
    assert (found["coarse_ms"], found["coarse_bound_ms"]) == (0.071, 0.071)
    assert found["last_step_ms"] == 0.131
    assert 0.071 < found["coarse_start_ms"] <= found["start_step_ms"]
    assert found["step_ms"] >= 0.09


def test_a_plan_without_congestion_is_still_a_plan_for_the_real_links(step):
    """`flow.solve` verifies it against the problem with links; the start, which knows of them, is not offered."""
    heard = []
    settings = Settings(time_limit_s=600, coarsen_to=50, congestion=False, search=False)
    outcome = flow.solve(step.graph, step.cluster, step.costs, settings, heard.append)
    assert outcome.plan.provenance.settings["congestion"] is False
    assert outcome.plan.schedule.makespan == min(c.makespan for c in outcome.candidates.values() if c is not None)
    assert outcome.exact.last.makespan == 131_000
    assert "the start" not in outcome.candidates["coarse"].rule


@pytest.fixture
def end_with(monkeypatch):
    """Let the exact solver end with a status and nothing but the start that it was given."""
    real = exact.api.solve

    def apply(status: Status) -> None:
        def solve(problem, name, options, **report):
            if name in ("list", *quick_candidates.RIVALS):
                return real(problem, name, options, **report)
            return Result(
                status=status, limit=Limit.OTHER, schedule=options.start, lower_bound=0, seconds=0.1, solver=name,
                version="1", detail="no more",
            )  # fmt: skip

        monkeypatch.setattr(exact.api, "solve", solve)
        monkeypatch.setattr(exact.api, "solve_whole", solve)

    return apply


@pytest.mark.parametrize("congestion", [True, False])
def test_the_start_is_no_work_of_the_solver(step, end_with, congestion):
    """Stopped without anything better than its start, it has no numbers; the plan and its candidates have theirs."""
    end_with(Status.FEASIBLE)
    answer = planned(cell(congestion=congestion), step, {})
    found = answer.measures
    assert (found["coarse_ms"], found["last_step_ms"]) == (None, None)
    assert found["coarse_start_ms"] is not None
    if congestion:
        assert found["start_step_ms"] == found["candidates"]["coarse_ms"]
    assert answer.makespan == found["step_ms"] * 1e6
    assert (found["candidates"]["coarse_ms"] is not None) is congestion


def test_a_failed_solver_gets_no_makespan(step, end_with):
    end_with(Status.CRASHED)
    answer = planned(cell(congestion=True), step, {})
    assert (answer.status, answer.makespan, answer.detail) == ("crashed", None, "no more")
    assert (answer.measures["coarse_ms"], answer.measures["last_step_ms"]) == (None, None)
    assert answer.measures["step_ms"] > 0
