"""docs/internals/architecture.md says of every room what the room says of itself, and names only what is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "internals" / "architecture.md").read_text()


def rooms():
    """Every folder of modules below the two packages."""
    found = {p.parent for top in ("pesto", "solvers") for p in (ROOT / top).rglob("*.py")}
    return sorted(str(p.relative_to(ROOT)) for p in found if p.parent != ROOT)


@pytest.mark.parametrize("room", rooms())
def test_a_room_says_the_same_sentence(room):
    """The first line of its `__init__` docstring stands behind its path."""
    sentence = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())).splitlines()[0]
    assert f"- `{room}/` {sentence}\n" in TEXT


def test_every_file_that_is_named_is_there():
    """A path in backquotes that ends in .py or / is one of the project."""
    named = re.findall(r"`((?:pesto|solvers|configs|tests|\.ci)/[\w/.-]*(?:\.py|/))`", TEXT)
    assert len(named) > 60
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_loose_module_is_named():
    """The modules at a package's top, but for `__main__`."""
    for top in ("pesto", "solvers"):
        for path in (ROOT / top).glob("*.py"):
            assert path.stem == "__main__" or f"`{path.name}`" in TEXT or f"`{top}/{path.name}`" in TEXT


def test_every_table_that_a_row_goes_to_is_there():
    """Where a new solver, model, cluster, page or verb has its row: the file defines what the last column names."""
    page = (ROOT / "docs" / "contributing" / "index.md").read_text()
    rows = re.findall(r"\| `([\w/]+/\w+\.py)`, `(\w+)` \|", page)
    assert len(rows) >= 9
    for path, name in rows:
        assert re.search(rf"^(def {name}\(|{name}\b.*=)", (ROOT / path).read_text(), re.M), (path, name)
