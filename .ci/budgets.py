"""The budgets of docs/architecture.md: sizes of files and functions, frozen dataclasses, code at import, duplicates.

Prints every breach and exits 1 when there is one. What ruff checks (parameters, complexity) is not repeated here.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

FILE_LINES = 300
TEST_FILE_LINES = 400
"""More for tests: modules without packages share nothing but fixtures, so a file keeps its own small builders."""
BODY_LINES = 30
FUNCTION_LINES = 50
BLOCK_LINES = 8
BANNED = ("utils", "helpers", "common", "_v2", "_old")
ROOT = Path(__file__).resolve().parent.parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Check every Python file of the project."""
    files = sorted(
        p for room in ("pesto", "solvers", "benchmarks", "tests", ".ci") for p in (ROOT / room).rglob("*.py")
    )
    breaches = [b for path in files for b in of_file(path)]
    breaches += duplicates([p for p in files if p.parts[-2] != "tests" and "tests" not in p.parts])
    print("\n".join(breaches) or f"budgets: {len(files)} files within bounds")
    sys.exit(1 if breaches else 0)


def of_file(path: Path) -> list[str]:
    """Breaches within one file."""
    where = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    tree = ast.parse(text)
    found = [f"{where}: banned name" for word in BANNED if word in path.stem]
    lines, most = len(text.splitlines()), TEST_FILE_LINES if where.startswith("tests/") else FILE_LINES
    if lines > most:
        found.append(f"{where}: {lines} lines, at most {most}")
    product = path.parts[-2] != "tests" and where.startswith(("pesto/", "solvers/"))
    for node in ast.walk(tree):
        if isinstance(node, Function) and product:
            found += of_function(node, where)
        elif isinstance(node, ast.ClassDef) and product:
            found += of_class(node, where)
    return found + ([f"{where}:{n.lineno}: code at import" for n in tree.body if not is_plain(n)] if product else [])


def of_function(node: Function, where: str) -> list[str]:
    """A body of at most 30 lines, 50 with signature and docstring."""
    first = node.body[0]
    doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    start = (first.end_lineno or 0) + 1 if doc else first.lineno
    body, whole = (node.end_lineno or 0) - start + 1, (node.end_lineno or 0) - node.lineno + 1
    if body > BODY_LINES or whole > FUNCTION_LINES:
        return [f"{where}:{node.lineno}: {node.name} has {body} lines of body and {whole} in all"]
    return []


def of_class(node: ast.ClassDef, where: str) -> list[str]:
    """Every dataclass is frozen."""
    return [
        f"{where}:{node.lineno}: dataclass {node.name} is not frozen"
        for d in node.decorator_list
        if "dataclass" in ast.unparse(d) and "frozen=True" not in ast.unparse(d)
    ]


def is_plain(node: ast.stmt) -> bool:
    """Imports, definitions, constants, docstrings, and imports for type checkers."""
    plain = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.AsyncFunctionDef)
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        return "TYPE_CHECKING" in test or "__name__" in test
    return isinstance(node, plain) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def duplicates(files: list[Path]) -> list[str]:
    """Blocks of 8 equal lines of code in two places."""
    seen: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in files:
        lines = [(k + 1, line.strip()) for k, line in enumerate(path.read_text().splitlines())]
        code = [
            (k, line) for k, line in lines if line.strip("()[]{},: ") and not line.startswith(("#", "import ", "from "))
        ]
        for at in range(len(code) - BLOCK_LINES + 1):
            block = tuple(line for _, line in code[at : at + BLOCK_LINES])
            seen[block].append(f"{path.relative_to(ROOT)}:{code[at][0]}")
    return [f"duplicated block: {' and '.join(places)}" for places in seen.values() if len(places) > 1]


if __name__ == "__main__":
    main()
