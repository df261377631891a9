"""A signal that comes when the plan is being written must not lose it."""

import importlib
import json
import os
import signal
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numba
import pytest
from numba.core.registry import cpu_target

from pesto.cli.main import main
from pesto.cli.verbs import solve
from pesto.planning.solving import interrupt
from pesto.planning.solving.exact import SolverThread
from pesto.verbs import plan_step
from solvers import Limit, Options, api
from solvers.instances.plain import chain

GRAPH = {
    "format": "pesto-graph", "format_version": 1, "source": "two ops",
    "ops": [{"name": n, "outputs": [8], "time_s": {"gpu": 1e-3, "cpu": 1e-3}} for n in "ab"],
}  # fmt: skip


@pytest.mark.parametrize(("module", "step"), [(plan_step, "save"), (solve, "to_json")], ids=["save", "to_json"])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_while_writing(
    module: ModuleType,
    step: str,
    sent: int,
    code: int,
    signals: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd,
) -> None:
    """Twice, just before the plan is saved or the result printed: both still happen, and the exit code tells."""
    path = tmp_path / "g.json"
    path.write_text(json.dumps(GRAPH))
    real = getattr(module, step)

    def interrupted(*arguments: object) -> object:
        os.kill(os.getpid(), sent)
        os.kill(os.getpid(), sent)
        return real(*arguments)

    monkeypatch.setattr(module, step, interrupted)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pesto", "solve", "-q", "--json", "--graph", "g.json", "--time-limit", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert json.loads(capfd.readouterr().out)["plan"] == "plan.json"
    assert (tmp_path / "plan.json").exists()


def test_a_closed_terminal_changes_nothing_under_nohup(signals: None) -> None:
    """Who ignores SIGHUP from the start goes on ignoring it; else it interrupts, as SIGTERM does."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt.install()
    os.kill(os.getpid(), signal.SIGHUP)
    assert interrupt.received() is None
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    interrupt.install()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGHUP)
    assert interrupt.received() == 143


def test_a_signal_between_two_solves_ends_the_second_at_once(signals: None) -> None:
    """While one solve's plan is written a signal is only noted; what begins next hears of it."""
    interrupt.hold()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupt.release()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    interrupt.hold()
    interrupt.release()  # what interrupted once does not do so again


class _Held:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("lost", ["finaliser", "weak reference"])
def test_a_signal_that_python_ignores_comes_again(lost: str, signals: None, capsys) -> None:
    """Raised where Python only prints it: it is raised again outside, and nothing is printed."""
    thing = _Held() if lost == "finaliser" else (lambda: None)
    watched = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM)) if callable(thing) else None
    with pytest.raises(KeyboardInterrupt):
        del thing
        for _ in range(6000):
            time.sleep(0.01)
    assert interrupt.received() == 143
    assert not capsys.readouterr().err
    del watched


def test_a_signal_while_a_function_is_compiled_comes_after_that(signals: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What numba loads once in a process is loaded to its end: broken off, all that it compiles later would fail."""
    load, loads = cpu_target.target_context.refresh, []

    def struck() -> None:
        if not loads:
            os.kill(os.getpid(), signal.SIGTERM)
        loads.append("begun")
        load()
        loads.append("ended")

    monkeypatch.setattr(cpu_target.target_context, "refresh", struck)
    function = numba.njit(lambda x: x + 1)
    with pytest.raises(KeyboardInterrupt):
        function(1)
        for _ in range(6000):
            time.sleep(0.01)
    assert interrupt.received() == 143
    assert loads[:2] == ["begun", "ended"]
    assert function(1) == 2


STRUCK = """
import os, signal
os.kill(os.getpid(), signal.SIGTERM)
done = True
"""


@pytest.fixture
def struck_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The name of a module, in a folder, that is sent SIGTERM by itself while it is imported."""

    def make(folder: str) -> str:
        name = f"struck_in_{folder.replace('-', '_')}"
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(STRUCK)
        monkeypatch.syspath_prepend(tmp_path / folder)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return make


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_a_signal_while_a_package_is_imported_comes_after_that(folder: str, signals: None, struck_package) -> None:
    """Also a package of pure Python that it imports: the module is whole before the interruption."""
    name = struck_package(folder)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(name)
        for _ in range(6000):
            time.sleep(0.01)
    assert interrupt.received() == 143
    assert sys.modules[name].done


def test_a_module_of_the_user_is_interrupted_at_once(signals: None, struck_package) -> None:
    """It may run for as long as it likes."""
    name = struck_package("mine")
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(name)
    assert name not in sys.modules


def test_an_import_that_does_not_end_is_interrupted_in_the_end(
    signals: None, struck_package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupt, "DELAY_S", 0.0)
    name = struck_package("site-packages")
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(name)
    assert name not in sys.modules


def test_other_ignored_errors_are_told_as_before(signals: None, capsys) -> None:
    """Only interruptions come again."""

    class Broken:
        def __del__(self) -> None:
            raise ValueError("not a signal")

    broken = Broken()
    del broken
    assert "not a signal" in capsys.readouterr().err


def test_a_signal_behind_the_last_answer_of_a_solver_is_not_lost() -> None:
    """It came while that was taken in: the solver had ended by itself, so its result tells of no interruption."""
    problem = chain(3)
    answer = api.solve(problem, "list")
    with SolverThread(problem, "list", Options(), by=lambda *_, **__: answer) as running:
        assert not list(running.schedules())  # it has ended
        raise KeyboardInterrupt
    assert running.interrupted and running.result().limit is not Limit.INTERRUPT
    with SolverThread(problem, "list", Options(), by=lambda *_, **__: answer) as running:
        assert not list(running.schedules())
    assert not running.interrupted
