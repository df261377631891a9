"""Counts that may only fall, or only rise: size, private functions called once, import depth, docstrings, comments."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AT_MOST = {
    "product lines": 102165,
    "product files": 503,
    "private functions that are used once, in per mille of all functions": 120,
    "import depth": 24,
    "rooms": 17,
    "arrows between rooms": 69,
    "docstrings that open with What, Whether or Of": 1,
    "class names that stand twice": 0,
}
"""Ceilings: lower one when its count has fallen, never raise it without a reason in the commit."""
AT_LEAST = {
    "comment lines in solvers/search, in per mille": 34,
    "comment lines in solvers/bounds, in per mille": 30,
    "comment lines in pesto/tf, in per mille": 25,
}
"""Floors: raise one when its count has risen."""
LIBRARIES = ("labels", "pipelining")
"""Rooms of solvers that are libraries of their own."""
_VAGUE = re.compile(r"(What|Whether|Of)\b")


def breaches() -> list[str]:
    """Return a line for each count beyond its ceiling or below its floor."""
    now = counts()
    over = [
        f"{name}: {now[name]}, at most {most} (.ci/ratchets.py)" for name, most in AT_MOST.items() if now[name] > most
    ]
    under = [
        f"{name}: {now[name]}, at least {least} (.ci/ratchets.py)"
        for name, least in AT_LEAST.items()
        if now[name] < least
    ]
    return over + under


@cache
def counts() -> dict[str, int]:
    """Measure the product: every count of the two tables, by its name."""
    trees = {path: ast.parse(path.read_text()) for room in ("pesto", "solvers") for path in (ROOT / room).rglob("*.py")}
    functions, once = _functions_used_once(trees.values())
    arrows = {(_room(a), _room(b)) for a, b in _module_imports(trees) if _room(a) != _room(b)}
    classes = Counter(n.name for tree in trees.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef))
    return {
        "product lines": sum(len(path.read_text().splitlines()) for path in trees),
        "product files": len(trees),
        "private functions that are used once, in per mille of all functions": 1000 * once // functions,
        "import depth": _import_depth(_module_imports(trees)),
        "rooms": len({_room(_dotted(path)) for path in trees}),
        "arrows between rooms": len(arrows),
        "docstrings that open with What, Whether or Of": sum(map(_vague_docstrings, trees.values())),
        "class names that stand twice": sum(count > 1 for count in classes.values()),
        **{
            f"comment lines in {room}, in per mille": _comments_per_mille(ROOT / room)
            for room in ("solvers/search", "solvers/bounds", "pesto/tf")
        },
    }


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _room(module: str) -> str:
    """Return the wing of pesto, or the library of solvers, that a module belongs to; a face is a room of its own."""
    package, _, rest = module.partition(".")
    first = rest.partition(".")[0]
    return f"{package}.{first}" if package == "pesto" or first in LIBRARIES else package


def _functions_used_once(trees: Iterable[ast.Module]) -> tuple[int, int]:
    """Return the number of functions, and of private ones whose name is read once in their module."""
    functions = once = 0
    for tree in trees:
        nodes = list(ast.walk(tree))
        names = Counter(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        names.update(n.attr for n in nodes if isinstance(n, ast.Attribute))
        defined = [n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        functions += len(defined)
        once += sum(name.startswith("_") and not name.startswith("__") and names[name] == 1 for name in defined)
    return functions, once


def _module_imports(trees: dict[Path, ast.Module]) -> set[tuple[str, str]]:
    """Return (importer, imported) for imports at module level, those for type checkers left out."""
    modules = {_dotted(path) for path in trees}
    pairs = set()
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                wanted = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = {name if name in modules else node.module for name in wanted}
            else:
                targets = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            pairs |= {(_dotted(path), target) for target in targets if target in modules}
    return pairs


def _import_depth(pairs: set[tuple[str, str]]) -> int:
    """Return the number of modules on the longest chain of imports."""
    imports = defaultdict(set)
    for importer, imported in pairs:
        imports[importer].add(imported)

    @cache
    def depth(module: str) -> int:
        return 1 + max((depth(other) for other in imports[module] if other != module), default=0)

    return max(depth(module) for module in list(imports))


def _vague_docstrings(tree: ast.Module) -> int:
    texts = (n.value.value for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
    return sum(isinstance(text, str) and bool(_VAGUE.match(text)) for text in texts)


def _comments_per_mille(room: Path) -> int:
    lines = [line.lstrip() for path in room.rglob("*.py") for line in path.read_text().splitlines()]
    return 1000 * sum(line.startswith("#") for line in lines) // len(lines)


if __name__ == "__main__":
    for name, count in counts().items():
        print(f"{count:>8} {name}")
