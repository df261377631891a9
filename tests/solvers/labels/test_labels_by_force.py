"""The parts that methods for labelling problems are made of, each against its definition by enumeration."""

from itertools import product

import numpy as np
import pytest
from labels_by_force import least_value, net_value, value_of

from solvers.labels.critical import by_paths
from solvers.labels.elimination import eliminate
from solvers.labels.factor_graph import NEVER, costs_beside, incidence, net_of, runs, tidy
from solvers.labels.label_methods import LabelResult, solve
from solvers.labels.labelling import FORBIDDEN, MOST, Builder, Labelling, judge, most, narrowed, pinned
from solvers.labels.messages import pass_messages
from solvers.result import Status


def drawn(seed: int, most_variables: int = 5) -> Labelling:
    """Up to five variables of one to three labels; every third problem forbids a fifth of all."""
    rng, made = np.random.default_rng(seed), Builder()
    many = rng.integers(1, 4, size=int(rng.integers(1, most_variables + 1)))

    def costs(*shape):
        never = rng.random(shape) < (0.2 if seed % 3 == 0 else 0.0)
        return np.where(never, FORBIDDEN, rng.integers(0, 9, size=shape)).tolist()

    for count in many:
        made.variable(costs(count))
    for a, b in product(range(len(many)), repeat=2):
        if a != b and rng.random() < 0.4:
            made.edge(a, b, costs(many[a], many[b]))
    return made.build()


def every(problem: Labelling):
    """All combinations of labels."""
    return (np.array(labels, dtype=np.int64) for labels in product(*map(range, problem.labels)))


def test_the_judge_and_the_net_say_what_the_definition_says(seeds) -> None:
    """Of all labels: the value, or a refusal; no value is above the one that none exceeds."""
    for seed in seeds(40):
        problem = drawn(seed)
        net, limit = net_of(problem), most(problem)
        for labels in every(problem):
            value = value_of(problem, labels)
            if value is None:
                assert net_value(net, labels) >= NEVER
                with pytest.raises(ValueError, match="forbidden"):
                    judge(problem, labels)
            else:
                assert net_value(net, labels) == judge(problem, labels) == value <= limit


def test_elimination_keeps_the_best_of_what_it_takes_out(seeds) -> None:
    """For all labels of what is left: the best completion costs what the rest and the constant say."""
    for seed in seeds(60):
        problem = drawn(seed)
        net = net_of(problem)
        gone = eliminate(net, MOST)
        best = dict[tuple[int, ...], int]()
        for labels in every(problem):
            key = tuple(labels[gone.kept].tolist())
            best[key] = min(best.get(key, NEVER), net_value(net, labels))
        for key, value in best.items():
            kept = np.array(key, dtype=np.int64)
            assert min(NEVER, gone.constant + net_value(gone.rest, kept)) == value
            whole = gone.complete(kept)
            assert whole[gone.kept].tolist() == list(key)
            assert value >= NEVER or net_value(net, whole) == value


def test_labels_that_are_left_out_have_no_partner(seeds) -> None:
    """What tidying drops is in no allowed labels; and None means that there are none."""
    dropped = 0
    for seed in seeds(60):
        problem = drawn(3 * seed)
        allowed = [labels for labels in every(problem) if value_of(problem, labels) is not None]
        tidied = tidy(net_of(problem))
        if tidied is None:
            assert not allowed
            continue
        net, was = tidied
        kept = set(was.tolist())
        assert all(set((problem.first[:-1] + labels).tolist()) <= kept for labels in allowed)
        assert len(net.cost) == len(kept)
        dropped += len(problem.unary) - len(kept)
    assert dropped


