"""The paper's program: its rows as printed, its points, and what depends on no solver."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from solvers.checker import check
from solvers.instances.plain import chain, fork, on_equal_gpus
from solvers.instances.plain import per_edge as each_edge
from solvers.milp.formulations import HORIZON, MakespanLimits, formulate
from solvers.milp.paper.program import PaperStyle, build, styled
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule
from solvers.structure.units import serial
from solvers.timing.rebuild import rebuild


def limits(problem, schedule=None):
    return MakespanLimits(least=0, most=schedule.makespan if schedule else serial(problem))


def test_every_row_is_the_papers():
    """Two edges on two GPUs: the whole program is what section 3.2.2 prints, (10) with its sign put right.

    Rows are compared as functions, at random points. Tasks 0 -> 1 and 2 -> 3 take 2, 3, 4 and 5 ticks, transfers
    4 and 5 on these edges 6 and 7; M, M_s, M_l are 27, 270 and 2700. Precedence leaves all pairs open but (0, 1)
    and (2, 3).
    """
    problem = on_equal_gpus([2, 3, 4, 5], [0, 2], [1, 3], gpus=2, transfer=np.array([6, 0, 7, 0]))
    program = styled(problem, limits(problem), PaperStyle(big=(1, 10, 100)))
    m, linear = program.model, program.linear
    big, big_s, big_l = 27, 270, 2700
    rng = np.random.default_rng(0)
    for _ in range(3):
        v = rng.normal(size=linear.columns)
        c_max, start, finish, x, z = v[0], m.start.at(v), m.finish.at(v), v[m.codes.bit[:, 0]], m.crossing.at(v)
        delta = {(i, j): v[k] for i, j, k in zip(*(a.tolist() for a in program.pairs), strict=True)}
        assert set(delta) == {(0, 2), (0, 3), (1, 2), (1, 3), (4, 5)}
        at_least = [start[j] - finish[i] for i, j in ((0, 4), (4, 1), (2, 5), (5, 3))]  # (1)
        at_least += [c_max - finish[i] for i in range(6)]  # (3)
        for k, i, j in ((0, 0, 1), (1, 2, 3)):  # (5)
            at_least += [x[i] + x[j] - z[k], z[k] - x[i] + x[j], z[k] - x[j] + x[i], 2 - x[i] - x[j] - z[k]]
        for i, j in ((0, 2), (0, 3), (1, 2), (1, 3)):  # (10)
            at_least += [
                start[i] - (finish[j] - big_s * delta[i, j] - big_l * (2 - x[i] - x[j])),
                start[j] - (finish[i] - big_s * (1 - delta[i, j]) - big_l * (2 - x[i] - x[j])),
                start[i] - (finish[j] - big_s * delta[i, j] - big_l * (x[i] + x[j])),
                start[j] - (finish[i] - big_s * (1 - delta[i, j]) - big_l * (x[i] + x[j])),
            ]
        for one_way in (x[0] + x[2] - x[1] - x[3] - 2, x[1] + x[3] - x[0] - x[2] - 2):  # (7)
            at_least += [
                start[4] - (finish[5] - big * delta[4, 5] + big_s * one_way),
                start[5] - (finish[4] - big * (1 - delta[4, 5]) + big_s * one_way),
            ]
        equal = [start[i] + p - finish[i] for i, p in enumerate((2, 3, 4, 5))]  # (2)
        equal += [start[4] + z[0] * 6 - finish[4], start[5] + z[1] * 7 - finish[5]]  # (6)
        slack, is_equal = linear.activity(v) - linear.row_lower, linear.row_upper == linear.row_lower
        assert np.allclose(sorted(slack[~is_equal]), sorted(at_least))
        assert np.allclose(sorted(np.abs(slack[is_equal])), sorted(np.abs(equal)))
    whole = [*m.codes.bit[:, 0], *m.crossing.column[:, 0], *program.pairs[2]]  # (9)
    assert sorted(whole) == np.flatnonzero(linear.integer).tolist()
    assert (linear.lower[whole] == 0).all() and (linear.upper[whole] == 1).all()


def test_only_open_pairs_have_an_order():
    """Precedence orders every pair of a chain; of a fork, hand count leaves 3 pairs of tasks and 12 of transfers.

    The fork's 3 middle tasks are open to one another. Their 3 transfers in are, their 3 transfers out are, and one
    in is open to the 2 out of other tasks: 3 + 3 + 6.
    """
    paths = {"chain": each_edge(chain(5)), "fork": each_edge(fork(5))}
    count = {n: len(styled(p, limits(p), PaperStyle()).pairs[0]) for n, p in paths.items()}
    every = {n: len(styled(p, limits(p), PaperStyle(every_pair=True)).pairs[0]) for n, p in paths.items()}
    assert count == {"chain": 0, "fork": 3 + 12}
    # 5 tasks and 4 or 6 transfers, each with each.
    assert every == {"chain": 10 + 6, "fork": 10 + 15}


def test_what_is_always_together_adds_nothing():
    """Colocated tasks have no transfer between them; links that are always held together count once."""
    problem = each_edge(fork(5))
    assert (
        len(
            styled(
                replace(problem, group=[3] * 5), MakespanLimits(least=0, most=9), PaperStyle()
            ).model.transfers.payload
        )
        == 0
    )
    own, bus = problem.path_links, np.full_like(problem.path_links, 2)
    rows = [build(replace(problem, path_links=links), limits(problem)).linear.rows for links in (
        own, np.concatenate([own, own + 3], axis=2), bus, np.concatenate([own, bus], axis=2),
    )]  # fmt: skip
    assert rows[0] == rows[1] > rows[2] == rows[3]


def test_one_core_takes_the_small_constant():
    """Two tasks that can be on one device alone have the rows (4), with M; on two GPUs, (10), with M_s and M_l."""
    for allowed, location, constants in (([[1]] * 2, [0], {2}), ([[1, 1]] * 2, [0, 1], {20, 200})):
        linear = styled(
            machine(allowed, location), MakespanLimits(least=0, most=2), PaperStyle(big=(1, 10, 100))
        ).linear
        assert {abs(c) for c in linear.coefficient} - {1} == constants


def near(rng, values):
    return values + rng.uniform(-1e-6, 1e-6, len(values))


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(3))
def test_valid_schedules_are_feasible_points(cases, turn):
    """Any schedule, at the tightest horizon, is a point that misses no row, and comes back as good up to tolerances.

    Where payloads are shared, the point may take longer than the schedule, and what comes back no longer than it.
    """
    rng, seen = np.random.default_rng(turn), {True: 0, False: 0}
    style = (PaperStyle(), PaperStyle(every_pair=True), PaperStyle(big=(1, 1e2, 1e4)))[turn]
    for problem, schedule in cases[turn::3]:
        program = styled(problem, limits(problem, schedule), style)
        values = program.values(schedule)
        assert program.linear.violation(values) <= 1e-9
        makespan = round(values[0] * limits(problem, schedule).unit)
        assert makespan == schedule.makespan or not program.binding
        rough = program.schedule(near(rng, values))
        assert (rough.device == schedule.device).all()
        again = rebuild(problem, rough)
        assert not check(problem, again) and again.makespan <= makespan
        seen[program.binding] += 1
    assert min(seen.values()) > 20


def test_points_of_long_schedules_are_in_units(cases):
    """Ticks beyond what a vendor's tolerances bear are scaled; the point stays feasible, its schedule the same."""
    for problem, schedule in cases[:40]:
        factor = 987_654_321
        times = {n: getattr(schedule, n) * factor for n in ("start", "finish", "sent_start", "sent_finish")}
        late = replace(schedule, **times)
        duration = np.where(problem.allowed, problem.duration * factor, FORBIDDEN)
        long = replace(problem, duration=duration, transfer=problem.transfer * factor)
        program = build(long, limits(long, late))
        if late.makespan and program.binding:
            assert program.linear.upper[0] == pytest.approx(HORIZON)
            assert np.abs(program.linear.coefficient).max() <= 2 * HORIZON + 1e-6
        assert program.linear.violation(program.values(late)) <= 1e-9
        assert (
            rebuild(long, program.schedule(program.values(late))).finish <= late.finish
        ).all() or not program.binding


