"""Timing of kernels on the device, and descriptions of ops."""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

try:
    import torch
except ImportError:
    torch = None


class TimedDevice:
    """The device that is measured, and how time is read on it."""

    def __init__(self, kind: str, *, small: bool) -> None:
        self.kind, self.small, self.cuda = kind, small, kind == "cuda"
        self.capturing = False
        # Of its own: a capture that fails leaves torch's own generator unusable.
        self.generator = torch.Generator(kind).manual_seed(0)
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size if self.cuda else 0

    def sync(self) -> None:
        """Wait until all is done."""
        if self.cuda:
            torch.cuda.synchronize()

    def random(self, *shape: int, dtype: str = "float32") -> Any:
        """Normal numbers."""
        real = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
        return torch.randn(shape, device=self.kind, generator=self.generator).to(real)

    def integers(self, below: int, *shape: int) -> Any:
        """Random indices."""
        return torch.randint(below, shape, device=self.kind, generator=self.generator)

    def sets(self, size: int) -> int:
        """Return the number of sets of buffers of `size` bytes that fill L2 four times, at most 64."""
        return max(1, min(64, math.ceil(4 * self.l2 / max(size, 1)))) if self.cuda else 1

    def samples(self, run: Callable[[], Any], count: int, *, queued: bool = False) -> list[float]:
        """Seconds of each of `count` runs in a row, by events of the stream.

        queued: the GPU begins after all of them are issued, so that the host's time is in none.
        """
        if not self.cuda:
            return [wall(run) for _ in range(count)]
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2 * count)]
        self.sync()
        if queued:
            torch.cuda._sleep(200_000 * count)  # 0.1 ms for each
        for k in range(count):
            marks[2 * k].record()
            run()
            marks[2 * k + 1].record()
        self.sync()
        return [marks[2 * k].elapsed_time(marks[2 * k + 1]) / 1e3 for k in range(count)]

    def kernel(
        self, run: Callable[[int], Any], sets: int, budget_s: float = 0.04, *, waits: bool = False
    ) -> dict[str, Any]:
        """Time of one kernel: `run(i)` on the i-th set of buffers, many in one replayed CUDA graph where it can be.

        waits: whether it waits for the device, which a graph cannot.
        """
        for k in range(min(sets, 3) + 1):
            run(k % sets)
        rough = max(min(self.samples(lambda: run(0), 3)), 2e-6)
        inner = max(1, min(100, math.ceil(4e-4 / rough))) if self.cuda else 1

        def all_of_them() -> None:
            for k in range(inner):
                run(k % sets)

        graph, how = None, "stream"
        if self.cuda and not waits:
            try:
                graph, how = captured(all_of_them), "graph"
            except RuntimeError as error:
                how = f"stream: {str(error).splitlines()[0][:120]}"
                self.sync()
        once = graph.replay if graph else all_of_them
        self.samples(once, 2)
        count = max(5, min(40, int(budget_s / (rough * inner))))
        result = summary([s / inner for s in self.samples(once, count)])
        return result | {"inner": inner, "buffers": min(sets, inner), "how": how}


def captured(run: Callable[[], Any]) -> Any:
    """The CUDA graph of what `run` launches."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    gc.disable()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin()
            try:
                run()
            finally:
                graph.capture_end()
    finally:
        gc.enable()
    torch.cuda.synchronize()
    return graph


def wall(run: Callable[[], Any]) -> float:
    """Seconds of the host."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def summary(seconds: list[float]) -> dict[str, Any]:
    """Median, 10th percentile and count of samples."""
    ordered = sorted(seconds)
    return {"seconds": statistics.median(ordered), "p10": ordered[len(ordered) // 10], "count": len(ordered)}


def precision(mode: str) -> None:
    """Let float32 be computed as TF32, or not."""
    torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
    torch.backends.cudnn.allow_tf32 = mode == "tf32"


def described(kernel: str, sizes: list[int], flops: float, moved: float, dtype: str) -> dict[str, Any]:
    """An op as Pesto's graph files say it: form and sizes of its kernel, operations and bytes."""
    return {"kernel": kernel, "sizes": sizes, "flops": flops, "bytes": int(moved), "dtype": dtype}


def width(dtype: str) -> int:
    """Bytes of a number."""
    return 2 if dtype in ("float16", "bfloat16") else 4


def shuffled(rows: list[Any]) -> list[Any]:
    """The rows in one random order."""
    random.Random(0).shuffle(rows)  # noqa: S311 - no secret
    return rows
