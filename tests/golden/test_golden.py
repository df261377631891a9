"""The golden results: what the command line makes is to the last bit what it was (README.md says more)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _golden() -> ModuleType:
    """golden.py, which is beside this file and on no path."""
    if "golden" not in sys.modules:
        spec = importlib.util.spec_from_file_location("golden", Path(__file__).parent / "golden.py")
        assert spec is not None and spec.loader is not None
        sys.modules["golden"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["golden"])
    return sys.modules["golden"]


golden = _golden()
CASES = golden.all_cases()
HASHES = golden.known()


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> object:
    """One folder for all cases, so that each graph is imported once."""
    return golden.Workshop(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if case.quick else [pytest.mark.matrix]) for name, case in CASES.items()]
)
def test_the_result_is_as_before(name: str, workshop: object) -> None:
    line = golden.difference(CASES[name], workshop, HASHES)
    assert not line, f"{line}; other versions than then: {golden.other_versions() or 'none'}"


def test_every_hash_has_its_case() -> None:
    assert set(HASHES) == set(CASES)
