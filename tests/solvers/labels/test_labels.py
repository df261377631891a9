"""Labelling problems: exact is what enumeration finds, what is shared is paid once, and every answer is judged."""

import io
from itertools import product

import numpy as np
import pytest
from labels_by_force import chain_value, critical_labels, least_value, value_of

from solvers.labels import label_methods, subprocess_lp
from solvers.labels.elimination import eliminate
from solvers.labels.factor_graph import net_of, tidy
from solvers.labels.label_methods import METHODS, solve
from solvers.labels.labelling import FORBIDDEN, MOST, Builder, Labelling, judge
from solvers.result import Limit, Status


def random_problem(seed, most=7, labels=(2, 3, 4)):
    """Few variables, many edges, some of them twice; a third of the problems forbid a third of all."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, most + 1))
    never = 0.33 if seed % 3 == 0 else 0.0
    many = rng.choice(labels, size=n)

    def costs(size):
        found = rng.integers(0, 20, size=size)
        return np.where(rng.random(size) < never, FORBIDDEN, found)

    made = Builder()
    for count in many:
        made.variable(costs(count).tolist())
    for _ in range(int(rng.integers(0, 2 * n))):
        a, b = rng.integers(0, n, size=2)
        if a != b:
            made.edge(int(a), int(b), costs((many[a], many[b])).tolist())
    return made.build()


def test_exact_is_exhaustive(seeds) -> None:
    """On random problems of up to 7 variables, with labels and pairs that are forbidden."""
    seen = set()
    for seed in seeds(150):
        problem = random_problem(seed)
        best, found = least_value(problem), solve(problem, "exact")
        assert found.value == best and (found.status is Status.INFEASIBLE) == (best is None), seed
        seen.add(found.status)
        quick = solve(problem, "greedy")
        if best is not None:
            assert found.bound == best and (quick.value is None or quick.value >= best)
            assert judge(problem, found.labels) == found.value == value_of(problem, found.labels)
    assert seen == {Status.OPTIMAL, Status.INFEASIBLE}


def test_bounds_are_below_and_values_above() -> None:
    """Messages and critical paths: bound, optimum, value, in this order; infeasible only what is."""
    proven = 0
    for seed in range(150):
        problem = random_problem(seed)
        best, found, labels = least_value(problem), solve(problem, "trws"), critical_labels(problem)
        proven += found.status is Status.OPTIMAL
        assert (found.status is not Status.INFEASIBLE) or best is None
        assert best is None or found.bound <= best <= (best if found.value is None else found.value)
        assert labels is None or best <= value_of(problem, labels)
    assert proven > 80


def dense_problem(seed: int, n: int = 11, labels: int = 4):
    """All pairs of so many variables cost something, so that neither elimination nor enumeration ends it."""
    rng, made = np.random.default_rng(seed), Builder()
    for _ in range(n):
        made.variable(rng.integers(0, 20, size=labels).tolist())
    for a in range(n):
        for b in range(a + 1, n):
            costs = rng.integers(0, 20, size=(labels, labels))
            made.edge(a, b, np.where(rng.random((labels, labels)) < 0.2, FORBIDDEN, costs).tolist())
    return made.build()


def solve_by_cpsat(problem):
    """As exact, with CP-SAT in place of the linear program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess_lp, "PROGRAM", "label_constraints")
        return solve(problem, "exact")


def two_solvers(seeds):
    for seed in seeds:
        problem = dense_problem(seed)
        one, other = solve(problem, "exact"), solve_by_cpsat(problem)
        assert (one.status, one.value) == (other.status, other.value), seed
        if other.value is not None:
            assert other.remained == problem.variables
            assert other.status is Status.OPTIMAL and judge(problem, other.labels) == other.value == other.bound


def test_cpsat_finds_what_highs_finds() -> None:
    """Where a solver is needed, of two problems."""
    two_solvers(range(2))


@pytest.mark.slow
def test_cpsat_finds_what_highs_finds_on_many(seeds) -> None:
    """The same of others; and without any allowed labels both say so."""
    two_solvers(range(2, 2 + len(seeds(3))))
    made = Builder()
    colours = [made.variable([0] * 3) for _ in range(12)]
    for a, one in enumerate(colours):
        for other in colours[a + 1 :]:
            made.edge(one, other, np.where(np.eye(3) > 0, FORBIDDEN, 0).tolist())
    problem = made.build()
    assert solve(problem, "exact").status is solve_by_cpsat(problem).status is Status.INFEASIBLE


