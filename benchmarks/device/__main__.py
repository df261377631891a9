"""Reports predicted against measured times of a GPU.

    python -m benchmarks.device report FILE.json [--json] [--preset NAME] [--held-out] [--fitted-to V100|H200]

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
    asked.add_argument("--held-out", action="store_true", help="only kernels whose shapes no constant was fitted to")
    asked.add_argument("--fitted-to", choices=("V100", "H200"), help="take the constants of this GPU's kernels")
    given = parser.parse_args()
    try:
        said = report(read(given.file), given.preset, fitted_to=given.fitted_to, held_out=given.held_out)
    except ValueError as error:
        parser.error(str(error))
    if given.json:
        print(json.dumps(said, indent=1))
    else:
        show(said)


if __name__ == "__main__":
    main()
