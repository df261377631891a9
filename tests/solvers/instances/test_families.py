"""Seeded families: the size and structure that they promise, optima that hold, and refusals with a remedy."""

import numpy as np
import pytest
from exhaustive import exhaustive
from hypothesis import given
from hypothesis import strategies as st

from solvers import api
from solvers.bounds import quick_bounds
from solvers.checker import check
from solvers.files.npz import pack_problem
from solvers.instances import plain
from solvers.instances.plain import lstm_grid, per_edge, series_parallel, transformer
from solvers.instances.random import generate, heterogeneous
from solvers.instances.table import FAMILIES, MOST_TASKS, PER_EDGE, label, make, optimum, ranges, settled
from solvers.problem import FORBIDDEN, Problem
from solvers.result import Options
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

SMALL = {
    "chain": {"tasks": 5},
    "fork": {"tasks": 6},
    "independent": {"tasks": 6, "makespan": 20},
    "planted": {"tasks": 7, "makespan": 30},
}
"""Parameters with which the oracle can enumerate a family whose optimum is known."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_what_its_row_says(name: str) -> None:
    """The default problem has as many tasks as the row says; a seed counts, and is in the label, where that says so."""
    family, values = FAMILIES[name], settled(name, {})
    one, again, other = make(name, 3), make(name, 3), make(name, 4)
    assert one.tasks == family.tasks(values)
    assert pack_problem(one) == pack_problem(again)
    assert (pack_problem(one) != pack_problem(other)) == family.seeded
    assert label(name, 3).startswith(f"{name} ")
    assert ("seed=3" in label(name, 3)) == family.seeded
    assert "per_edge=1" in label(name, per_edge=1)


@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
def test_every_parameter_in_range_makes_a_problem_that_has_a_schedule(name: str, data: st.DataObject) -> None:
    """Small values of all parameters: the count of tasks holds, and the list scheduler finds a valid schedule."""
    known = ranges(name)
    small = {key: st.integers(p.least, min(p.most, max(p.least, 4))) for key, p in known.items()}
    values = {key: data.draw(value, label=key) for key, value in small.items()}
    if "makespan" in values:
        values["makespan"] = data.draw(st.integers(1, 40))
        values["tasks"] = data.draw(st.integers(values["gpus"], min(12, values["gpus"] * values["makespan"])))
    seed = data.draw(st.integers(0, 2**63 - 1))
    _has_a_schedule(name, seed, values)


def test_the_packing_that_a_family_promises_is_found() -> None:
    """GPUs of 101, 126 and 155 bytes hold {83, 12}, {67, 58} and {80, 48}: no greedy packing finds that."""
    _has_a_schedule("heterogeneous", 2**63 - 1, {"layers": 3, "width": 2, "gpus": 3, "cores": 1, "transfer": 2})


def _has_a_schedule(name: str, seed: int, values: dict[str, int]) -> None:
    problem = make(name, seed, **values)
    assert problem.tasks == FAMILIES[name].tasks(settled(name, values))
    found = api.solve(problem, "list", Options())
    assert found.schedule is not None
    assert check(problem, found.schedule) == ()
    known_optimum = optimum(name, **values)
    if known_optimum is not None:
        assert quick_bounds.best(problem)[0] <= known_optimum <= found.schedule.makespan


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("gpus", [1, 2, 3])
@pytest.mark.parametrize("edges", [0, 1])
def test_known_optima_are_those_of_the_oracle(name: str, gpus: int, edges: int) -> None:
    """Enumeration of small problems, transfers of every length, agrees with what the family says."""
    for transfer in (0, 1, 2, 5) if "transfer" in FAMILIES[name].parameters else (None,):
        values = SMALL[name] | {"gpus": gpus, PER_EDGE: edges} | ({} if transfer is None else {"transfer": transfer})
        said = optimum(name, **values)
        for seed in range(3 if FAMILIES[name].seeded else 1):
            found = exhaustive(make(name, seed, **values))
            assert found is not None
            assert said == found.makespan or (said is None and name == "planted" and edges)


def test_forks_by_hand() -> None:
    """k tasks of one tick between the first and the join."""
    # k = 5 with transfers of 2: a result from elsewhere comes at 1 + 2 + 1 + 2 = 6, when all five are done here.
    assert optimum("fork", tasks=7, gpus=3, transfer=2) == 7
    assert optimum("fork", tasks=20, gpus=1, transfer=2) == 20
    # Free transfers: 18 tasks on 3 GPUs take 6 ticks, with one before and one after.
    assert optimum("fork", tasks=20, gpus=3, transfer=0) == 8


@pytest.mark.parametrize("seed", range(20))
def test_the_hidden_schedule_is_valid_and_sends(seed: int) -> None:
    """Its devices and order, timed anew on the links, take the planted makespan; some payloads cross."""
    problem = make("planted", seed, tasks=200, gpus=4, makespan=900, transfer=15, edges=3)
    device, start, finish = plain._cut(np.random.default_rng(seed), 200, 4, 900)
    none = np.zeros(0, dtype=np.int64)
    rough = Schedule(
        device=device, start=start, finish=finish, sent_payload=none, sent_to=none, sent_start=none, sent_finish=none
    )
    found = rebuild(problem, rough)
    assert check(problem, found) == ()
    assert found.makespan == optimum("planted", tasks=200, gpus=4, makespan=900) == 900
    assert len(found.sent_payload) > 20
    assert (problem.payload < 0).sum() > 20


def test_an_exact_solver_finds_a_planted_optimum() -> None:
    """16 tasks on 2 GPUs: CP-SAT proves that the planted makespan is the least."""
    result = api.solve(make("planted", 0, tasks=16, makespan=60, transfer=2), "cpsat", Options(seconds=600))
    assert result.schedule is not None
    assert result.schedule.makespan == result.lower_bound == 60


def test_the_lstm_grid_of_184_tasks() -> None:
    """4 layers x 20 steps: 80 cells forward, 80 backward, 20 losses, 4 updates; a transfer takes a third of an op."""
    problem = make("lstm-grid", layers=4, steps=20)
    assert problem.tasks == 184
    assert pack_problem(problem) == pack_problem(lstm_grid(4, 20))
    assert set(problem.duration.ravel()) == {3}
    assert set(problem.transfer.ravel()) == {1}


def test_a_transformer_block_counted_by_hand() -> None:
    """One layer of 2 heads: embedding, 2 projections, 2 attentions, output, add, 2 products, add, loss (11 forward)."""
    problem = transformer(1, 2, op=1, transfer=2)
    assert problem.tasks == 11 + 10 + 7
    forward = [1, 3, 3, 2, 2, 2, 1, 8, 8, 1, 8]
    assert problem.duration[:, 0].tolist() == forward + [2 * t for t in forward[:-1]] + [1] * 7
    # Updates, from 21 on, of the embedding 0, heads 1 and 2, output 5, products 7 and 8, and the loss's softmax 10.
    assert [problem.group.tolist().index(g) for g in problem.group[21:]] == [0, 1, 2, 5, 7, 8, 10]
    assert (transformer(1, 2, tied=0).group == -1).all()
    arcs = set(zip(problem.src.tolist(), problem.dst.tolist(), strict=True))
    # Residuals: the first add reads the embedding, the second the first; the loss feeds the last add's backward task.
    assert {(0, 6), (6, 9), (9, 10), (10, 20), (20, 17), (17, 11), (0, 11), (11, 21), (10, 27)} <= arcs
    sent = dict(zip(problem.producer.tolist(), problem.transfer[:, 0].tolist(), strict=True))
    # A head's projection is 3/2 of the width (3 of 2 ticks), its attention 1/2; the wide product 4 times it.
    assert [sent[t] for t in (0, 1, 3, 5, 7, 8)] == [2, 3, 1, 2, 8, 2]
    assert [sent[t] for t in (14, 12, 18, 19)] == [3, 2, 2, 8]


@pytest.mark.parametrize("seed", range(5))
def test_series_parallel_graphs_reduce_to_one_edge(seed: int) -> None:
    """Merging parallel edges and tasks with one edge in and one out, as long as there are any, leaves 0 -> 1."""
    problem = series_parallel(np.random.default_rng(seed), 30)
    arcs = set(zip(problem.src.tolist(), problem.dst.tolist(), strict=True))
    while True:
        into, out = (
            {b: [a for a, c in arcs if c == b] for _, b in arcs},
            {a: [b for c, b in arcs if c == a] for a, _ in arcs},
        )
        passed = next((t for t in into if len(into[t]) == 1 and len(out.get(t, ())) == 1), None)
        if passed is None:
            break
        arcs -= {(into[passed][0], passed), (passed, out[passed][0])}
        arcs.add((into[passed][0], out[passed][0]))
    assert arcs == {(0, 1)}


def test_the_heterogeneous_machine() -> None:
    """Host cores, GPUs and lanes; unlike GPUs; one bus for the host, a link for each two GPUs; launches in groups."""
    problem = heterogeneous(np.random.default_rng(0), 2, 3, gpus=3, cores=2, transfer=5)
    assert problem.location.tolist() == [0, 0, 1, 2, 3, 1, 2, 3]
    runs = problem.duration != FORBIDDEN
    assert runs[:3].tolist() == [[True] * 2 + [False] * 6] * 3
    assert runs[3:9].tolist() == [[False] * 2 + [True] * 3 + [False] * 3] * 6
    assert runs[9:15].tolist() == [[False] * 5 + [True] * 3] * 6
    assert (problem.duration[3:9, 3] == problem.duration[3:9, 2] + -(-problem.duration[3:9, 2] // 2)).all()
    assert (problem.group[3:9] == problem.group[9:15]).all()
    links = problem.path_links[:, :, 0]
    assert links.tolist() == [[-1, 0, 0, 0], [0, -1, 1, 2], [0, 1, -1, 3], [0, 2, 3, -1]]
    assert problem.memory.sum() <= problem.capacity.sum() < 1.2 * problem.memory.sum()
    # Two inputs of each op of the second layer, 6 to 8, are of the first, 3 to 5.
    second = (problem.dst >= 6) & (problem.dst < 9) & (problem.payload >= 0)
    assert set(problem.src[second]) <= {3, 4, 5}
    assert second.sum() == 6


def test_a_payload_an_edge() -> None:
    """Every edge that carries something gets a payload of its own of the same producer and transfer; all else stays."""
    for seed in range(20):
        problem = generate(np.random.default_rng(seed), tasks=12)
        split = per_edge(problem)
        carries = problem.payload >= 0
        assert ((split.payload >= 0) == carries).all()
        assert len(set(split.payload[carries])) == carries.sum() == split.payloads
        assert (split.producer[split.payload[carries]] == problem.src[carries]).all()
        assert (split.transfer[split.payload[carries]] == problem.transfer[problem.payload[carries]]).all()
        assert pack_problem(per_edge(split)) == pack_problem(split)
        same = [f for f in Problem.__dataclass_fields__ if f not in ("payload", "producer", "transfer")]
        assert all(np.array_equal(getattr(split, f), getattr(problem, f)) for f in same)
    assert make("fork", tasks=5).payloads == 4
    assert make("fork", tasks=5, per_edge=1).payloads == 6


REFUSED = {
    "unknown family": (("lstm_grid",), {}, "no family is called 'lstm_grid' - did you mean lstm-grid?"),
    "unknown parameter": (("chain",), {"taks": 3}, "chain has no parameter 'taks' - did you mean tasks?"),
    "below the range": (("fork",), {"tasks": 2}, "fork: tasks is 2 - give an integer from 3 to"),
    "not an integer": (("chain",), {"gpus": True}, "gpus is True - give an integer"),
    "negative seed": (("layered", -1), {}, "seed -1 is out of range"),
    "too many tasks": (("layered",), {"layers": 10**5, "width": 10**5}, f"too many - at most {MOST_TASKS} tasks"),
    "too many GPUs for them": (("chain",), {"tasks": MOST_TASKS, "gpus": 256}, "too many"),
    "tasks that cannot fill the GPUs": (("planted",), {"tasks": 3, "gpus": 4}, "give 4 to 800 tasks"),
    "more tasks than ticks": (("independent",), {"tasks": 30, "makespan": 10}, "give 2 to 20 tasks"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_where_and_what_to_do(case: str) -> None:
    """One line with the remedy, before anything is built."""
    arguments, parameters, says = REFUSED[case]
    with pytest.raises(ValueError) as error:
        make(*arguments, **parameters)
    assert says in str(error.value)
    assert " - " in str(error.value)
    assert "\n" not in str(error.value)
