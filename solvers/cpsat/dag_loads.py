"""Knots of a graph spread over equal devices so that the busiest has least to do, transfers charged to both; on CP-SAT.

Run as a program, which `solvers.pipelining.least_loads` starts: arrays come and go as npz, by standard input and
output.
"""

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solvers.arrays import Ints
from solvers.files.npz import serve_arrays


def spread(given: dict[str, Any]) -> tuple[Ints, int]:
    """Return [m] devices, the start's where none is better, and a bound. Raise RuntimeError when the model is refused.

    `loads`, `weights` [m], `one`, `two`, `ticks` [q] of edges; `devices`, of `memory` bytes each; `start` [m], whose
    busiest has `most` ticks; `least`, a known bound; `seconds` and `workers`.
    """
    cp = cp_model.CpModel()
    devices = range(int(given["devices"]))
    loads, weights, start = (given[name].tolist() for name in ("loads", "weights", "start"))
    on = [[cp.new_bool_var("") for _ in devices] for _ in loads]
    for row, device in zip(on, start, strict=True):
        cp.add_exactly_one(row)
        for d, one in enumerate(row):
            cp.add_hint(one, d == device)
    first = int(np.argmax(given["loads"]))
    cp.add(on[first][start[first]] == 1)
    most = cp.new_int_var(int(given["least"]), int(given["most"]), "most")
    cp.add_hint(most, int(given["most"]))
    edges = list(zip(*(given[name].tolist() for name in ("one", "two", "ticks")), strict=True))
    for d in devices:
        busy = [load * row[d] for load, row in zip(loads, on, strict=True)]
        for one, two, ticks in edges if len(devices) > 1 else ():
            crossed = cp.new_bool_var("")
            cp.add_bool_or(~on[one][d], on[two][d], crossed)
            cp.add_bool_or(on[one][d], ~on[two][d], crossed)
            cp.add_hint(crossed, (start[one] == d) != (start[two] == d))
            busy.append(ticks * crossed)
        cp.add(sum(busy) <= most)
        cp.add(sum(held * row[d] for held, row in zip(weights, on, strict=True)) <= int(given["memory"]))
    cp.minimize(most)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = int(given["workers"])
    solver.parameters.random_seed = 0
    solver.parameters.max_time_in_seconds = float(given["seconds"])
    status = solver.solve(cp)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {cp.validate()}")
    bound = max(int(given["least"]), int(np.ceil(solver.best_objective_bound - 1e-6)))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return given["start"], int(given["most"]) if status == cp_model.INFEASIBLE else bound
    return np.array([[solver.value(one) for one in row].index(1) for row in on]), bound


if __name__ == "__main__":
    serve_arrays(lambda given: dict(zip(("device", "bound"), spread(given), strict=True)))
