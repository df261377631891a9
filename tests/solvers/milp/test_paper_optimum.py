"""The paper's program solved by HiGHS, in its own process: against enumeration, and against optima found by hand."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from solvers.files.npz import pack_problem
from solvers.instances.plain import on_equal_gpus
from solvers.problem import FORBIDDEN, Problem

STUB = Path(__file__).resolve().parents[3] / "tests" / "solvers" / "stubs" / "paper_agreement.py"

pytestmark = pytest.mark.skipif(find_spec("highspy") is None, reason="HiGHS is not installed")


def run(*arguments):
    paths = os.pathsep.join([str(STUB.parents[3]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(STUB), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": paths})
    return json.loads(done.stdout)


def test_theorem_3_1(seeds):
    """On random problems of every feature and 1 to 4 GPUs, the optimum is the one that enumeration finds.

    It is that of a transfer per edge; where the program claims that its bound holds, also the problem's.
    """
    count = len(seeds(100))
    found = run(0, count, 5)
    assert found["wrong"] == []
    assert found["seen"]["shared"] > count / 30 and found["seen"]["binding"] > count / 2
    assert all(found["seen"][f"{n} locations"] > count / 15 for n in (2, 3, 4, 5))


def machine(duration, location, edges=(), **fields):
    """Tasks with these ticks on devices; `edges` (tail, head, ticks), a payload each unless ticks are None."""
    duration, count = np.asarray(duration), max(location) + 1
    carries = [e for e in edges if e[2] is not None]
    numbers = iter(range(len(carries)))
    given = {
        "duration": duration, "location": location, "memory": np.zeros(len(duration), dtype=int),
        "capacity": [0] * count, "src": [e[0] for e in edges], "dst": [e[1] for e in edges],
        "payload": [-1 if e[2] is None else next(numbers) for e in edges],
        "producer": [e[0] for e in carries],
        "transfer": np.array([e[2] for e in carries], dtype=int).reshape(len(carries), -1 if carries else 1),
        "path_class": np.where(np.eye(count, dtype=bool), -1, 0), "group": np.full(len(duration), -1),
        "path_links": np.arange(count * count).reshape(count, count, 1),
    }  # fmt: skip
    arrays = {name: np.asarray(value, dtype=int) for name, value in (given | fields).items()}
    return Problem(**arrays)


def two_transfers(**fields):
    """0 -> 2 and 1 -> 3, tasks of 1 tick, transfers of 4; the tails on GPU-0, the heads on GPU-1."""
    rows = [[1, FORBIDDEN], [1, FORBIDDEN], [FORBIDDEN, 1], [FORBIDDEN, 1]]
    return machine(rows, [0, 1], [(0, 2, 4), (1, 3, 4)], **fields)


def crossing(**fields):
    """0 -> 2 from GPU-0 to GPU-1 and 1 -> 3 back, tasks of 1 tick, transfers of 4."""
    rows = [[1, FORBIDDEN], [FORBIDDEN, 1], [FORBIDDEN, 1], [1, FORBIDDEN]]
    return machine(rows, [0, 1], [(0, 2, 4), (1, 3, 4)], **fields)


def ports(tails, heads):
    """0 -> 2 and 1 -> 3 between GPUs, tasks of 1 tick, transfers of 4; a link out of each GPU, and one into it."""
    rows = [[1 if gpu == place else FORBIDDEN for gpu in range(3)] for place in (*tails, *heads)]
    links = [[[a, 3 + b] for b in range(3)] for a in range(3)]
    return machine(rows, [0, 1, 2], [(0, 2, 4), (1, 3, 4)], path_links=links)


def independent(ticks, gpus, **fields):
    return machine(np.repeat(np.array(ticks)[:, None], gpus, axis=1), list(range(gpus)), **fields)


def launches():
    """Three kernel tasks of 2 ticks, each with its op of 3 in a group, on two GPUs with a lane each."""
    kernel, op = [FORBIDDEN, 2, FORBIDDEN, 2], [3, FORBIDDEN, 3, FORBIDDEN]
    edges = [(0, 1, None), (2, 3, None), (4, 5, None)]
    return machine([kernel, op] * 3, [0, 0, 1, 1], edges, group=[0, 0, 1, 1, 2, 2])


def no_time():
    """Task 0 takes 4 ticks and 1 none on one core; 2 before 1 and 3 after 1 take 2 each on another."""
    x = FORBIDDEN
    return machine([[4, x], [0, x], [x, 2], [x, 2]], [0, 0], [(2, 1, None), (1, 3, None)])


def four_gpus():
    """0 on GPU-0 feeds two tasks of 10 ticks, 3 ticks away on GPU-2 and 12 on the others; classes by pair."""
    rows = [[1, FORBIDDEN, FORBIDDEN, FORBIDDEN], [10] * 4, [10] * 4]
    classes = np.where(np.eye(4, dtype=bool), -1, 1)
    classes[0, 2] = 0
    return machine(rows, [0, 1, 2, 3], [(0, 1, [3, 12]), (0, 2, [3, 12])], path_class=classes)


def seven_ops():
    """A chain A-E of 1 tick each, F and G of 5 each, transfers of 1, two GPUs."""
    return on_equal_gpus([1] * 5 + [5, 5], [0, 1, 2, 3], [1, 2, 3, 4], gpus=2, transfer=np.ones(7, dtype=int))


NO_LINKS, ONE_LINK = np.full((2, 2, 1), -1), np.zeros((2, 2, 1), dtype=int)
OPTIMA = {
    # The paper's figure 2 in spirit (its text gives no sizes): 15 ticks of work on two GPUs take 8 or more, and the
    # longest path first takes 10: A-E, then F. 8: A B C F, and G D E, with one tick for C to cross.
    "figure 2": (seven_ops(), 8),
    # 0 ends at 1, 1 at 2; one after the other, the transfers end at 5 and 9. Without the link, at 5 and 6.
    "congestion": (two_transfers(), 10),
    "no congestion": (two_transfers(path_links=NO_LINKS), 7),
    # Two directions are two links, 1 + 4 + 1; of one link for both, the second transfer ends at 9.
    "both ways": (crossing(), 6),
    "both ways on one link": (crossing(path_links=ONE_LINK), 10),
    # One way into GPU-2: transfers end at 5 and 9. One way out of GPU-0, where 1 ends at 2: the same.
    "port in": (ports((0, 1), (2, 2)), 10),
    "port out": (ports((0, 0), (1, 2)), 10),
    "no port": (ports((0, 1), (1, 2)), 6),
    # A tensor that two tasks on GPU-1 read crosses twice in the paper, 1 + 3 + 3 + 1, and once in a problem: 6.
    "per edge": (machine([[1, FORBIDDEN], [FORBIDDEN, 1], [FORBIDDEN, 1]], [0, 1], [(0, 1, 3), (0, 2, 3)]), 8),
    # One reader stays (1 + 10), the other goes where the transfer is short: 1 + 3 + 10.
    "unlike links": (four_gpus(), 14),
    # Two tasks of 4 ticks would take 4, but only GPU-0 has memory for them: one after the other.
    "memory": (independent([4, 4], 2, memory=[6, 6], capacity=[12, 5]), 8),
    "memory of three": (independent([4, 4], 3, memory=[6, 6], capacity=[12, 5, 5]), 8),
    # Two of the three are on one GPU: its lane is done at 4, its second op starts at 5 and ends at 8.
    "kernel lanes": (launches(), 8),
    # 1 cannot lie inside 0: either 0 waits for it, 2 + 4, or it and 3 for 0, 4 + 2.
    "no time": (no_time(), 6),
    # Four tasks of 3 ticks on three cores: the fourth code of two bits is no core.
    "cores": (machine([[3, 3, 3]] * 4, [0, 0, 0]), 6),
    # 3 units of 1 tick on 2 GPUs: two of them share one.
    "sign": (independent([1, 1, 1], 2), 2),
}
INFEASIBLE = {
    "no memory": independent([4, 4], 2, memory=[6, 6], capacity=[6, 5]),
    "no memory on the host": machine([[1, FORBIDDEN], [1, FORBIDDEN]], [0, 1], memory=[6, 6], capacity=[11, 12]),
    "torn group": machine([[1, FORBIDDEN], [FORBIDDEN, 1]], [0, 1], group=[0, 0]),
}
PRINTED = {
    "two as printed": independent([1, 1], 2),
    "three as printed": independent([1, 1, 1], 2),
}


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """What HiGHS makes of each of the problems above."""
    folder = tmp_path_factory.mktemp("problems")
    problems = {name: problem for name, (problem, _) in OPTIMA.items()} | INFEASIBLE | PRINTED
    for name, problem in problems.items():
        (folder / f"{name}.problem").write_bytes(pack_problem(problem))
    return run(folder)


@pytest.mark.parametrize("name", OPTIMA)
def test_known_optima(solved, name):
    """As derived above; the rebuilt schedule is valid and as long."""
    optimum = OPTIMA[name][1]
    assert solved[name] == {"status": "Optimal", "optimum": optimum, "makespan": optimum, "wrong": []}


@pytest.mark.parametrize("name", INFEASIBLE)
def test_infeasible(solved, name):
    """No placement satisfies memory, or no location can hold a group."""
    assert solved[name]["status"] == "Infeasible"


def test_the_sign_that_is_printed(solved):
    """With + M_s delta_ij, as (10) is printed, two tasks can never share a GPU.

    Two tasks are on two GPUs; three have nowhere to be, though they take 2 ticks ("sign" above).
    """
    assert solved["two as printed"]["status"] == "Optimal"
    assert solved["three as printed"]["status"] == "Infeasible"
