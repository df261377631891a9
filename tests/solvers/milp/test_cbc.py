"""CBC loses nothing that it found: a program in its place ends late, never, or finds nothing more."""

import math
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import exhaustive

import solvers
from solvers import Options
from solvers.base import SolverEntry
from solvers.instances.random import generate
from solvers.milp.linear import LinearBuilder
from solvers.milp.vendor import LOST, CallbackRelay, RunRequest
from solvers.milp.vendors import cbc
from solvers.milp.vendors.cbc import CbcLog

STUB = Path(__file__).parents[1] / "stubs" / "late_cbc.py"
ASK = {"seconds": 600.0, "gap": 0.0, "seed": 0, "threads": 1, "start": np.array([9.0])}


class Ear:
    """Hears points and bounds."""

    enough = False

    def __init__(self):
        self.points, self.bounds = [], []

    def incumbent(self, values):
        self.points.append(values.tolist())

    def bound(self, objective):
        self.bounds.append(objective)

    def line(self, text):
        pass


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Runs the stub in a mode in CBC's place: the outcome, who heard it, and the start of each run."""
    text = STUB.read_text()
    program = tmp_path / "cbc"
    program.write_text(text.replace("#!/usr/bin/env python3", f"#!{sys.executable}", 1))
    program.chmod(0o755)
    monkeypatch.setattr(cbc, "cbc_binary", lambda: program)
    rows = LinearBuilder()
    rows.column(0.0, 10.0, cost=1.0, integer=True)

    def run(mode, **changed):
        (tmp_path / "mode").write_text(mode)
        ear = Ear()
        outcome = cbc.run(rows.linear(), RunRequest(**(ASK | changed)), ear)
        return outcome, ear, (tmp_path / "runs").read_text().split()

    return run


def test_what_was_found_is_told_before_the_limit(stub, monkeypatch):
    """Beyond its root node or not, CBC is asked to end while its limit leaves time to answer."""
    monkeypatch.setattr(cbc, "_CLOSING", math.inf)
    monkeypatch.setattr(cbc, "_CLOSING_MOST", 1.0)
    outcome, ear, runs = stub("answers")
    assert (outcome.status, outcome.limit, outcome.values.tolist()) == ("feasible", "time", [5.0])
    assert outcome.detail == "" and runs == ["9"]
    assert 0.74 < outcome.bound <= 0.75
    assert max(ear.bounds) == pytest.approx(outcome.bound)


def test_a_long_root_node_is_cut_into_runs_until_one_finds_nothing(stub, monkeypatch):
    """9, 5, 1: each run starts from what the last one found, and the last one, which finds no more, is the last."""
    monkeypatch.setattr(cbc, "_SLICE", 0.0)
    outcome, ear, runs = stub("answers")
    assert runs == ["9", "5", "1"]
    assert ear.points == [[5.0], [1.0]]
    assert (outcome.status, outcome.values.tolist(), outcome.detail) == ("feasible", [1.0], "")


def test_without_a_start_the_first_point_is_one(stub, monkeypatch):
    """Nothing, 9, 5, 1."""
    monkeypatch.setattr(cbc, "_SLICE", 0.0)
    outcome, ear, runs = stub("answers", start=None)
    assert runs == ["None", "9", "5", "1"] and ear.points == [[9.0], [5.0], [1.0]]
    assert outcome.values.tolist() == [1.0]


def test_one_that_never_answers_is_ended_and_says_what_is_lost(stub, monkeypatch):
    """It told of a better objective, not of the point: so it is said, and the bound is kept."""
    monkeypatch.setattr(cbc, "_CLOSING", math.inf)
    monkeypatch.setattr(cbc, "_CLOSING_MOST", 1.0)
    monkeypatch.setattr(cbc, "_KEEP_S", -599.0)
    outcome, ear, _ = stub("deaf")
    assert (outcome.status, outcome.limit, outcome.detail) == ("unknown", "time", LOST)
    assert 0.49 < outcome.bound <= 0.5 and ear.points == []
    assert not outcome.left


@pytest.mark.slow
def test_one_that_never_answers_and_has_nothing_loses_nothing(stub, monkeypatch):
    """It is ended sooner, and nothing is said to be lost."""
    monkeypatch.setattr(cbc, "_INTERRUPT_S", 0.0)
    monkeypatch.setattr(cbc, "_KILL_S", 0.1)
    outcome, _, _ = stub("silent", seconds=3.0)
    assert (outcome.status, outcome.limit, outcome.detail, outcome.left) == ("unknown", "time", "", False)


def test_an_earlier_point_is_kept_where_a_later_run_has_none(stub, monkeypatch):
    """The second run crashes after it was asked to end: the point of the first is the answer."""
    monkeypatch.setattr(cbc, "_SLICE", 0.0)
    real, made = cbc._follow, []

    def crashes_second(*given):
        made.append(real(*given))
        if len(made) == 2:
            (given[1] / "solution.txt").unlink()
            return made[-1]._replace(code=-signal.SIGSEGV)
        return made[-1]

    monkeypatch.setattr(cbc, "_follow", crashes_second)
    outcome, _, runs = stub("answers")
    assert runs == ["9", "5"] and (outcome.status, outcome.values.tolist()) == ("feasible", [5.0])
    assert outcome.detail == LOST


def patience(seconds=600.0, *, by_clock=True):
    ask = RunRequest(**(ASK | {"seconds": seconds}))
    return cbc._StopPolicy(CallbackRelay(ask, Ear()), CbcLog(9.0), by_clock=by_clock)


