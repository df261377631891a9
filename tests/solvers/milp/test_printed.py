"""The paper's program modelled in PuLP: its rows are those that arrays build, and its optima, files and names."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers import program_schedule, program_text, solve
from solvers.checker import check
from solvers.instances.plain import fork, on_equal_gpus
from solvers.instances.plain import per_edge as each_edge
from solvers.instances.random import generate
from solvers.milp import printed_form as printed
from solvers.milp.formulations import FORMULATIONS, MakespanLimits, formulate
from solvers.structure.units import balanced, serial

STUB = Path(__file__).resolve().parents[3] / "tests" / "solvers" / "stubs" / "printed_agreement.py"


def limits(problem):
    return MakespanLimits(least=0, most=serial(problem))


def renamed(paper, modelled):
    """Columns of `modelled` for those of `paper`: by name, and what (8) and (7) add for themselves in its order."""
    names, column = modelled.names, {name: c for c, name in enumerate(modelled.names)}
    assert len(column) == len(names) == len(paper.names)
    new = iter([n for letter in ("y_", "h_") for n in names if n.startswith(letter)])
    return np.array([column[name if name in column else next(new)] for name in paper.names])


def canonical(linear, column):
    """Its rows as tuples, each scaled so that its first coefficient is 1, in an order of their own."""
    rows = []
    for r in range(linear.rows):
        mine = slice(linear.offset[r], linear.offset[r + 1])
        at, factor = column[linear.column[mine]], linear.coefficient[mine]
        at, factor = at[np.argsort(at)], factor[np.argsort(at)]
        # A balance that nothing can keep has no column in its row, which may be written either way round.
        scale = factor[0] if len(factor) else (1.0 if np.isfinite(linear.row_lower[r]) else -1.0)
        bounds = sorted(float(b / scale) for b in (linear.row_lower[r], linear.row_upper[r]))
        numbers = [float(a / scale) for a in factor] + bounds
        rows.append((tuple(at.tolist()), tuple(float(f"{n:.9g}") + 0.0 for n in numbers)))
    return sorted(rows)


@given(st.integers(0, 2**32), st.integers(1, 14), st.integers(1, 5), st.sampled_from([None, None, 0.0, 0.3]))
def test_row_by_row_it_is_the_program_of_arrays(seed, tasks, gpus, balance):
    """The same columns with the same bounds and kinds, and the same rows but for order and scale, on every feature.

    With the balance of (8) as without.
    """
    problem = generate(np.random.default_rng(seed), tasks=tasks, gpus=gpus)
    problem = problem if balance is None else balanced(problem, balance)
    paper, modelled = (formulate(problem, name, limits(problem)) for name in ("paper", "pulp"))
    column = renamed(paper, modelled)
    for field in ("cost", "lower", "upper", "integer"):
        assert (getattr(paper.linear, field) == getattr(modelled.linear, field)[column]).all()
    same = np.arange(modelled.linear.columns)
    assert canonical(paper.linear, column) == canonical(modelled.linear, same)
    assert (paper.binding, paper.unsaid) == (modelled.binding, modelled.unsaid)


def test_the_comparison_sees_a_row_that_differs(monkeypatch):
    """With (10) as it is printed, + M_s delta_ij, or without (7), the rows are others."""
    problem = each_edge(fork(5))
    paper = formulate(problem, "paper", limits(problem))

    def rows():
        modelled = formulate(problem, "pulp", limits(problem))
        return canonical(modelled.linear, np.arange(modelled.linear.columns)), renamed(paper, modelled)

    right, column = rows()
    assert canonical(paper.linear, column) == right
    for number in printed.NUMBERED:
        fewer = {n: family for n, family in printed.NUMBERED.items() if n != number}
        with monkeypatch.context() as patch:
            patch.setattr(printed, "NUMBERED", fewer)
            # A fork on two GPUs has no single core, no memory that binds and no code that means nothing.
            assert (rows()[0] == right) == (number in (4, 8, 9))


def test_valid_schedules_are_feasible_points(cases):
    """As for arrays: the point misses no row."""
    for problem, schedule in cases[::7]:
        program = formulate(problem, "pulp", MakespanLimits(least=0, most=schedule.makespan))
        values = program.values(schedule)
        assert program.linear.violation(values) <= 1e-9
        assert (program.schedule(values).device == schedule.device).all()


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_names_are_distinct_and_plain(cases, formulation):
    """One a column, of letters, digits and underscores, short enough for every reader."""
    for problem, _ in cases[::23]:
        program = formulate(problem, formulation, limits(problem))
        names = program.names
        assert len(names) == program.linear.columns == len(set(names))
        assert all(n.replace("_", "a").isalnum() and n[0] not in "eE0123456789" and len(n) < 100 for n in names)


def test_names_say_what_they_stand_for():
    """Two tasks and their transfer on two GPUs, and a third task beside them."""
    problem = on_equal_gpus([2, 3, 4], [0], [1], gpus=2, transfer=np.array([6, 0, 0]))
    names = formulate(problem, "pulp", limits(problem)).names
    times = [f"{letter}_{of}" for letter in "SC" for of in ("op0", "op1", "op2", "data0_op0_op1")]
    bits, orders = [f"x_op{i}_bit0" for i in range(3)], ["op0_before_op2", "op1_before_op2"]
    assert sorted(names) == sorted(["C_max", *times, "z_data0_op0_op1", *bits, *orders])


def test_the_text_is_the_program():
    """Of one task on one GPU, every line; and the first lines say the unit."""
    text = program_text(on_equal_gpus([3], [], [], gpus=1, transfer=np.zeros(1, dtype=int)), "pulp")
    assert text.splitlines() == [
        "\\ tasks: 1; devices: 1; formulation: pulp; C_max is the makespan",
        "\\ times are ticks; schedules of more than 3 ticks are left out",
        "Minimize", " cost: + C_max", "Subject To", " r0: + S_op0 - C_op0 = -3.0", " r1: + C_op0 - C_max <= 0.0",
        "Bounds", " C_max = 3.0", " 0.0 <= S_op0 <= 3.0", " 0.0 <= C_op0 <= 3.0", "End",
    ]  # fmt: skip
    long = on_equal_gpus([3_000_000], [], [], gpus=1, transfer=np.zeros(1, dtype=int))
    assert "a unit of time is 300.0 ticks" in program_text(long, "paper", "mps").splitlines()[1]


def test_lines_are_short_enough_for_every_reader():
    """The strictest takes 255 characters."""
    text = program_text(each_edge(fork(40)), "tight")
    assert 100 < max(map(len, text.splitlines())) <= 255


def test_what_cannot_be_said_is_named():
    """A payload that is sent once and read twice; no tasks; what is not there."""
    with pytest.raises(ValueError, match=r"sends payload 0 to each of the tasks 1, 2, 3, 4, 5, \.\.\. by itself"):
        program_text(fork(9), "paper")
    assert program_text(fork(9), "tight") and program_text(each_edge(fork(9)), "pulp")
    with pytest.raises(ValueError, match="a problem of no tasks"):
        program_text(generate(np.random.default_rng(0), tasks=0))
    for arguments, known in (("papers",), "tight, paper, pulp"), (("pulp", "sav"), "lp, mps"):
        with pytest.raises(ValueError, match=f"choose one of {known}"):
            program_text(fork(4), *arguments)


def test_values_become_a_schedule_or_are_refused(cases):
    """Those of a valid schedule are read back as good; of another program, or no feasible point, they are not."""
    problem = each_edge(fork(5))
    schedule = solve(problem, "list").schedule
    for formulation in FORMULATIONS:
        program = formulate(problem, formulation, MakespanLimits(least=0, most=schedule.makespan))
        values = dict(zip(program.names, program.values(schedule).tolist(), strict=True))
        made = program_schedule(problem, values, formulation)
        assert not check(problem, made) and made.makespan <= schedule.makespan
        with pytest.raises(ValueError, match="miss a row, a bound or a whole number by"):
            program_schedule(problem, values | {"S_op0": 1.0 + schedule.makespan}, formulation)
        with pytest.raises(ValueError, match="miss a row"):
            program_schedule(problem, values | {"S_op0": float("nan")}, formulation)
        with pytest.raises(ValueError, match="'mine' is in one alone"):
            program_schedule(problem, values | {"mine": 0.0}, formulation)
        del values["S_op0"]
        with pytest.raises(ValueError, match="another program than"):
            program_schedule(problem, values, formulation)


def test_more_pairs_than_the_program_orders_are_named(monkeypatch):
    """`tight` leaves out pairs beyond a number, so that its optimum may be too small: no file for others then."""
    monkeypatch.setattr("solvers.milp.tight.program.MOST", 2)
    monkeypatch.setattr("solvers.milp.tight.program.MOST", 2)
    with pytest.raises(ValueError, match="orders 2 pairs"):
        program_text(fork(9), "tight")


def test_no_location_for_a_group_is_no_program():
    """A group whose members can be together nowhere: `tight` finds it; the others' program is infeasible."""
    problem = on_equal_gpus([1, 1], [], [], gpus=2, transfer=np.zeros(2, dtype=int))
    apart = replace(problem, duration=[[1, -1], [-1, 1]], group=[0, 0])
    with pytest.raises(ValueError, match="no schedule"):
        program_text(apart, "tight")
    assert "C_max >= " in program_text(apart, "pulp")


def run(*arguments):
    paths = os.pathsep.join([str(STUB.parents[3]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(STUB), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": paths})
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(find_spec("highspy") is None, reason="HiGHS is not installed")
def test_the_optima_are_those_of_arrays(seeds):
    """HiGHS on both programs of random problems of up to 5 tasks and 4 GPUs; what is rebuilt is valid and as long."""
    count = len(seeds(60))
    found = run("optima", 0, count, 5)
    assert found["wrong"] == []
    assert found["seen"]["binding"] > count / 2 and found["seen"]["shared"] > count / 30


@pytest.mark.slow
@pytest.mark.skipif(find_spec("highspy") is None, reason="HiGHS is not installed")
def test_files_read_back_to_the_optimum(seeds):
    """LP by HiGHS, MPS by HiGHS and PuLP, of every formulation, and PuLP's problem by every solver that PuLP finds."""
    count = len(seeds(8))
    found = run("files", 0, count, 5)
    assert found["wrong"] == []
    assert {f"{f} {way}" for f in FORMULATIONS for way in ("lp", "mps", "PuLP", "rebuilt")} | {"PULP_CBC_CMD"} <= set(
        found["seen"]
    )
    assert set(found["seen"].values()) == {count}
