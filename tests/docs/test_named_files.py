"""A module that a page names, as a path or with dots, is one that the project has."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("pesto", "solvers", "tests", "benchmarks", "examples", "docs", ".ci")
MODULES = {p.relative_to(ROOT) for top in TOPS for p in (ROOT / top).rglob("*.py")}
PAGES = [p for p in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if p.name != "api.md"]


def stand_for_any(path):
    """`<name>/program.py`, `NAME.py`, `*_agreement.py`: no file of its own."""
    return re.search(r"<|\*|NAME", path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_paths(page):
    """`loop.py` is the end of some path; `solvers/timing/loop.py` is one."""
    tails = {"/".join(path.parts[-k:]) for path in MODULES for k in range(1, len(path.parts) + 1)}
    named = [path for path in re.findall(r"[\w./<>*-]+\.py\b", page.read_text()) if not stand_for_any(path)]
    assert [path for path in named if path.removeprefix("../") not in tails] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_dotted(page):
    """`solvers.timing.loop`, and a name that it defines behind it."""
    missing = []
    for name in re.findall(r"`((?:pesto|solvers|benchmarks)(?:\.\w+)+)", page.read_text()):
        parts = name.split(".")
        depth = max((k for k in range(1, len(parts) + 1) if is_there(parts[:k])), default=1)
        if depth < len(parts) and not re.search(rf"\b{parts[depth]}\b", source(parts[:depth])):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_programs_use_the_face(page):
    """A program on a page imports what docs/reference/api.md shows, or the paragraph before says that it is inside."""
    text, unsaid = page.read_text(), []
    for found in re.finditer(r"```python\n(.*?)```", text, re.S):
        before = text[: found.start()].rstrip().rpartition("\n\n")[2]
        deep = re.findall(r"(?:from|import) ((?:pesto|solvers)\.[\w.]+)", found[1])
        unsaid += [name for name in deep if name != "pesto.tf.sources" and "inside" not in before]
    assert unsaid == []


def is_there(parts):
    """Whether a dotted name is a module or a room."""
    return ROOT.joinpath(*parts).is_dir() or Path(*parts).with_suffix(".py") in MODULES


def source(parts):
    """The text of a module, or of a room's `__init__`."""
    room = ROOT.joinpath(*parts)
    return (room / "__init__.py" if room.is_dir() else room.with_suffix(".py")).read_text()