def test_no_clock_ends_a_run_that_counts_its_effort(monkeypatch):
    """Where a run is to be repeatable, it is asked to end only after its limit."""
    monkeypatch.setattr(cbc, "_SLICE", 0.0)
    for by_clock in (True, False):
        waiting = patience(by_clock=by_clock)
        waiting.read("Cbc0012I Integer solution of 5 found by rounding after 1 iterations and 0 nodes (1 seconds)")
        assert waiting.asks() == waiting.early == by_clock
        assert not waiting.asks()  # not again at once
    late = patience(-2.0, by_clock=False)
    assert late.asks() and not late.early


def test_a_search_is_left_alone_until_it_is_time_to_answer(monkeypatch):
    """Beyond the root node CBC answers at once, so its tree is not thrown away."""
    monkeypatch.setattr(cbc, "_SLICE", 0.0)
    waiting = patience()
    waiting.read("Cbc0010I After 0 nodes, 1 on tree, 5 best solution, best possible 1 (1.00 seconds)")
    assert waiting.log.untold and not waiting.asks()


def test_cbcs_points_are_told_from_its_start():
    """A start whose real columns were optimised is written once with six digits, once with eight."""
    log = CbcLog(10000.0)
    log.read("Cbc0045I MIPStart provided solution with cost 9796.36")
    log.read(
        "Cbc0012I Integer solution of 9796.3618 found by Reduced search after 0 iterations and 0 nodes (0.1 seconds)"
    )
    assert not log.untold
    log.read("Cbc0010I After 0 nodes, 1 on tree, 1e+50 best solution, best possible 8454.7861 (0.88 seconds)")
    assert not log.untold
    log.read(
        "Cbc0012I Integer solution of 9690.9195 found by rounding after 61149 iterations and 327 nodes (12 seconds)"
    )
    assert log.untold and log.found == 9690.9195


def test_a_large_program_is_neither_preprocessed_nor_cut():
    """Where both outlast limits and look at no signal."""
    for entries, said in ((10, False), (50_001, True)):
        rows = LinearBuilder()
        x = rows.column(0.0, 1.0, cost=1.0, integer=True)
        for _ in range(entries):
            rows.row([(x, 1.0)], at_least=0.0)
        ask = RunRequest(**ASK)
        words = cbc._command(rows.linear(), ask, CallbackRelay(ask, Ear()), "p.mps")
        assert ("-cuts" in words and "-preprocess" in words) is said


@pytest.mark.skipif(cbc.version() is None, reason="no CBC for this machine")
def test_the_same_optima_where_all_programs_are_large_and_all_finds_are_fetched(monkeypatch):
    """Rows of links that wait, no cuts, and a new run from each find: 24 random problems, half with a start."""
    runs = []
    real = cbc._follow
    monkeypatch.setattr(cbc, "_follow", lambda *given: runs.append(real(*given)) or runs[-1])
    monkeypatch.setattr(cbc, "_LARGE", 0)
    monkeypatch.setattr(cbc, "_SLICE", 0.0)
    monkeypatch.setattr("solvers.milp.solver._LARGE", 0)
    monkeypatch.setattr("solvers.milp.solver._POLISHED", ())
    for seed in range(24):
        problem = generate(np.random.default_rng(seed), tasks=5)
        start = solvers.solve(problem, "list").schedule if seed % 2 else None
        found = cbc.solver().solve(problem, Options(seconds=600.0, start=start), lambda _: None)
        assert (seed, found.schedule.makespan) == (seed, exhaustive(problem).makespan)
        assert found.status == "optimal" and solvers.check(problem, found.schedule) == ()
    assert any(run.early for run in runs)


def program(tmp_path, text):
    file = tmp_path / "cbc"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("Welcome to the CBC MILP Solver \nVersion: 2.10.12 \n", "2.10.12"),
        ("CBC devel (git:146ce89) - COIN-OR Branch and Cut\n", "devel"),
        ("no banner\n", "unknown"),
    ],
)
def test_the_version_is_that_of_the_program(tmp_path, monkeypatch, says, version):
    """Of the banner that it prints, whichever package brings it."""
    (tmp_path / "banner").write_text(says)
    file = program(tmp_path, f"cat {tmp_path / 'banner'}")
    monkeypatch.setattr(cbc, "_bundled", lambda: file)
    assert cbc.version() == version
    assert {row.name: row.version for row in solvers.available()}["cbc"] == version


def test_a_program_that_was_replaced_is_asked_again(tmp_path, monkeypatch):
    """Its version is remembered for as long as its file is the same."""
    monkeypatch.setattr(cbc, "_bundled", lambda: tmp_path / "cbc")
    program(tmp_path, "echo Version: 1.0")
    os.utime(tmp_path / "cbc", (1, 1))
    assert cbc.version() == "1.0"
    program(tmp_path, "echo Version: 1.1")
    assert cbc.version() == "1.1"


def test_no_program_is_no_solver(monkeypatch):
    """Neither PuLP's nor one on the PATH: missing, with the remedy, and no crash."""
    monkeypatch.setattr(cbc, "_bundled", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert cbc.version() is None
    row = {row.name: row for row in solvers.available()}["cbc"]
    assert row.version is None and "pip install pulp" in row.why_not


def test_a_result_has_the_version_of_the_program():
    """Not of PuLP, where there is a CBC."""
    if cbc.version() is None:
        pytest.skip("no CBC for this machine")
    package = SolverEntry(module="", attribute="", isolated=False, package="pulp").version()
    assert cbc.solver().version == cbc.version() != package
