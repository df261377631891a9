"""docs/reference/api.md says what the packages export, as their docstrings have it."""

import ast
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLAIN = {
    "Any", "Bools", "Callable", "Floats", "Ints", "Iterator", "bool", "bytes", "dict", "float", "int", "list", "object",
    "str", "tuple",
}  # fmt: skip
"""Types that need no page: Python's own, and arrays of them."""


@pytest.fixture(scope="module")
def make_api():
    spec = importlib.util.spec_from_file_location("make_api", DOCS / "make_api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_from_the_docstrings_as_they_are(make_api) -> None:
    """Any name, option, default, type or docstring that differs shows; then run `python docs/make_api.py`."""
    assert make_api.made() == (DOCS / "reference" / "api.md").read_text()


@pytest.mark.parametrize("package", ["pesto", "solvers"])
def test_the_page_has_every_name_and_what_python_itself_says_of_it(make_api, package) -> None:
    """The page is read from sources; the running functions have the same parameters, defaults and first lines."""
    face = importlib.import_module(package)
    found = {each.name.partition(".")[2]: each for each in make_api.exported(package)}
    assert sorted(found) == sorted(face.__all__)
    for name in face.__all__:
        value, page = getattr(face, name), found[name]
        assert page.said, f"{name} has no docstring"
        if inspect.isfunction(value):
            assert page.said == inspect.getdoc(value)
            shown = make_api.signature(page.node)
            for parameter in inspect.signature(value).parameters.values():
                default = parameter.default
                assert parameter.name in shown
                quoted = f'"{default}"' if isinstance(default, str) else f"{default}"
                assert default is inspect.Parameter.empty or f"= {quoted}" in shown


def test_every_attribute_of_an_exported_value_is_explained(make_api) -> None:
    """Which quantity, and in which unit: a table with empty cells explains nothing."""
    for name, node in classes(make_api).items():
        assert not [left for left, right in make_api.attributes(node) if not right], name


def test_what_an_attribute_holds_is_on_the_page(make_api) -> None:
    """A type that the page does not show explains nothing, either; what is for the inside alone says so."""
    shown, unknown = set(re.findall(r"^### .*\b(\w+)$", (DOCS / "reference" / "api.md").read_text(), re.M)), set()
    for name, node in classes(make_api).items():
        kinds = [
            make_api.plain(item.annotation) if isinstance(item, ast.AnnAssign) else item.returns
            for item, said in declared(node)
            if not said.startswith(make_api.INSIDE)
        ]
        named = {n.id for kind in kinds if kind for n in ast.walk(kind) if isinstance(n, ast.Name)}
        unknown |= {(name, kind) for kind in named - shown - PLAIN}
    assert unknown == set()


def test_a_constant_that_the_page_names_is_on_it(make_api) -> None:
    """Or its value is said in its place."""
    page = (DOCS / "reference" / "api.md").read_text()
    named = set(re.findall(r"\b[A-Z][A-Z_]{3,}\b", page))
    texts = [path.read_text() for package in ("pesto", "solvers") for path in (DOCS.parent / package).rglob("*.py")]
    assigned = re.compile(rf"^(?:{'|'.join(named)})\b", re.M)  # parsing all files takes seconds
    constants = {
        make_api.name_of(node)
        for text in texts
        if assigned.search(text)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
    }
    assert {name for name in named & constants if not re.search(rf"^### .*\b{name}$|`{name} = ", page, re.M)} == set()


def test_an_attributes_docstring_is_a_phrase() -> None:
    """More than its shape, its type, or the name of what has the same: words that stand for themselves."""
    short = []
    for path in [path for package in ("pesto", "solvers") for path in (DOCS.parent / package).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                said = [text for item, text in declared(node) if text and isinstance(item, ast.AnnAssign)]
                words = [re.findall(r"\w+", re.sub(r"\[[^\]]*\]|`[^`]*`", "", text)) for text in said]
                short += [(path.name, text) for text, each in zip(said, words, strict=True) if len(each) < 2]
    assert short == []


def classes(make_api) -> dict[str, ast.ClassDef]:
    """The classes on the page, but for errors."""
    found = [each for package in ("pesto", "solvers") for each in [*make_api.exported(package), *make_api.met(package)]]
    return {e.name: e.node for e in found if isinstance(e.node, ast.ClassDef) and not e.name.endswith("Error")}


def declared(node: ast.ClassDef) -> list[tuple[ast.AnnAssign | ast.FunctionDef, str]]:
    """The public attributes and methods of a class, each with its docstring."""
    after = [*node.body[1:], None]
    found = []
    for item, below in zip(node.body, after, strict=True):
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
            found.append((item, ast.get_docstring(item) or ""))
        elif isinstance(item, ast.AnnAssign):
            is_said = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            found.append((item, below.value.value if is_said else ""))
    return found
