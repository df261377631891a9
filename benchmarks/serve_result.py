"""The end of the benchmarks of the placement service: what was measured is printed, and the exit code judges it."""

import json
import os
import sys
from typing import NoReturn


def finish(result: dict[str, object], code: int, *, as_json: bool, within: bool) -> NoReturn:
    """Print what was measured, with the server's exit code and the machine's load; exit 1 unless both are well."""
    result |= {"exit_code": code, "cores": os.cpu_count(), "load": [round(one, 1) for one in os.getloadavg()]}
    width = max(map(len, result)) + 2
    print(json.dumps(result) if as_json else "\n".join(f"{key:{width}}{value}" for key, value in result.items()))
    sys.exit(0 if within and code == 0 else 1)
