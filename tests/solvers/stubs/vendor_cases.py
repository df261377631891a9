"""One vendor of MILP solvers on programs with known answers, in a process of its own: `vendor_cases.py NAME`.

Prints one JSON object: what each case found. Vendors crash beside one another and beside TensorFlow.
"""

import importlib
import json
import math
import sys
import time

import numpy as np
from programs import contended, infeasible, job_shop, random_program, real_only, unbounded

from solvers.base import UnavailableError
from solvers.milp import vendor as relay
from solvers.milp.formulations import MakespanLimits
from solvers.milp.tight.program import build
from solvers.milp.vendor import RunRequest

ASK = {"gap": 0.0, "seed": 2**40, "threads": 1, "start": None}


class Ear:
    """Hears a run, and has enough once told of so many points and bounds."""

    def __init__(self, news=math.inf):
        self.points, self.bounds, self.lines, self.news = [], [], [], news

    @property
    def enough(self):
        return len(self.points) + len(self.bounds) >= self.news

    def incumbent(self, values):
        self.points.append(values)

    def bound(self, objective):
        self.bounds.append(objective)

    def line(self, text):
        self.lines.append(text)


class Deaf(Ear):
    """Raises at the first line."""

    def line(self, _text):
        raise BrokenPipeError("nobody listens")


def told(run, linear, ear=None, seconds=600.0, **changed):
    """What a run found, in plain numbers."""
    ear = ear or Ear()
    began = time.monotonic()
    outcome = run(linear, RunRequest(seconds=seconds, **(ASK | changed)), ear)
    seconds = time.monotonic() - began
    points = [*ear.points, *([] if outcome.values is None else [outcome.values])]
    return {
        "status": outcome.status,
        "limit": outcome.limit,
        "detail": outcome.detail,
        "objective": None if outcome.values is None else float(outcome.values @ linear.cost),
        "bound": outcome.bound if math.isfinite(outcome.bound) else None,
        "incumbents": [float(p @ linear.cost) for p in ear.points],
        "bounds": ear.bounds,
        "violation": max((linear.violation(p) for p in points), default=0.0),
        "lines": len(ear.lines),
        "multiline": sum("\n" in line for line in ear.lines),
        "seconds": seconds,
        "values": [] if outcome.values is None else outcome.values.tolist(),
    }


def wrong(run, linear, optimum, start=None):
    """What is wrong with the answer to a program whose optimum is known."""
    found = told(run, linear, start=start)
    if optimum is None:
        # Vendors may leave open which it is where the cost could fall for ever, too.
        named = found["status"] == "infeasible" or (np.isinf(linear.lower).any() and "infeasible or" in found["detail"])
        return [] if named else [f"{found['status']} of an infeasible program"]
    if found["status"] != "optimal" or abs(found["objective"] - optimum) > 1e-5:
        return [f"{found['status']} {found['objective']}, the optimum is {optimum}"]
    above = [b for b in [*found["bounds"], found["bound"]] if b > optimum + 1e-5]
    far = [found["violation"]] if found["violation"] > 1e-5 else []
    return [*(f"bound {b} above {optimum}" for b in above), *(f"misses by {v}" for v in far)]


def raised(run, linear, ear):
    """The exception that a run ends with."""
    try:
        told(run, linear, ear)
    except (BrokenPipeError, UnavailableError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def presolve(run):
    """A tight program without the rows of its links, an optimal schedule as its point, and what the vendor finds."""
    problem, best = contended()
    program = build(problem, MakespanLimits(least=83, most=108))
    point = program.values(best)
    seen = {"violation": program.lean.violation(point), "objective": float(point @ program.lean.cost)}
    return {"point": seen, "run": told(run, program.lean)}


def beside():
    """Whether a run of HiGHS was left behind and its status, while another is at work, and after."""
    from solvers.milp.vendors import highs

    relay.GRACE_S, grace = 0.2, relay.GRACE_S
    program, ear = random_program(1)[0], Ear()
    with highs._ALONE:
        during = highs.run(program, RunRequest(seconds=0.2, **ASK), ear)
    after = highs.run(program, RunRequest(seconds=600.0, **ASK), ear)
    relay.GRACE_S = grace
    return [(o.left, o.status) for o in (during, after)]


def main():
    run = importlib.import_module(f"solvers.milp.vendors.{sys.argv[1]}").run
    count = int(sys.argv[2])
    hard, start = job_shop(10, 8)
    large = job_shop(16, 10)[0]
    found = {
        "vendor": sys.argv[1],
        "disagreements": [f"seed {s}: {text}" for s in range(count) for text in wrong(run, *random_program(s))],
        "infeasible": [told(run, infeasible(whole))["status"] for whole in (True, False)],
        "unbounded": told(run, unbounded()),
        "real": [wrong(run, *case) for case in real_only()],
        "started": told(run, hard, seconds=600.0, effort=0.3, start=start),
        "start": float(start @ hard.cost),
        "cold": told(run, hard, seconds=600.0, effort=0.3),
        "late": told(run, hard, seconds=0.5),
        "gap": told(run, hard, seconds=600.0, start=start, gap=0.6),
        "enough": told(run, hard, Ear(1), seconds=600.0),
        "twice": [told(run, job_shop(6, 5)[0], seconds=600.0, effort=0.5, seed=7) for _ in range(2)],
        "deaf": raised(run, hard, Deaf()),
        "large": raised(run, large, Ear()) if sys.argv[1] in ("gurobi", "cplex") else "",
        "presolve": presolve(run),
        "beside": beside() if sys.argv[1] == "highs" else [],
        "sizes": [np.shape(hard.cost)[0], hard.rows],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
