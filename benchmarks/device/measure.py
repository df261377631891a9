"""Measures one GPU: single kernels, whole training steps, copies and two small plans. Needs torch alone.

    python3 -m benchmarks.device.measure -o FILE.json [--minutes 8] [--device cuda|cpu] [--small]

Sections end at their share of the time, between two rows, and rows are in random order (seed 0), so a section that was
cut is a sample of the whole. FILE.json is written after each section and every 10 s, in place of the former one. A row
that fails is listed under `faults`, and the others go on. `python -m benchmarks.device report FILE.json` reads it.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.device.single_kernels import conv_rows, matmul_rows, other_rows
from benchmarks.device.timing import TimedDevice
from benchmarks.device.traffic import copy_rows, launch_rows, plan_rows
from benchmarks.device.whole_steps import step_rows

try:
    import torch
except ImportError:
    torch = None

FORMAT_VERSION = 1


SECTIONS: tuple[tuple[str, str, Callable[[TimedDevice], Any], float], ...] = (
    ("launches", "launches", launch_rows, 0.04),
    ("copies", "copies", copy_rows, 0.12),
    ("plans", "plans", plan_rows, 0.16),
    ("kernels", "rows", other_rows, 0.27),
    ("matmuls", "rows", matmul_rows, 0.43),
    ("convolutions", "rows", conv_rows, 0.59),
    ("steps", "steps", step_rows, 0.95),
)
"""Name, list that its rows go to, its rows, and the share of the time at which it ends."""


class MeasurementFile:
    """The measurements so far, and the time that is left for more."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.begin, self.minutes, self.saved = path, time.monotonic(), minutes, 0.0
        self.data: dict[str, Any] = {"format_version": FORMAT_VERSION, "sections": {}, "faults": []}
        for name in ("rows", "steps", "copies", "plans", "launches"):
            self.data[name] = []

    def left(self, share: float) -> bool:
        """Return True while less than this share of the time is gone."""
        return time.monotonic() - self.begin < 60 * self.minutes * share

    def save(self) -> None:
        """Write all of it in place of the former file."""
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(self.data))
        part.replace(self.path)
        self.saved = time.monotonic()

    def section(self, name: str, into: str, rows: list[tuple[str, Callable[[], Any]]], share: float) -> None:
        """Run rows until `share` of the time is gone; a row gives a dict or several."""
        begin, done = time.monotonic(), 0
        for label, make in rows:
            if not self.left(share):
                break
            try:
                result = make()
                self.data[into] += result if isinstance(result, list) else [result]
            except Exception as error:
                text = f"{type(error).__name__}: {error}"[:400]
                self.data["faults"].append({"section": name, "row": label, "error": text})
                print(f"  fault in {label}: {text.splitlines()[0][:160]}", flush=True)
            done += 1
            if torch.cuda.is_available() and torch.cuda.memory_reserved() > 20e9:
                torch.cuda.empty_cache()
            if time.monotonic() - self.saved > 10:
                self.save()
        spent = time.monotonic() - begin
        self.data["sections"][name] = {"rows": done, "of": len(rows), "seconds": round(spent, 1)}
        at = time.monotonic() - self.begin
        print(f"{at:6.1f} s  {name}: {done} of {len(rows)} in {spent:.1f} s; {clocks()}", flush=True)
        self.save()


def clocks(fields: str = "clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu") -> str:
    """Return the fields that nvidia-smi reports, by default clocks and power."""
    try:
        asked = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "no nvidia-smi"


def machine(device: TimedDevice) -> dict[str, Any]:
    """Facts of the machine and the libraries."""
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "torch": torch.__version__, "python": sys.version,
        "cpus": os.cpu_count(), "gpu": "none", "clocks": clocks(),
    }  # fmt: skip
    if device.cuda:
        p = torch.cuda.get_device_properties(0)
        driver = clocks("name,driver_version,pcie.link.gen.max,pcie.link.width.max")
        result |= {
            "gpu": p.name, "sms": p.multi_processor_count, "l2_bytes": p.L2_cache_size, "memory_bytes": p.total_memory,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "nvidia_smi": driver,
        }  # fmt: skip
    return result


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong arguments end the program with 2 and one line."""
    parser = argparse.ArgumentParser("benchmarks.device.measure", argparse.SUPPRESS, (__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--minutes", type=float, default=8.0, help="time limit, up to 60; default 8")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes, which try the program alone")
    names = [name for name, *_ in SECTIONS]
    parser.add_argument("--sections", nargs="+", choices=names, default=names, help="only these; all by default")
    asked = parser.parse_args(given)
    if not 0 < asked.minutes <= 60:
        parser.error(f"--minutes is {asked.minutes:g} - give more than 0 and at most 60")
    if not asked.output.parent.is_dir():
        parser.error(f"no folder {asked.output.parent} - make it, or write the file elsewhere")
    if torch is None:
        parser.error("torch is not installed - run this with a Python that has it")
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU - try the program with --device cpu --small")
    return asked


def main() -> None:
    """Measure, section by section."""
    asked = arguments()
    # Whatever hangs: what was saved is kept.
    watchdog = threading.Timer(60 * asked.minutes, os._exit, (3,))
    watchdog.daemon = True
    watchdog.start()
    # With CUDA graphs the profiler may crash when it starts again; torch sets these itself for its compiler's graphs.
    os.environ |= {"DISABLE_CUPTI_LAZY_REINIT": "1", "TEARDOWN_CUPTI": "0"}
    torch.backends.cudnn.benchmark = True
    device = TimedDevice(asked.device, small=asked.small)
    record = MeasurementFile(asked.output, asked.minutes)
    record.data |= {"machine": machine(device), "small": asked.small, "minutes": asked.minutes}
    print(f"{record.data['machine']['gpu']}, torch {torch.__version__}, {asked.minutes:g} minutes", flush=True)
    for name, into, rows, share in SECTIONS:
        if name not in asked.sections:
            continue
        try:
            made = rows(device)
        except Exception as error:
            record.data["faults"].append({"section": name, "row": "", "error": str(error)[:400]})
            continue
        record.section(name, into, made, share)
    record.data["machine"]["clocks_after"] = clocks()
    record.save()
    print(f"{len(record.data['faults'])} faults; wrote {asked.output}", flush=True)


if __name__ == "__main__":
    main()