def machine(allowed, location, edges=(), **fields):
    """Tasks of one tick where `allowed`, edges without payload, a link for each ordered pair of locations."""
    allowed, count = np.asarray(allowed), max(location) + 1
    n, (src, dst) = len(allowed), np.array(edges, dtype=np.int64).reshape(-1, 2).T
    given = {
        "duration": np.where(allowed, 1, FORBIDDEN), "location": location, "memory": np.zeros(n, dtype=int),
        "capacity": [10] * count, "src": src, "dst": dst, "payload": np.full(len(src), -1),
        "producer": np.zeros(0, dtype=int), "transfer": np.zeros((0, 1), dtype=int),
        "path_class": np.where(np.eye(count, dtype=bool), -1, 0), "group": np.full(n, -1),
        "path_links": np.arange(count * count).reshape(count, count, 1),
    }  # fmt: skip
    return Problem(**given | fields)


def at(problem, device):
    """Tasks on these devices, one after the other."""
    none, start = np.zeros(0, dtype=int), np.arange(len(device))
    sent = {"sent_payload": none, "sent_to": none, "sent_start": none, "sent_finish": none}
    return Schedule(device=device, start=start, finish=start + problem.duration[start, device], **sent)


def test_codes_use_the_fewest_binaries():
    """A host and two GPUs: a GPU task has one binary, a host task none, one that runs anywhere two."""
    #                  host GPU GPU    12 host tasks, so that the host is the most frequent location
    rows = [[1, 0, 0]] * 12 + [[0, 1, 1], [1, 1, 1]]
    program = build(machine(rows, [0, 1, 2]), MakespanLimits(least=0, most=20))
    assert (program.model.codes.bit >= 0).sum(axis=1).tolist() == [0] * 12 + [1, 2]
    # Five GPUs: three bits, whatever else there is.
    program = build(machine(np.ones((2, 5)), [0, 1, 2, 3, 4]), MakespanLimits(least=0, most=20))
    assert (program.model.codes.bit >= 0).sum(axis=1).tolist() == [3, 3]
    # Three cores: two bits for the core, none for the location. Colocated tasks share their location's bit.
    program = build(machine(np.ones((2, 4)), [0, 0, 0, 1], group=[7, 7]), MakespanLimits(least=0, most=20))
    assert (program.model.codes.core >= 0).sum(axis=1).tolist() == [2, 2]
    assert program.model.codes.bit.shape == (1, 1)


