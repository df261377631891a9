"""Reports predicted against measured times of a GPU.

    python -m benchmarks.device report FILE.json [--json] [--preset NAME]

FILE.json is what `python3 -m benchmarks.device.measure` wrote on a machine with a GPU; it may be compressed (.json.gz).
"""

import argparse
import json
from pathlib import Path

from benchmarks.device.report import read, report, show


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="benchmarks.device", description=(__doc__ or "").partition("\n")[0])
    asked = parser.add_subparsers(required=True).add_parser("report", help="tables of predicted against measured")
    asked.add_argument("file", type=Path, help="the measurements")
    asked.add_argument("--json", action="store_true", help="one JSON object")
    asked.add_argument("--preset", help="preset of the GPU, where its name names none")
    given = parser.parse_args()
    try:
        said = report(read(given.file), given.preset)
    except ValueError as error:
        parser.error(str(error))
    if given.json:
        print(json.dumps(said, indent=1))
    else:
        show(said)


if __name__ == "__main__":
    main()
