"""Budgets (docs/internals/architecture.md): sizes of rooms and files; names, frozen dataclasses, code at import.

Prints every breach and exits 1 when there is one. What ruff checks (parameters, complexity) is not repeated here.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

import ratchets

FILE_LINES = 600
TEST_FILE_LINES = 800
"""More for tests: modules without packages share nothing but fixtures, so a file keeps its own small builders."""
BODY_LINES = 60
FUNCTION_LINES = 90
BLOCK_LINES = 8
LOOSE = 12
"""Modules at the top of a package."""
FOLDER = 22
"""Modules in any other folder."""
PARTS = ("solver", "program")
"""Parts that modules of sibling folders play alike; any other name belongs to one module of a package."""
BANNED = ("utils", "helpers", "common", "_v2", "_old")
ROOT = Path(__file__).resolve().parent.parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Check every Python file of the project."""
    files = sorted(
        p
        for room in ("pesto", "solvers", "benchmarks", "tests", "examples", "docs", ".ci")
        for p in (ROOT / room).rglob("*.py")
    )
    breaches = [b for path in files for b in of_file(path)]
    breaches += [b for package in ("pesto", "solvers") for b in of_rooms(package, files)]
    breaches += duplicates([p for p in files if p.parts[-2] != "tests" and "tests" not in p.parts])
    breaches += ratchets.breaches()
    print("\n".join(f"{count:>8} {name}" for name, count in ratchets.counts().items()))
    print("\n".join(breaches) or f"budgets: {len(files)} files within bounds")
    sys.exit(1 if breaches else 0)


def of_rooms(package: str, files: list[Path]) -> list[str]:
    """A folder's modules are few, and it says in one sentence what it holds."""
    rooms: dict[Path, list[Path]] = defaultdict(list)
    for path in files:
        if path.relative_to(ROOT).parts[0] == package:
            rooms[path.parent].append(path)
    found = of_names(
        [p for room, paths in rooms.items() for p in paths if ROOT / "pesto/cli/verbs" not in (room, *room.parents)]
    )
    for room, paths in rooms.items():
        where, most = room.relative_to(ROOT), LOOSE if room == ROOT / package else FOLDER
        if len([p for p in paths if p.stem != "__init__" or most == LOOSE]) > most:
            found.append(f"{where}: {len(paths)} modules, its __init__ among them, at most {most}")
        face = room / "__init__.py"
        if face not in paths or not ast.get_docstring(ast.parse(face.read_text())):
            found.append(f"{where}: no __init__.py that says in one sentence what the room holds")
    return found


def of_names(paths: list[Path]) -> list[str]:
    """No two modules of a package share a name, but for parts of siblings; a verb's file is called as the verb is."""
    named: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        named[path.stem].append(path)
    found = []
    for stem, same in named.items():
        siblings = stem in PARTS and len({p.parent.parent for p in same}) == 1
        if len(same) > 1 and not stem.startswith("__") and not siblings:
            found.append(f"one name, {len(same)} modules: {' and '.join(str(p.relative_to(ROOT)) for p in same)}")
    return found


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
    """A body of at most 60 lines, 90 with signature and docstring."""
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
