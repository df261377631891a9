"""Copies, launches, and two small plans over streams and the host."""

import math
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.device.timing import TimedDevice, captured, described, summary, wall

try:
    import torch
except ImportError:
    torch = None


def copy_rows(device: TimedDevice) -> list[tuple[str, Callable[[], Any]]]:
    """Copies by size: alone, both ways at once, and beside a matmul."""
    sizes = (4, 1024) if device.small else [4 * 4**k for k in range(14)] + [2**30]
    return [(f"copies of {n} bytes", lambda n=n: copies(device, n)) for n in sizes]


def copies(device: TimedDevice, size: int) -> list[dict[str, Any]]:
    """All copies of one size."""
    here = torch.zeros(size, dtype=torch.uint8, device=device.kind)
    also = torch.ones_like(here)
    pinned = [torch.empty(size, dtype=torch.uint8, pin_memory=device.cuda).fill_(3) for _ in range(2)]
    paged = torch.empty(size, dtype=torch.uint8).fill_(5)
    ways: dict[tuple[str, str], Callable[[], Any]] = {
        ("h2d", "pinned"): lambda: here.copy_(pinned[0], non_blocking=True),
        ("d2h", "pinned"): lambda: pinned[1].copy_(also, non_blocking=True),
        ("h2d", "pageable"): lambda: here.copy_(paged),
        ("d2h", "pageable"): lambda: paged.copy_(also),
        ("d2d", "device"): lambda: here.copy_(also),
    }
    count = 5 if device.small or size > 2**28 else 20
    rows, alone = [], {}
    for (way, kept), run in ways.items():
        device.samples(run, 2)
        result = summary(device.samples(run, count, queued=kept != "pageable"))
        alone[way, kept] = result["seconds"]
        walls = []
        for _ in range(count):
            device.sync()
            walls.append(wall(lambda r=run: (r(), device.sync())))
        rows.append({"direction": way, "memory": kept, "bytes": size, "beside": None} | result
                    | {"wall_seconds": statistics.median(walls)})  # fmt: skip
    if not device.cuda:
        return rows
    side = torch.cuda.Stream()
    n = 4096
    a, b, c = (device.random(n, n, dtype="bfloat16") for _ in range(3))
    work = {"opposite": None, "matmul": lambda: torch.matmul(a, b, out=c)}
    for way in ("h2d", "d2h"):
        for beside, other in work.items():
            run, second = ways[way, "pinned"], other or ways["d2h" if way == "h2d" else "h2d", "pinned"]
            second_s = alone["d2h" if way == "h2d" else "h2d", "pinned"]
            if other:
                second()
                second_s = statistics.median(device.samples(second, 5))
            times = max(1, min(200, math.ceil(alone[way, "pinned"] / second_s)))
            both = [_together(side, run, second, times) for _ in range(max(3, count // 2))]
            rows.append(
                {"direction": way, "memory": "pinned", "bytes": size, "beside": beside}
                | summary([x for x, _, _ in both])
                | {"beside_seconds": statistics.median(y / times for _, y, _ in both), "beside_alone": second_s,
                   "both_seconds": statistics.median(z for _, _, z in both), "beside_count": times}
            )  # fmt: skip
    return rows


def _together(side: Any, run: Callable[[], Any], second: Callable[[], Any], times: int) -> tuple[float, float, float]:
    """Seconds of a copy, of what runs beside it `times` times, and from the first's begin to the last's end."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(5)]
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000)  # both are issued before either begins
    marks[0].record()
    side.wait_event(marks[0])
    with torch.cuda.stream(side):
        marks[1].record()
        run()
        marks[2].record()
    marks[3].record()
    for _ in range(times):
        second()
    marks[4].record()
    torch.cuda.synchronize()
    copied, beside = marks[1].elapsed_time(marks[2]), marks[3].elapsed_time(marks[4])
    return copied / 1e3, beside / 1e3, max(marks[0].elapsed_time(marks[k]) for k in (2, 4)) / 1e3


def launch_rows(device: TimedDevice) -> list[tuple[str, Callable[[], Any]]]:
    """Seconds of one launch of an almost empty kernel."""
    xs = [torch.zeros(1, device=device.kind) for _ in range(64)]
    count = 10 if device.small else 1000
    runs = {"add, dependent": lambda _: xs[0].add_(1), "add, independent": lambda k: xs[k % 64].add_(1)}
    if device.cuda:
        runs["empty, dependent"] = lambda _: torch.cuda._sleep(0)

    def chain(run: Callable[[int], Any]) -> None:
        for k in range(count):
            run(k)

    def one(name: str) -> list[dict[str, Any]]:
        def work() -> None:
            chain(runs[name])

        def whole() -> None:
            work()
            device.sync()

        work()
        result = [{"kind": name, "how": "stream"} | summary([wall(whole) / count for _ in range(5)])]
        if device.cuda:
            graph = captured(work)
            result.append(
                {"kind": name, "how": "graph"} | summary([s / count for s in device.samples(graph.replay, 10)])
            )
            if name.startswith("empty"):
                graph = captured(lambda: forked(8, lambda _: chain(runs[name])))
                each = [s / count / 8 for s in device.samples(graph.replay, 10)]
                result.append({"kind": "empty, 8 streams", "how": "graph"} | summary(each))
        return result

    return [(name, lambda n=name: one(n)) for name in runs]


def forked(count: int, run: Callable[[int], Any]) -> None:
    """Run parts on so many streams, from the current one and joined to it."""
    here, streams = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in range(count)]
    for k, stream in enumerate(streams):
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            run(k)
    for stream in streams:
        here.wait_stream(stream)


def plan_rows(device: TimedDevice) -> list[tuple[str, Callable[[], Any]]]:
    """Two towers on two streams, and an activation that waits in the host's memory."""
    sizes = (16,) if device.small else (256, 512, 1024, 2048, 4096)
    result = [(f"towers {n}", lambda n=n: towers(device, n)) for n in sizes]
    sizes = (16,) if device.small else (1024, 4096, 16384)
    return result + [(f"offload {n}", lambda n=n: offload(device, n)) for n in sizes]


def towers(device: TimedDevice, n: int) -> dict[str, Any]:
    """Two chains of six products, joined by an addition."""
    w = [[device.random(n, n, dtype="bfloat16") / n**0.5 for _ in range(6)] for _ in range(2)]
    x = [device.random(n, n, dtype="bfloat16") for _ in range(2)]
    ops = [
        {"name": f"{t}/{k}", "inputs": [f"{t}/{k - 1}"] if k else [], "device": "gpu:0", "tower": t,
         "out_bytes": 2 * n * n, "op": described("matmul", [n, n, n, 1, 0, 0], 2.0 * n**3, 6 * n * n, "bfloat16")}
        for t in range(2) for k in range(6)
    ]  # fmt: skip
    ops.append({"name": "join", "inputs": ["0/5", "1/5"], "device": "gpu:0", "tower": 0, "out_bytes": 2 * n * n,
                "op": described("", [], float(n * n), 6 * n * n, "bfloat16")})  # fmt: skip
    ends: list[Any] = [None, None]

    def tower(t: int) -> None:
        ends[t] = x[t]
        for each in w[t]:
            ends[t] = ends[t] @ each

    def one_stream() -> None:
        tower(0)
        tower(1)
        torch.add(*ends)

    def two_streams() -> None:
        forked(2, tower)
        torch.add(*ends)

    result: dict[str, Any] = {"plan": "towers", "size": n, "ops": ops}
    ways = {"one stream": one_stream} | ({"two streams": two_streams} if device.cuda else {})
    for name, run in ways.items():
        run()
        once = captured(run).replay if device.cuda else run
        device.samples(once, 2)
        result[name] = summary(device.samples(once, 20))
    return result


def offload(device: TimedDevice, rows: int) -> dict[str, Any]:
    """A chain of eight products whose first output waits in the host's memory until the last has been made."""
    k = 16 if device.small else 4096
    x = device.random(rows, k, dtype="bfloat16")
    w = [device.random(k, k, dtype="bfloat16") / k**0.5 for _ in range(8)]
    size = 2 * rows * k
    host = torch.empty(rows, k, dtype=torch.bfloat16, pin_memory=device.cuda)
    ops = [
        {"name": str(i), "inputs": [str(i - 1)] if i else [], "device": "gpu:0", "out_bytes": size,
         "op": described("matmul", [rows, k, k, 1, 0, 0], 2.0 * rows * k * k, 2 * size + 2 * k * k, "bfloat16")}
        for i in range(8)
    ]  # fmt: skip
    ops.append({"name": "host", "inputs": ["0"], "device": "cpu:0", "out_bytes": size, "op": None})
    ops.append({"name": "join", "inputs": ["7", "host"], "device": "gpu:0", "out_bytes": size,
                "op": described("", [], float(rows * k), 3 * size, "bfloat16")})  # fmt: skip
    side = torch.cuda.Stream() if device.cuda else None

    def run(*, away: bool) -> None:
        first = last = x @ w[0]
        back = first
        if away and side is not None:
            here = torch.cuda.current_stream()
            side.wait_stream(here)
            with torch.cuda.stream(side):
                host.copy_(first, non_blocking=True)
                back = torch.empty_like(first)
                back.copy_(host, non_blocking=True)
        for each in w[1:]:
            last = last @ each
        if away and side is not None:
            here.wait_stream(side)
            first.record_stream(side)
        last + back

    result: dict[str, Any] = {"plan": "offload", "size": rows, "ops": ops}
    for name, away in {"kept": False, "offloaded": True}.items():
        device.samples(lambda a=away: run(away=a), 3)
        result[name] = summary(device.samples(lambda a=away: run(away=a), 15))
    return result
