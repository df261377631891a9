"""A planned step in the Trace Event Format, which Perfetto and chrome://tracing open.

Slices are in microseconds, with the nanoseconds behind the point. No two of a track overlap, as Perfetto drops those.
"""

import gzip
import heapq
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pesto.choosing.whatif.rerun import Simulation
from pesto.core.memory import footprint
from pesto.core.plans.plan import Plan
from pesto.core.problem import TICK_S, payloads
from solvers.arrays import Ints, ints
from solvers.memory.usage import over_time

DEVICES, LINKS = 1, 2
"""Processes of the trace: one holds the processors and the bytes alive, the other the links."""
_US = round(1e-6 / TICK_S)
"""Ticks of a microsecond."""
_LEVEL = 6
Event = dict[str, Any]


class TransferTracks(NamedTuple):
    """Transfers by the track of each link that they hold; one that holds none is on a track where nothing overlaps."""

    transfer: Ints
    """[h] index of the transfer; one that holds k links k times."""
    track: Ints
    """[h] track, from 1."""
    names: tuple[str, ...]
    """Names of the tracks."""


def trace(plan: Plan, simulation: Simulation) -> bytes:
    """Return the step as JSON; the same step gives the same bytes.

    A slice an op on the track of its processor and a slice a transfer on that of each link that it holds; an arrow from
    the sender over the transfer to its first reader; a counter of the bytes alive on each device.
    """
    tracks, events = assign_tracks(simulation), list[Event]()
    graph, schedule, bench = simulation.bench.graph, simulation.run.timeline.schedule, simulation.bench
    for pid, process, names in ((DEVICES, "devices", plan.lanes), (LINKS, "links", tracks.names)):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process}})
        events.append({"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}})
        for tid, name in enumerate(names, 1):
            thread = {"ph": "M", "pid": pid, "tid": tid}
            events.append({**thread, "name": "thread_name", "args": {"name": name}})
            events.append({**thread, "name": "thread_sort_index", "args": {"sort_index": tid}})
    # Of ops that start at one instant the ones that take no time come first.
    kind = graph.type_of.tolist()
    for i in np.lexsort((simulation.run.rank, schedule.finish, schedule.start)).tolist():
        facts, times = {"op": i, "type": graph.types[kind[i]]}, (int(schedule.start[i]), int(schedule.finish[i]))
        events.append(_slice(DEVICES, int(schedule.device[i]) + 1, plan.names[i], times, facts))
    events += _transfers(plan, simulation, tracks)
    events += _arrows(simulation, tracks)
    curves = over_time(bench.problem, footprint(graph, per_edge=bench.per_edge), schedule)
    for device, (ticks, level) in zip(simulation.cluster.devices, curves, strict=True):
        counter = {"ph": "C", "pid": DEVICES, "name": f"bytes alive on {device.name}"}
        for at, size in zip(ticks.tolist(), level.tolist(), strict=True):
            events.append({**counter, "ts": at / _US, "args": {"bytes": size}})
    made = plan.provenance
    origin = {"graph": made.graph_source, "cluster": simulation.cluster.name, "costs": made.costs_basis}
    result = {"displayTimeUnit": "ms", "otherData": origin, "traceEvents": events}
    return json.dumps(result, separators=(",", ":")).encode() + b"\n"


def gzip_bytes(text: bytes) -> bytes:
    """Return the bytes gzipped; the same ones give the same."""
    return gzip.compress(text, _LEVEL, mtime=0)


def assign_tracks(simulation: Simulation) -> TransferTracks:
    """Return the tracks of the transfers."""
    problem, s = simulation.bench.problem, simulation.run.timeline.schedule
    source = problem.location[s.device[problem.producer[s.sent_payload]]]
    links = problem.path_links[source, s.sent_to]
    transfer, column = np.nonzero(links >= 0)
    used, track = np.unique(links[transfer, column], return_inverse=True)
    names = [simulation.cluster.links[k] for k in used.tolist()]
    alone = np.flatnonzero((links < 0).all(axis=1))
    # A row for each of these transfers so that those of one row do not overlap, as few rows as can be.
    start, finish = s.sent_start[alone], s.sent_finish[alone]
    row, free, busy, rows = np.zeros(len(alone), dtype=np.int64), list[int](), list[tuple[int, int]](), 0
    for k in np.lexsort((finish, start)).tolist():
        while busy and busy[0][0] <= start[k]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, rows)
            rows += 1
        row[k] = heapq.heappop(free)
        heapq.heappush(busy, (int(finish[k]), int(row[k])))
    names += [f"no link, {k + 1}" for k in range(int(row.max(initial=-1)) + 1)]
    return TransferTracks(
        ints(np.concatenate([transfer, alone])), ints(np.concatenate([track, len(used) + row]) + 1), tuple(names)
    )


def _transfers(plan: Plan, simulation: Simulation, tracks: TransferTracks) -> Iterator[Event]:
    bench, s = simulation.bench, simulation.run.timeline.schedule
    devices = [device.name for device in simulation.cluster.devices]
    sender = bench.problem.producer[s.sent_payload]
    origin = bench.problem.location[s.device[sender]]
    size = bench.graph.tensor_bytes[payloads(bench.graph, per_edge=bench.per_edge)[1]][s.sent_payload]
    for h in np.lexsort((s.sent_finish[tracks.transfer], s.sent_start[tracks.transfer])).tolist():
        t = int(tracks.transfer[h])
        said = {"transfer": t, "bytes": int(size[t]), "from": devices[origin[t]], "to": devices[s.sent_to[t]]}
        times = int(s.sent_start[t]), int(s.sent_finish[t])
        yield _slice(LINKS, int(tracks.track[h]), plan.names[sender[t]], times, said)


def _slice(pid: int, tid: int, name: str, times: tuple[int, int], event: Event) -> Event:
    start, finish = times
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": start / _US, "dur": (finish - start) / _US,
            "args": event}  # fmt: skip


