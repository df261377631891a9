"""Lines that tests run, by room (docs/contributing/testing.md): `python .ci/coverage_by_room.py coverage.json`.

The file is what `python -m pytest --cov --cov-report=json` writes. Lines of compiled functions are left out: Python
never runs them, so coverage cannot see them.
"""

import ast
import json
import sys
from collections import Counter
from pathlib import Path

COMPILED = {"kernel", "subkernel", "inlined", "routine", "subroutine"}


def main(report: str) -> None:
    """A Markdown row a room, the least covered first."""
    lines, missing = Counter[str](), Counter[str]()
    for name, file in json.loads(Path(report).read_bytes())["files"].items():
        seen = {*file["executed_lines"], *file["missing_lines"]} - _compiled(Path(name))
        room = str(Path(name).parent)
        lines[room] += len(seen)
        missing[room] += len(seen.intersection(file["missing_lines"]))
    print("| room | lines | run |\n|---|---:|---:|")
    for room in sorted(lines, key=lambda room: (-missing[room] / max(1, lines[room]), room)):
        print(f"| `{room}/` | {lines[room]} | {1 - missing[room] / max(1, lines[room]):.1%} |")
    print(f"| all | {lines.total()} | {1 - missing.total() / lines.total():.1%} |")


def _compiled(file: Path) -> set[int]:
    tree = ast.parse(file.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    compiled = [f for f in functions if COMPILED & {d.id for d in f.decorator_list if isinstance(d, ast.Name)}]
    return {line for f in compiled for line in range(f.body[0].lineno, (f.end_lineno or f.lineno) + 1)}


if __name__ == "__main__":
    main(sys.argv[1])
