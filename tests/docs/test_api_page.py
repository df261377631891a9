"""docs/api.md says what the packages export, as their docstrings have it."""

import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def make_api():
    spec = importlib.util.spec_from_file_location("make_api", DOCS / "make_api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_from_the_docstrings_as_they_are(make_api) -> None:
    """Any name, option, default, type or docstring that differs shows; then run `python docs/make_api.py`."""
    assert make_api.made() == (DOCS / "api.md").read_text()


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
    exported = [each for package in ("pesto", "solvers") for each in make_api.exported(package)]
    classes = {each.name: each.node for each in exported if type(each.node).__name__ == "ClassDef"}
    for name, node in classes.items():
        if not name.endswith("Error"):
            assert not [left for left, right in make_api.attributes(node) if not right], name