def test_codes_spell_every_placement_and_no_other():
    """Of all values of the location's and the core's bits, those that miss no row are the allowed devices."""
    rows = [[1, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 1]]
    for row in rows:
        problem = machine([row], [0, 0, 0, 1, 2, 3])
        program = build(problem, MakespanLimits(least=0, most=1))
        codes, found = program.model.codes, []
        bits = [*codes.bit[codes.bit >= 0], *codes.core[codes.core >= 0]]
        for spelt in itertools.product((0.0, 1.0), repeat=len(bits)):
            values = program.values(at(problem, [row.index(1)]))
            values[bits] = spelt
            if program.linear.violation(values) < 1e-9:
                found.append(int(program.schedule(values).device[0]))
            else:
                assert program.linear.violation(values) >= 1
        assert sorted(found) == np.flatnonzero(row).tolist()


def test_memory_is_exact():
    """Of all placements, (8) admits those that `check` does, to a byte in 32 GiB, for codes of one bit and of two."""
    sizes = [2**34 + 1, 2**34 - 1, 2**34, 2**33, 7]
    for gpus in (2, 3):
        # The first two fill GPU-0, the others GPU-1, to the byte.
        capacity = [2**35, 2**34 + 2**33 + 7, 2**33][:gpus]
        problem = machine(np.ones((5, gpus)), list(range(gpus)), memory=sizes, capacity=capacity)
        program, valid = build(problem, MakespanLimits(least=0, most=5)), 0
        for device in itertools.product(range(gpus), repeat=5):
            schedule = at(problem, np.array(device))
            fits = not check(problem, schedule)
            violation = program.linear.violation(program.values(schedule))
            assert violation == 0 if fits else violation > 1e-5
            valid += fits
        assert valid == 1 if gpus == 2 else 1 < valid < gpus**5


def shared(locations_of_readers, ticks=3):
    """A task at GPU-0 whose one payload two tasks read, each confined to some GPUs; one tick each."""
    allowed = np.zeros((3, 3), dtype=int)
    allowed[0, 0] = 1
    for task, places in enumerate(locations_of_readers, start=1):
        allowed[task, places] = 1
    fields = {"payload": [0, 0], "producer": [0], "transfer": [[ticks]]}
    return machine(allowed, [0, 1, 2], edges=[(0, 1), (0, 2)], **fields)


def test_a_bound_is_claimed_where_no_transfer_repeats():
    """It is the problem's unless two readers of a payload may sit together, away from its producer."""
    assert not build(shared([[1], [1]]), MakespanLimits(least=0, most=20)).binding
    assert not build(shared([[0, 1], [1, 2]]), MakespanLimits(least=0, most=20)).binding
    # Apart, or beside the producer.
    assert build(shared([[1], [2]]), MakespanLimits(least=0, most=20)).binding
    assert build(shared([[0, 1], [0, 2]]), MakespanLimits(least=0, most=20)).binding
    assert build(each_edge(shared([[1], [1]])), MakespanLimits(least=0, most=20)).binding
    # An edge that is given twice is one.
    twice = shared([[1], [1]])
    assert build(replace(twice, dst=[1, 1]), MakespanLimits(least=0, most=20)).binding


def test_a_shared_transfer_becomes_several():
    """0-1 sends 3 ticks to GPU-1, once: 1 + 3 + 1 + 1 = 6. Twice: the second arrives at 7, its reader ends at 8.

    So a point for the 6 ticks takes 8, within the program's horizon though not within `most`; and comes back as 6.
    """
    problem = shared([[1], [1]])
    six = Schedule(
        device=[0, 1, 1], start=[0, 4, 5], finish=[1, 5, 6], sent_payload=[0], sent_to=[1], sent_start=[1],
        sent_finish=[4],
    )  # fmt: skip
    assert not check(problem, six)
    program = build(problem, limits(problem, six))
    values = program.values(six)
    assert program.linear.violation(values) <= 1e-9 and values[0] == 8
    assert rebuild(problem, program.schedule(values)).makespan == 6


def test_it_is_a_formulation():
    """`paper` is found by name."""
    problem = fork(4)
    assert formulate(problem, "paper", limits(problem)).linear.columns == build(problem, limits(problem)).linear.columns
