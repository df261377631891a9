"""Layers of a chain spread over devices, equal or not, so that the busiest device or link has least to do, on CP-SAT.

Run as a program, which `solvers.pipelining.any_allocation` starts: arrays come and go as npz, by standard input and
output.
"""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from solvers.arrays import Ints, ints
from solvers.files.npz import serve_arrays

UNANSWERED = -1
"""The device of every layer where no allocation was found."""


class ChainLoadResult(NamedTuple):
    """CP-SAT's answer."""

    device: Ints
    """[L] device of each layer; UNANSWERED where none was found."""
    bound: int
    """No allocation has less to do at most; by CP-SAT's word."""
    infeasible: bool
    """True if weights have no room."""


def spread(given: dict[str, Any]) -> ChainLoadResult:
    """Return the best allocation found for arrays by name. Raise RuntimeError when CP-SAT refuses the model.

    `loads` [P, L] on each device, of `memory` [P] bytes; `weights` [L]; `transfers` [K, L - 1] on each kind of `link`,
    [P, P]; `kind` [P], one number for devices that are alike; `start` [L], an allocation or all UNANSWERED; `least` and
    `most` ticks, known bounds of the optimum; `seconds`.
    """
    loads, weights, memory, kind = (given[name].tolist() for name in ("loads", "weights", "memory", "kind"))
    devices = range(len(loads))
    cp = cp_model.CpModel()
    on = [[cp.new_bool_var(f"on {layer} {d}") for d in devices] for layer in range(len(weights))]
    most = cp.new_int_var(int(given["least"]), int(given["most"]), "most")
    for row in on:
        cp.add_exactly_one(row)
    for d in devices:
        cp.add(sum(ticks * row[d] for ticks, row in zip(loads[d], on, strict=True)) <= most)
        cp.add(sum(held * row[d] for held, row in zip(weights, on, strict=True)) <= memory[d])
    for d in (d for d in devices if kind[d] in kind[:d]):  # of a kind each is first used after the one before it
        ahead = max(e for e in devices[:d] if kind[e] == kind[d])
        for layer, row in enumerate(on):
            cp.add(row[d] <= sum(before[ahead] for before in on[:layer]))
    sent = np.flatnonzero(given["transfers"].any(axis=0)).tolist()
    for pair in combinations(devices, 2) if sent else ():
        transfers = given["transfers"][given["link"][pair]].tolist()
        crossed = {layer: cp.new_bool_var(f"crossed {layer} {pair}") for layer in sent}
        for layer, cut in crossed.items():
            for d, e in (pair, pair[::-1]):
                cp.add_bool_or(~on[layer][d], ~on[layer + 1][e], cut)
        cp.add(sum(transfers[layer] * cut for layer, cut in crossed.items()) <= most)
    cp.minimize(most)
    for row, start in zip(on, given["start"].tolist(), strict=True):
        for d, literal in enumerate(row):
            if start != UNANSWERED:
                cp.add_hint(literal, d == start)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_time_in_seconds = float(given["seconds"])
    status = solver.solve(cp)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {cp.validate()}")
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        none = np.full(len(on), UNANSWERED)
        return ChainLoadResult(none, int(given["least"]), infeasible=status == cp_model.INFEASIBLE)
    device = [[solver.value(literal) for literal in row].index(1) for row in on]
    return ChainLoadResult(ints(device), int(np.ceil(solver.best_objective_bound - 1e-6)), infeasible=False)


if __name__ == "__main__":
    serve_arrays(lambda given: spread(given)._asdict())