def test_critical_paths_come_first() -> None:
    """On a chain the path is all of it, so its program is exact; a branch follows what the longer path chose."""
    for seed in range(10):
        problem = line(seed, 6).build()
        assert judge(problem, critical_labels(problem)) == least_value(problem)
    made = Builder()
    trunk = [made.variable([0, 0]) for _ in range(3)]
    made.edge(trunk[0], trunk[1], [[0, 9], [9, 1]])
    made.edge(trunk[1], trunk[2], [[0, 9], [9, 1]])
    branch = made.variable([0, 0])
    made.edge(trunk[1], branch, [[5, 5], [0, 5]])
    problem = made.build()
    labels = critical_labels(problem)
    assert labels[:3].tolist() == [0, 0, 0]
    assert judge(problem, labels) == 5 > solve(problem, "exact").value == 2


@pytest.mark.parametrize("seed", range(40))
def test_what_several_need_is_paid_once(seed: int) -> None:
    """The least over all labels of what kinds cost that anyone needs, against its definition."""
    rng = np.random.default_rng(seed)
    stored, kinds, readers = 3, 3, int(rng.integers(1, 5))
    cost = rng.integers(0, 9, size=(stored, kinds)).tolist()
    needed = [rng.integers(0, kinds, size=int(rng.integers(1, 4))).tolist() for _ in range(readers)]
    own = [rng.integers(0, 9, size=len(kinds_of)).tolist() for kinds_of in needed]
    keeping = rng.integers(0, 9, size=stored).tolist()
    made = Builder()
    producer = made.variable(keeping)
    consumers = [made.variable(costs) for costs in own]
    made.shared(producer, consumers, needed, cost)
    least = min(
        keeping[p]
        + sum(own[c][at] for c, at in enumerate(labels))
        + sum(cost[p][kind] for kind in {needed[c][at] for c, at in enumerate(labels)})
        for p in range(stored)
        for labels in product(*(range(len(kinds_of)) for kinds_of in needed))
    )
    assert solve(made.build(), "exact").value == least


def test_a_consumer_that_reads_twice_pays_once() -> None:
    """One op with one tensor as both of its inputs, in the same layout."""
    made = Builder()
    producer, consumer = made.variable([0]), made.variable([0, 5])
    made.shared(producer, [consumer, consumer], [[0, 1], [0, 1]], [[7, 1]])
    assert solve(made.build(), "exact").value == 6


def test_a_consumer_that_reads_twice_in_two_layouts_pays_both(seeds) -> None:
    """By every choice of labels: the kinds that anyone needs, each once, whichever input needs it."""
    for seed in seeds(60):
        rng = np.random.default_rng(seed)
        many = [int(n) for n in rng.integers(1, 4, 3)]
        readers = [1 + int(v) for v in rng.integers(0, 2, int(rng.integers(1, 5)))]
        needed = [rng.integers(0, 3, many[v]).tolist() for v in readers]
        cost = rng.integers(0, 9, (many[0], 3)).tolist()
        unary = [rng.integers(0, 9, n).tolist() for n in many]
        made = Builder()
        for costs in unary:
            made.variable(costs)
        made.shared(0, readers, needed, cost)
        least = min(
            sum(unary[v][label] for v, label in enumerate(labels))
            + sum(
                cost[labels[0]][kind] for kind in {kinds[labels[v]] for v, kinds in zip(readers, needed, strict=True)}
            )
            for labels in product(*map(range, many))
        )
        assert solve(made.build(), "exact").value == least


def test_a_process_of_its_own_says_the_same(monkeypatch) -> None:
    """A linear program has the answers of enumeration; one that does not end in time, or fails, says so."""
    problem = random_problem(26, most=8)
    here = solve(problem, "exact")
    monkeypatch.setattr(label_methods, "FEW_COMBINATIONS", 0)
    assert solve(problem, "exact").value == here.value and here.remained
    monkeypatch.setattr(subprocess_lp, "GRACE_S", -1000.0)
    monkeypatch.setattr(subprocess_lp, "START_S", -1000.0)
    late = solve(problem, "exact")
    assert late.bound <= here.value and late.limit is Limit.TIME
    monkeypatch.setattr(subprocess_lp, "GRACE_S", 30.0)
    monkeypatch.setattr(subprocess_lp.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="HiGHS failed"):
        solve(problem, "exact")


def test_work_ends_a_deterministic_run() -> None:
    """So few simplex iterations as a thousandth of a second allows prove nothing; a second's work proves the best."""
    problem = dense_problem(3)
    short = solve(problem, "exact", seconds=0.001, deterministic=True)
    assert short.status is not Status.OPTIMAL and short.bound == 0
    best = solve(problem, "exact", seconds=1.0, deterministic=True)
    assert best.status is Status.OPTIMAL and best.value == solve(problem, "exact", seconds=60.0).value