def test_costs_beside_neighbours(seeds) -> None:
    """Of each label of a variable: its own and those of edges to labelled neighbours."""
    for seed in seeds(40):
        problem, rng = drawn(seed), np.random.default_rng(seed)
        net = net_of(problem)
        offset, edge = incidence(net)
        labels = np.array([rng.integers(-1, n) for n in problem.labels])
        for v in range(problem.variables):
            mine = edge[offset[v] : offset[v + 1]]
            assert sorted(mine.tolist()) == [e for e in range(problem.edges) if v in (problem.a[e], problem.b[e])]
            for label, cost in enumerate(costs_beside(net, labels, v, mine)):
                wanted = int(net.cost[net.first[v] + label])
                for e in mine.tolist():
                    a, b = int(net.a[e]), int(net.b[e])
                    row, column = (label, labels[b]) if a == v else (labels[a], label)
                    if labels[a + b - v] >= 0:
                        wanted += int(net.table[net.begin[e] + row * problem.labels[b] + column])
                assert cost == min(NEVER, wanted)


def test_runs_follow_each_other() -> None:
    """Their places, and where each begins among them."""
    places, first = runs(np.array([0, 2, 2, 5]), np.array([2, 0]))
    assert places.tolist() == [2, 3, 4, 0, 1] and first.tolist() == [0, 3, 5]


def test_narrowed_problems_have_the_labels_that_are_kept(seeds) -> None:
    """The least of all combinations of kept labels; pinned ones are kept alone, and widening gives old numbers."""
    for seed in seeds(40):
        problem, rng = drawn(seed), np.random.default_rng(seed)
        keep = rng.random(len(problem.unary)) < 0.6
        keep[problem.first[:-1] + [rng.integers(n) for n in problem.labels]] = True
        values = [value_of(problem, labels) for labels in every(problem) if keep[problem.first[:-1] + labels].all()]
        smaller = narrowed(problem, keep)
        assert least_value(smaller.problem) == min((v for v in values if v is not None), default=None)
        labels = np.array([rng.integers(-1, n) for n in problem.labels])
        some = pinned(problem, labels)
        for each in every(some.problem):
            wide = some.widened(each)
            assert (wide[labels >= 0] == labels[labels >= 0]).all()
            assert value_of(some.problem, each) == value_of(problem, wide)


def test_bounds_by_messages_hold_after_every_pass(seeds) -> None:
    """Cut off after any number of passes: no bound is above the best, no labels are below it."""
    for seed in seeds(25):
        problem = drawn(seed)
        best = least_value(problem)
        for passes in (1, 2, 5):
            found = pass_messages(problem, 60.0, passes)
            assert found.passes <= passes and (best is None or found.bound <= best)
            assert found.labels is None or value_of(problem, found.labels) >= best


def test_groups_in_their_order_follow_what_came_before(seeds) -> None:
    """Group by group without paths: each is the best of its own for the labels before, so the last is by itself."""
    for seed in seeds(25):
        problem = drawn(seed)
        if problem.variables < 2 or seed % 3 == 0:
            continue
        group = np.arange(problem.variables) * 2 // problem.variables
        length = np.ones(problem.edges, dtype=np.int64)
        labels = by_paths(problem, group, length, lambda part: solve(part, "exact").labels, order=False)
        fixed = labels.copy()
        fixed[group == 1] = -1
        assert value_of(problem, labels) == least_value(pinned(problem, fixed).problem)


def test_equal_tables_are_kept_once() -> None:
    """Edges of one table share it, and such as cost nothing are left out."""
    made = Builder()
    a, b, c = (made.variable([0, 1]) for _ in range(3))
    made.edge(a, b, [[0, 1], [2, 3]])
    made.edge(b, c, [[0, 1], [2, 3]])
    made.edge(a, c, [[0, 0], [0, 0]])
    problem = made.build()
    assert (problem.variables, problem.edges, problem.tables) == (3, 2, 1)
    assert "3 variables, 6 labels, 2 edges, 1 tables" in repr(problem)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"status": Status.UNKNOWN}, "contradicts"),
        ({"labels": None}, "contradicts"),
        ({"bound": 5}, "above the value"),
        ({"bound": -1}, "negative"),
        ({"bound": 3}, "is its bound"),
    ],
)
def test_results_that_contradict_themselves_are_refused(changed, said) -> None:
    """An optimal value of 4 is its bound; labels and value belong together."""
    right = {"status": Status.OPTIMAL, "method": "exact", "labels": [0], "value": 4, "bound": 4}
    assert LabelResult(**right).gap == 0.0
    with pytest.raises(ValueError, match=said):
        LabelResult(**(right | changed))
