"""The papers' toys. Their pictures are not in the texts: graphs and weights here were found so that all of it holds."""

from collections.abc import Mapping, Sequence

import numpy as np

from pesto.research.reproduction.cached_cells import CellSettings, Found, Key
from solvers import Footprint, Options, Problem, Status, api
from solvers.arrays import Ints
from solvers.heuristics.pardnn import place
from solvers.heuristics.pardnn import place as pardnn
from solvers.heuristics.pardnn.emulator import emulate
from solvers.heuristics.pardnn.place import spans_of
from solvers.heuristics.pardnn.slicing import levels, sliced, weights_of
from solvers.memory.usage import usage
from solvers.timing.replay import replay

OPS = {"A": 3, "B": 1, "C": 2, "D": 2, "E": 3, "F": 5, "G": 6, "H": 2}
EDGES = ("AB", "BD", "FG", "CH", "DH", "EH", "GH")
CROSSING = 1
"""Pesto's Fig 2: ticks of the ops and of a transfer. F and G are the long ones, A to E the small ones."""
BEST, POOR, LONG_FIRST = "ABDF", "ABCDEFH", "FCEABDGH"
"""Ops on the first of two GPUs, in an optimal plan and in a naive placement; and the order of the former."""
COMP = {"A": 0, "B": 1, "C": 1, "D": 1, "E": 2, "F": 3, "G": 1, "H": 1, "I": 3, "J": 2, "K": 1, "L": 0}
COMM = {
    "AB": 0, "AC": 0, "BD": 3, "BE": 3, "CF": 2, "DG": 2, "EG": 3, "FG": 1,
    "GH": 2, "GI": 8, "GJ": 1, "HK": 3, "IK": 1, "JK": 4, "KL": 0,
}  # fmt: skip
"""ParDNN's Fig 4.2: ticks of ops and of edges."""
SIZES = {"A": 1, "B": 5, "C": 2, "D": 1, "E": 2, "F": 1, "G": 2}
READS = ("AB", "AC", "AD", "CE", "CF", "DF", "EF", "BG", "FG")
ORDERS = ("ACDEFBG", "ABCDEFG")
"""ParDNN's Fig 4.3: units of memory of each op's output, who reads them, and the two orders of its caption."""


def drawn(ops: Mapping[str, int], edges: Mapping[str, int], places: int = 2, *, links: bool = False) -> Problem:
    """Ops named by letters, edges by two; transfers overlap freely unless there is a link each way."""
    names = list(ops)
    src, dst = (np.array([names.index(edge[end]) for edge in edges]) for end in (0, 1))
    apart = np.where(np.eye(places, dtype=bool), -1, 0)
    link = np.arange(places * places).reshape(places, places, 1) if links else np.full((places, places, 1), -1)
    return Problem(
        duration=np.tile(np.array(list(ops.values()))[:, None], (1, places)), location=np.arange(places),
        memory=np.zeros(len(names), dtype=np.int64), capacity=np.zeros(places, dtype=np.int64), src=src, dst=dst,
        payload=np.arange(len(src)), producer=src, transfer=np.array(list(edges.values()), dtype=np.int64)[:, None],
        path_class=apart, path_links=link, group=np.full(len(names), -1),
    )  # fmt: skip


def hops(problem: Problem) -> Ints:
    """[n] ops on the longest path from each: what a naive order, which knows no durations, prefers."""
    result = np.ones(problem.tasks, dtype=np.int64)
    for _ in range(problem.tasks):
        np.maximum.at(result, problem.src, result[problem.dst] + 1)
    return result


def ranked(first: Sequence[int]) -> Ints:
    """[n] rank of each task, given the tasks in their order."""
    rank = np.empty(len(first), dtype=np.int64)
    rank[list(first)] = np.arange(len(first))
    return rank


def ordered(key: Key, settings: CellSettings) -> Found:
    """Fig 2: a naive order on the best placement, on a naive one, and the optimum, which is proven."""
    del key, settings
    problem = drawn(OPS, dict.fromkeys(EDGES, CROSSING), links=True)
    naive = ranked(np.argsort(-hops(problem), kind="stable").tolist())
    long_first = ranked([list(OPS).index(name) for name in LONG_FIRST])
    runs = {
        "naive order": replay(problem, _at(BEST), naive),
        "naive order and placement": replay(problem, _at(POOR), naive),
        "best": replay(problem, _at(BEST), long_first),
    }
    proven = api.solve(problem, "cpsat", Options(seconds=60.0, workers=1, deterministic=True))
    if proven.status is not Status.OPTIMAL or proven.schedule is None:
        raise RuntimeError(f"the toy's optimum was not proven: {proven.status}")
    # Ops as (name, GPU, start, finish), transfers as (name, to, start, finish).
    names, drawings = list(OPS), {}
    for name, s in runs.items():
        ops = zip(names, s.device.tolist(), s.start.tolist(), s.finish.tolist(), strict=True)
        senders = [names[k] for k in problem.producer[s.sent_payload].tolist()]
        sent = zip(senders, s.sent_to.tolist(), s.sent_start.tolist(), s.sent_finish.tolist(), strict=True)
        drawings[name] = {"ops": [list(each) for each in ops], "sent": [list(each) for each in sent]}
    makespans = {name: s.makespan for name, s in runs.items()}
    return {"makespan": makespans, "optimum": proven.schedule.makespan, "runs": drawings}


def _at(first: str) -> Ints:
    return np.array([0 if name in first else 1 for name in OPS])


def mapped(key: Key, settings: CellSettings) -> Found:
    """Fig 4.2: the step of ParDNN's mapping with each way to balance loads, both without refinement, and with it."""
    del key, settings
    problem = drawn(COMP, COMM)
    w, _ = weights_of(problem)
    top, bottom = levels(w, np.zeros(len(w.task), dtype=bool))
    clusters = sliced(w, top + bottom)
    spans, result = spans_of(w, clusters, top), {}
    for name, aware in (("LALB", True), ("GLB", False)):
        device = np.empty(problem.tasks, dtype=np.int64)
        device[w.task] = place.mapped(w, clusters, spans, level_aware=aware).place
        result[name] = emulate(problem, device).makespan
    refined = emulate(problem, pardnn.place(problem, Options()).device).makespan
    return {"makespan": {**result, "LALB, refined": refined}}


def peaked(key: Key, settings: CellSettings) -> Found:
    """Fig 4.3: the peak of one device by the order alone."""
    del key, settings
    names = list(SIZES)
    problem = drawn(dict.fromkeys(names, 1), dict.fromkeys(READS, 0), places=1)
    held = Footprint(
        static=np.zeros(len(names), dtype=np.int64), size=np.array(list(SIZES.values())), maker=np.arange(len(names)),
        passes=np.full(len(names), -1), read_buffer=problem.src, read_by=problem.dst, read_payload=problem.payload,
    )  # fmt: skip
    result = {}
    for order in ORDERS:
        s = replay(problem, np.zeros(len(names), dtype=np.int64), ranked([names.index(name) for name in order]))
        result[order] = int(usage(problem, held, s).peak[0])
    return {"peak": result}