def _arrows(simulation: Simulation, tracks: TransferTracks) -> Iterator[Event]:
    """Each binds to the slice that is there at its time, so what takes no time has none."""
    s = simulation.run.timeline.schedule
    track = np.zeros(len(s.sent_payload), dtype=np.int64)
    track[tracks.transfer[::-1]] = tracks.track[::-1]
    sender, reader = simulation.bench.problem.producer[s.sent_payload], first_readers(simulation)
    took = s.finish - s.start
    for t, (tail, head) in enumerate(zip(sender.tolist(), reader.tolist(), strict=True)):
        stops = [(DEVICES, s.device[tail] + 1, s.start[tail])] if took[tail] else []
        stops += [(LINKS, track[t], s.sent_start[t])] if s.sent_finish[t] > s.sent_start[t] else []
        stops += [(DEVICES, s.device[head] + 1, s.start[head])] if took[head] else []
        if len(stops) < 2:
            continue
        for ph, (pid, tid, at) in zip("s" + "t" * (len(stops) - 2) + "f", stops, strict=True):
            end = {"bp": "e"} if ph == "f" else {}
            yield {"ph": ph, **end, "id": t, "cat": "sent", "name": "sent", "pid": pid, "tid": int(tid),
                   "ts": int(at) / _US}  # fmt: skip


def first_readers(simulation: Simulation) -> Ints:
    """Return [t] the task that reads each transfer first where it arrives."""
    p, s = simulation.bench.problem, simulation.run.timeline.schedule
    edge = np.flatnonzero(p.payload >= 0)
    edge = edge[np.argsort(s.start[p.dst[edge]], kind="stable")]
    to, first = np.unique(p.payload[edge] * p.locations + p.location[s.device[p.dst[edge]]], return_index=True)
    return ints(p.dst[edge[first[np.searchsorted(to, s.sent_payload * p.locations + s.sent_to)]]])
