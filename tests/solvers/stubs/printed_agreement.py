"""The program that is modelled in PuLP, solved in a process of its own, against the one that arrays build.

`printed_agreement.py optima FIRST COUNT TASKS`: HiGHS's optimum of both on random problems of every feature.
`printed_agreement.py files FIRST COUNT TASKS`: the optimum of every formulation's files, read back by HiGHS and by
PuLP, and what PuLP's own interfaces to solvers find for its problem. Prints one JSON object. Pytest's process may hold
what HiGHS cannot be loaded beside.
"""

import json
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import highspy
import numpy as np
import pulp
from exhaustive import exhaustive
from paper_agreement import highs

from solvers import program_schedule, program_text
from solvers.checker import check
from solvers.instances.random import EVERYTHING, generate
from solvers.milp.formulations import FORMULATIONS, MakespanLimits, formulate
from solvers.structure.units import serial
from solvers.timing.rebuild import rebuild

PER_EDGE = replace(EVERYTHING, shared_payloads=False)


def cases(first, count, tasks, features=None):
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, tasks])
        size, gpus = int(rng.integers(1, tasks + 1)), int(rng.integers(1, 5))
        yield seed, generate(rng, tasks=size, gpus=gpus, features=features or (EVERYTHING, PER_EDGE)[seed % 2])


def optima(first, count, tasks):
    seen, wrong = Counter(), []
    for seed, problem in cases(first, count, tasks):
        limits = MakespanLimits(least=0, most=serial(problem))
        programs = {name: formulate(problem, name, limits) for name in ("paper", "pulp")}
        found = {name: highs(program.linear) for name, program in programs.items()}
        seen["binding" if programs["pulp"].binding else "shared"] += 1
        if found["pulp"][0] != "Optimal" or abs(found["pulp"][1] - found["paper"][1]) > 1e-4:
            wrong.append(f"seed {seed}: {found['pulp'][:2]}, by arrays {found['paper'][:2]}")
            continue
        made = rebuild(problem, programs["pulp"].schedule(found["pulp"][2]))
        wrong += [f"seed {seed}: {v.text}" for v in check(problem, made)]
        if made.makespan > found["pulp"][1] * limits.unit + 1e-3:
            wrong.append(f"seed {seed}: rebuilt to {made.makespan}, the optimum is {found['pulp'][1]}")
    return {"seen": seen, "wrong": wrong}


def read_by_highs(path):
    solver = highspy.Highs()
    solver.setOptionValue("log_to_console", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("threads", 1)
    if solver.readModel(str(path)) != highspy.HighsStatus.kOk:
        return "not read", 0.0
    solver.run()
    return solver.modelStatusToString(solver.getModelStatus()), solver.getInfo().objective_function_value


def by_pulp(problem, name):
    problem.solve(pulp.getSolver(name, msg=False))
    return pulp.LpStatus[problem.status], pulp.value(problem.objective)


def files(first, count, tasks):
    seen, wrong = Counter(), []
    for seed, problem in cases(first, count, tasks, PER_EDGE):
        best, found = exhaustive(problem).makespan, {}
        with tempfile.TemporaryDirectory() as folder:
            for formulation in FORMULATIONS:
                for form in ("lp", "mps"):
                    path = Path(folder) / f"program.{form}"
                    path.write_text(program_text(problem, formulation, form))
                    found[f"{formulation} {form}"] = read_by_highs(path)
                    if form == "mps":
                        read = pulp.LpProblem.fromMPS(str(path))[1]
                        found[f"{formulation} PuLP"] = by_pulp(read, "PULP_CBC_CMD")
                        point = {v.name: v.value() for v in read.variables()}
                        made = program_schedule(problem, point, formulation)
                        found[f"{formulation} rebuilt"] = "Optimal", made.makespan
        modelled = formulate(problem, "pulp", MakespanLimits(least=0, most=serial(problem))).modelled
        found |= {name: by_pulp(modelled, name) for name in pulp.listSolvers(onlyAvailable=True)}
        seen.update(found.keys())
        wrong += [
            f"seed {seed}, {way}: {status} {value}, the optimum is {best}"
            for way, (status, value) in found.items()
            if status != "Optimal" or abs(value - best) > 1e-4
        ]
    return {"seen": seen, "wrong": wrong}


def main():
    what, first, count, tasks = sys.argv[1], *map(int, sys.argv[2:])
    found = {"optima": optima, "files": files}[what](first, count, tasks)
    # PuLP's interfaces print what they like.
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
