"""Where compiled code lies when neither the packages' folders nor the user's own can be written; what is spliced."""

import importlib
import pickletools
import runpy
import sys
from pathlib import Path

import numba
import pytest

from solvers.compiled import kernels


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files, and no folder that is remembered."""
    kernels.private_folder.cache_clear()
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(kernels.tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    kernels.private_folder.cache_clear()


def test_a_folder_of_the_users_own_is_the_same_each_time(temporary):
    folder = kernels.private_folder()
    kernels.private_folder.cache_clear()
    assert kernels.private_folder() == folder and folder.parent == temporary
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("how", ["others may write", "a link"])
def test_code_is_not_loaded_from_where_others_may_write(how, temporary):
    """Somebody was there first: a new folder that nobody knows is taken."""
    first = kernels.private_folder()
    if how == "a link":
        first.rename(temporary / "elsewhere")
        first.symlink_to(temporary / "elsewhere")
    else:
        first.chmod(0o777)
    kernels.private_folder.cache_clear()
    other = kernels.private_folder()
    assert other != first and other.stat().st_mode & 0o777 == 0o700


def test_functions_are_compiled_where_numba_finds_no_folder(temporary, monkeypatch):
    """numba refuses to cache, and is told of the folder."""
    asked, njit, before = [], numba.njit, numba.config.CACHE_DIR

    def refusing(**options):
        def compile_it(function):
            asked.append(numba.config.CACHE_DIR)
            if len(asked) == 1:
                raise RuntimeError("cannot cache function: no locator available")
            return njit(**options)(function)

        return compile_it

    monkeypatch.setattr(numba, "njit", refusing)
    try:
        doubled = kernels.routine(_double)
        assert doubled(21) == 42 and asked[1] == str(kernels.private_folder())
        assert doubled.stats.cache_path.startswith(str(temporary))
    finally:
        numba.config.CACHE_DIR = before


def _double(number):
    return 2 * number


def test_what_is_spliced_is_not_compiled_by_itself(tmp_path):
    """It is a part of its caller; Python may call it, too."""
    lines = ["from solvers.compiled.kernels import kernel, spliced"]
    lines += ["@spliced", "def inner(x):", "    if x < 0:", "        return 0", "    return 2 * x"]
    lines += ["@kernel", "def outer(x):", "    return inner(x) + 1"]
    (tmp_path / "kernels_of_a_test.py").write_text("\n".join(lines))
    found = runpy.run_path(str(tmp_path / "kernels_of_a_test.py"))
    assert (found["outer"](3), found["outer"](-3)) == (7, 1) and not found["inner"].overloads
    assert found["inner"](3) == 6 and len(found["inner"].overloads) == 1


def test_a_cache_that_names_a_class_which_is_gone_is_compiled_again(tmp_path, monkeypatch):
    """As after an upgrade in place that renamed a class of another file."""
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "from solvers.compiled.kernels import routine\n\n@routine\ndef twice(x):\n    return 2 * x\n"
    (tmp_path / "module_of_a_cache.py").write_text(text)
    kernel = importlib.import_module("module_of_a_cache").twice
    assert kernel(3) == 6
    index = Path(kernel._cache._cache_file._index_path)
    version = pickletools.genops(index.read_bytes())
    end = next(position for code, _, position in version if code.name == "STOP") + 1
    index.write_bytes(index.read_bytes()[:end] + b"csolvers.compiled.kernels\nGone\n.")
    del sys.modules["module_of_a_cache"]
    assert importlib.import_module("module_of_a_cache").twice(4) == 8