def line(seed, n):
    rng = np.random.default_rng(seed)
    made = Builder()
    for _ in range(n):
        made.variable(rng.integers(0, 50, size=3).tolist())
    for v in range(1, n):
        made.edge(v - 1, v, rng.integers(0, 50, size=(3, 3)).tolist())
    return made


def test_a_chain_is_the_dynamic_program() -> None:
    """On chains, of 2 000 variables too, elimination is the dynamic program, and nothing is left to relax."""
    for seed in range(20):
        problem = line(seed, 6).build()
        assert solve(problem, "exact").value == chain_value(problem) == least_value(problem)
    problem = line(1, 2000).build()
    long = solve(problem, "exact")
    assert long.status is Status.OPTIMAL and long.remained == 0 and long.value == chain_value(problem)


def test_trees_and_ladders_are_eliminated() -> None:
    """Degree 2 or less again and again: trees, and triangles in a row, leave nothing."""
    rng = np.random.default_rng(5)
    tree, ladder = Builder(), Builder()
    for v in range(200):
        for made in (tree, ladder):
            made.variable(rng.integers(0, 9, size=3).tolist())
        if v:
            tree.edge(int(rng.integers(0, v)), v, rng.integers(0, 9, size=(3, 3)).tolist())
        for back in (1, 2):
            if v >= back:
                ladder.edge(v - back, v, rng.integers(0, 9, size=(3, 3)).tolist())
    for made in (tree, ladder):
        net = tidy(net_of(made.build()))
        assert net is not None and len(eliminate(net[0], MOST).kept) == 0


def test_the_judge_refuses() -> None:
    """Labels out of range, forbidden alone or together, or too few."""
    made = Builder()
    a, b = made.variable([1, FORBIDDEN]), made.variable([0, 2])
    made.edge(a, b, [[3, FORBIDDEN], [0, 0]])
    problem = made.build()
    assert judge(problem, [0, 0]) == 4
    for labels, said in (([0, 2], "out of range"), ([1, 0], "is forbidden"), ([0, 1], "together"), ([0], "shape")):
        with pytest.raises(ValueError, match=said):
            judge(problem, labels)


def test_wrong_problems_are_refused() -> None:
    """Tables of another size, loops, costs below 0, sums that are no exact floats, unknown methods."""
    with pytest.raises(ValueError, match="2 x 2"):
        Labelling(first=[0, 2, 4], unary=[0] * 4, a=[0], b=[1], table=[0], begin=[0, 3], costs=[0] * 3)
    with pytest.raises(ValueError, match="with itself"):
        Labelling(first=[0, 2], unary=[0] * 2, a=[0], b=[0], table=[0], begin=[0, 4], costs=[0] * 4)
    with pytest.raises(ValueError, match="negative"):
        Labelling(first=[0, 1], unary=[-5], a=[], b=[], table=[], begin=[0], costs=[])
    with pytest.raises(ValueError, match="divide"):
        Labelling(first=[0, 1, 2], unary=[MOST, MOST], a=[], b=[], table=[], begin=[0], costs=[])
    problem = line(0, 30).build()
    with pytest.raises(ValueError, match="no method"):
        solve(problem, "magic")
    assert set(METHODS) == {"exact", "greedy", "trws"}


def test_nothing_to_label() -> None:
    """A problem without variables has a value of 0."""
    empty = Builder().build()
    assert solve(empty, "exact").value == least_value(empty) == 0


def test_starting_the_process_is_part_of_the_limit(monkeypatch) -> None:
    """Seconds count from when the process is asked for: it solves in what is left of them, and is killed soon after."""
    asked = []

    def answered(_module, given, seconds, *, solver):
        told = np.load(io.BytesIO(given))
        asked.append((seconds, subprocess_lp.LabelLimits(float(told["seconds"]), began=float(told["began"]))))

    monkeypatch.setattr(subprocess_lp, "answered", answered)
    monkeypatch.setattr(subprocess_lp, "CLOCK", lambda: 1000.0)
    net = net_of(random_problem(1))
    assert subprocess_lp.relaxed_apart(net, subprocess_lp.LabelLimits(5.0)).labels is None
    seconds, budget = asked[0]
    assert seconds == 5.0 + subprocess_lp.GRACE_S
    monkeypatch.setattr(subprocess_lp, "CLOCK", lambda: 1003.0)
    assert budget.left_s == 2.0
    monkeypatch.setattr(subprocess_lp, "CLOCK", lambda: 1010.0)
    assert budget.left_s == 0.1
    subprocess_lp.relaxed_apart(net, subprocess_lp.LabelLimits(0.1))
    assert asked[1][0] == subprocess_lp.START_S
