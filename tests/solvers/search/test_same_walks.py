"""Walks are what they were: each kind of move alone, all together, and a walk with its pauses, from fixed seeds.

The draws of a walk are its own, so an edit of a move, of the simulation or of what is accepted shows as another
decision. Renew a digest where a change of the search is meant: a failed assertion names the new one.
"""

import hashlib

import numpy as np
import pytest

from solvers.arrays import rank_of
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.random import Features, generate
from solvers.result import Options
from solvers.search.annealing import PointValue, Temperature, Walk
from solvers.search.walk_state import BEST, COST, KINDS, OVER, TAKEN, Cooling, anneal, lane_for
from solvers.search.workspace import Workspace

LIMITED, UNLIMITED = Features(), Features(memory=False)
LONG = 1e9
"""Seconds that no clock ends."""
MOVES = {
    "0 limited": "a0c18b65",
    "1 limited": "95d687bc",
    "2 limited": "e1c240e3",
    "3 limited": "4cdb4416",
    "4 limited": "cffc0b84",
    "5 limited": "4a578b38",
    "all limited": "a8cfb0fd",
    "0 unlimited": "e6e38919",
    "1 unlimited": "ee2c4bb9",
    "2 unlimited": "0f1e6e13",
    "3 unlimited": "a45c5a53",
    "4 unlimited": "2c308a6d",
    "5 unlimited": "63f5db64",
    "all unlimited": "d0e65d58",
}
WALKS = {"fits": "86b882c4", "over": "ec53ca0c"}


def starts(count, features):
    """Random problems of 30 to 60 tasks on 2 to 4 devices that have a list schedule, each with a workspace."""
    for seed in range(count):
        rng = np.random.default_rng([31, seed])
        p = generate(rng, tasks=int(rng.integers(30, 60)), gpus=int(rng.integers(2, 5)), features=features)
        schedule = ListScheduler().solve(p, Options(seconds=LONG), lambda _: None).schedule
        if schedule is not None:
            workspace = Workspace.of(p, [np.arange(p.tasks) // 4, np.arange(p.tasks) // 10])
            if len(workspace.network.choice):
                yield seed, workspace, workspace.solution_of(schedule)


def digest(parts):
    """Eight hexadecimal digits of a sequence of integers and of arrays of integers."""
    text = hashlib.sha256()
    for part in parts:
        text.update(np.asarray(part, dtype=np.int64).tobytes())
    return text.hexdigest()[:8]


@pytest.mark.parametrize("features", ["limited", "unlimited"])
@pytest.mark.parametrize("kind", [*range(KINDS), "all"])
def test_moves(kind, features):
    """300 changes of one kind, or of all, at a temperature that cools, with and without memory limits."""
    share = np.full(KINDS, 1 / KINDS) if kind == "all" else np.eye(KINDS)[kind]
    parts = []
    for seed, workspace, start in starts(5, LIMITED if features == "limited" else UNLIMITED):
        lane = lane_for(workspace.network, start.at, start.order, workspace.capacity, seed)
        levels = np.cumsum(np.full(len(workspace.clusters.sizes), 1 / len(workspace.clusters.sizes)))
        anneal(workspace.network, workspace.clusters, lane, Cooling(300, 20.0, 1.0, np.cumsum(share), levels))
        parts += [lane.choice.at, lane.choice.order, lane.best_at, lane.best_order]
        parts += [lane.tally[[BEST, COST, OVER, TAKEN]]]
    assert len(parts) >= 15
    assert digest(parts) == MOVES[f"{kind} {features}"]


@pytest.mark.parametrize("over", ["fits", "over"])
def test_a_walk_with_its_pauses(over):
    """40 stretches, two with other orders; also where the evaluation finds half of the placements too large."""
    parts = []
    for seed, workspace, start in starts(4, LIMITED):

        def evaluate(one, workspace=workspace):
            excess = np.zeros(workspace.problem.locations, dtype=np.int64)
            if over == "over" and one.makespan % 2:
                excess[one.makespan % len(excess)] = 1
            return PointValue(
                makespan=one.makespan, device=workspace.devices(one.at), rank=rank_of(one.order), over=excess
            )

        walk = Walk(workspace, start, Temperature(0.05, 0.001), evaluate, seed)
        better = [walk.stretch(k / 40) for k in range(40)]
        kept = walk.kept
        parts += [np.array(better), walk.best.at, walk.best.order, [walk.best.makespan]]
        parts += [] if kept is None else [[kept.makespan], kept.device, kept.rank]
    assert digest(parts) == WALKS[over]
