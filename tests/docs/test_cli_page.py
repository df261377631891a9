"""docs/reference/cli.md says what the commands are, as click knows them."""

import importlib.util
from pathlib import Path

import pytest

from pesto.cli.main import VERBS
from pesto.core.errors import Exit

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def make_cli():
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_from_the_program(make_cli) -> None:
    """Any verb, option, default or help text that differs shows; then run `python docs/make_cli.py`."""
    assert make_cli.render() == (DOCS / "reference" / "cli.md").read_text()


def test_the_page_has_every_verb_and_exit_code(make_cli) -> None:
    """Each verb has a section, and each exit code a meaning."""
    page = make_cli.render()
    assert [verb for verb in VERBS if f"\n## pesto {verb}\n" not in page] == []
    assert [code for code in Exit if f"\n| {code.value} | " not in page or f"\n| {code.value} |  |" in page] == []
