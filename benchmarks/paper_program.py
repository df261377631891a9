"""What fewer order variables and smaller constants bring to the paper's integer program, on HiGHS with one thread.

Two parts: CPU seconds and nodes until HiGHS says "Optimal" on small random layers, and what is found and proven within
a CPU limit on LSTM grids. Every edge has a payload of its own, so the program is
exact. Run from the project's root: `python -m benchmarks.paper_program [--small 20] [--cpu 60] [--grids 3x4 4x5]`.
"""

import argparse
import math
import time
from typing import Any

import highspy
import numpy as np

from solvers.bounds import quick_bounds
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.plain import layered, lstm_grid, per_edge
from solvers.milp.formulations import MakespanLimits
from solvers.milp.linear import Linear
from solvers.milp.paper.program import PaperStyle, styled
from solvers.problem import Problem
from solvers.result import Options
from solvers.structure.units import serial
from solvers.timing.rebuild import rebuild


def styles(limits: MakespanLimits) -> dict[str, PaperStyle]:
    """The default, with order variables for every pair, and with constants of a million units."""
    million = 1e6 * limits.unit / max(1, limits.most)
    return {
        "open pairs, M = horizon": PaperStyle(),
        "every pair, M = horizon": PaperStyle(every_pair=True),
        "open pairs, M = 10^6": PaperStyle(big=(million, million, million)),
        "every pair, M = 10^6": PaperStyle(every_pair=True, big=(million, million, million)),
    }


def highs(linear: Linear, cpu: float, presolve: str = "choose") -> highspy.Highs:
    """HiGHS after its run, ended at `cpu` seconds of this process."""
    solver, kinds, began = highspy.Highs(), highspy.HighsVarType, time.process_time()
    options = {"log_to_console": False, "threads": 1, "mip_rel_gap": 0.0, "presolve": presolve}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(
        linear.columns, linear.rows, len(linear.column), 2, 1, 0.0,
        linear.cost, linear.lower, linear.upper, linear.row_lower, linear.row_upper,
        linear.offset.astype(np.int32), linear.column.astype(np.int32), linear.coefficient,
        np.where(linear.integer, int(kinds.kInteger), int(kinds.kContinuous)).astype(np.int32),
    )  # fmt: skip

    def late(event: Any) -> None:
        if time.process_time() - began > cpu:
            event.data_in.user_interrupt = True

    solver.cbMipInterrupt += late
    solver.cbSimplexInterrupt += late
    solver.run()
    return solver


def small(count: int, cpu: float, presolve: str) -> None:
    """Time to "Optimal" on layers of 3 x 4 tasks on two GPUs, and how often that was not the optimum."""
    result: dict[str, list[tuple[float, int, int, bool]]] = {}
    for seed in range(count):
        problem = per_edge(layered(np.random.default_rng(seed), 4, 3, transfer=1))
        start = ListScheduler().solve(problem, Options(), lambda _: None).schedule
        limits = MakespanLimits(least=0, most=start.makespan + 3)
        for name, style in styles(limits).items():
            program = styled(problem, limits, style)
            began = time.process_time()
            solver = highs(program.linear, cpu, presolve)
            took, info = time.process_time() - began, solver.getInfo()
            optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
            value = round(info.objective_function_value * limits.unit) if optimal else -1
            result.setdefault(name, []).append((took, info.mip_node_count, value, optimal))
    # A wrong optimum is too small: constraints give way where a constant is large.
    best = [max(rows[seed][2] for rows in result.values()) for seed in range(count)]
    print(f"presolve {presolve}\nprogram | proven | geometric mean CPU s | geometric mean nodes | wrong")
    for name, rows in result.items():
        seconds = math.exp(np.mean([math.log(max(r[0], 1e-3)) for r in rows]))
        nodes = math.exp(np.mean([math.log(max(r[1], 1)) for r in rows]))
        wrong = sum(r[3] and r[2] != b for r, b in zip(rows, best, strict=True))
        print(f"{name} | {sum(r[3] for r in rows)} of {count} | {seconds:.2f} | {nodes:.0f} | {wrong}", flush=True)


def grid(problem: Problem, label: str, cpu: float) -> None:
    """What is found and proven on one grid without a start."""
    limits = MakespanLimits(least=quick_bounds.best(problem)[0], most=serial(problem))
    print(f"{label}: {problem.tasks} tasks, {problem.payloads} edges, horizon {limits.most}, bound {limits.least}")
    print("program | order variables | rows | entries | build s | best | bound | nodes")
    for name, style in styles(limits).items():
        began = time.process_time()
        program = styled(problem, limits, style)
        built = time.process_time() - began
        solver = highs(program.linear, cpu)
        info, linear, best = solver.getInfo(), program.linear, "none"
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            best = rebuild(problem, program.schedule(np.array(solver.getSolution().col_value))).makespan
        bound = math.ceil(info.mip_dual_bound * limits.unit - 1e-3)
        size = f"{len(program.pairs[0])} | {linear.rows} | {len(linear.column)} | {built:.2f}"
        print(f"{name} | {size} | {best} | {bound} | {info.mip_node_count}", flush=True)


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=20, help="random layers")
    parser.add_argument("--cpu", type=float, default=60.0, help="CPU seconds a run")
    parser.add_argument("--grids", nargs="*", default=["3x4", "4x5"], help="layers x steps")
    given = parser.parse_args()
    if given.small:
        small(given.small, given.cpu, "choose")
        small(given.small, given.cpu, "off")
    for shape in given.grids:
        layers, steps = map(int, shape.split("x"))
        grid(per_edge(lstm_grid(layers, steps)), f"lstm_grid({layers}, {steps})", given.cpu)


if __name__ == "__main__":
    main()
