"""What a GPU says of its clocks, by the driver's own program."""

import os
import subprocess

_QUERY = ("--query-gpu=clocks.sm,clocks.max.sm", "--format=csv,noheader,nounits")
PROGRAM = "nvidia-smi"
"""What is asked, where it is installed."""


def gpu_clocks() -> str:
    """The SM clock of the first GPU that this process sees, and the highest, in MHz; empty where nobody says."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip() or "0"
    try:
        asked = [PROGRAM, f"--id={seen}", *_QUERY]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True)
        now, most = (int(part) for part in done.stdout.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return ""
    return f"SM clock {now} of {most} MHz after the runs"
