"""The face of `solvers`: what it exports, what that loads, and what its values say of themselves."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import solvers
from solvers.instances.plain import fork


def test_the_face_has_these_names() -> None:
    """Written out, so that none comes or goes unnoticed; `dir`, `__all__` and what checkers see are the same."""
    assert dir(solvers) == sorted(solvers.__all__) == [
        "ANSWERED", "Available", "FAILED", "FORBIDDEN", "Footprint", "Limit", "MOST", "Options", "Problem", "Progress",
        "Report", "Result", "Schedule", "Solver", "Status", "UnavailableError", "Violation", "available", "check",
        "program_schedule", "program_text", "relative_gap", "solve",
    ]  # fmt: skip
    imports = [node for node in ast.walk(ast.parse(Path(solvers.__file__).read_text())) if type(node) is ast.ImportFrom]
    seen = {(node.module, alias.asname) for node in imports for alias in node.names if alias.asname}
    assert seen == {(f"solvers.{module}", name) for name, module in solvers._MODULE.items()}
    assert all(getattr(solvers, name) is not None for name in solvers.__all__)


def test_a_misspelt_name_is_an_attribute_error() -> None:
    """As in any module, so that hasattr and completion work."""
    with pytest.raises(AttributeError, match="'solvers' has no attribute 'slove'"):
        _ = solvers.slove


def test_a_name_loads_no_more_than_its_module() -> None:
    """Nothing at first; a problem needs no solver; the table of solvers no vendor."""
    code = "import sys, solvers; print(*sys.modules)"
    code += "".join(f"; solvers.{name}; print(*sys.modules)" for name in ("Problem", "solve"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, values, table = (set(line.split()) for line in done.stdout.splitlines())
    assert not {"numpy", "solvers.api", "solvers.problem"} & first
    assert "solvers.problem" in values and "solvers.api" not in values
    assert "solvers.api" in table and not {"ortools", "highspy", "pulp", "tensorflow", "pesto"} & table


def test_no_option_hides() -> None:
    """No **kwargs, and a type for every parameter; who hears of a solve, and who ends it, is said by name."""
    for name in ("solve", "check", "available"):
        for parameter in inspect.signature(getattr(solvers, name)).parameters.values():
            by_name = parameter.name in ("report", "stop")
            assert parameter.kind is (parameter.KEYWORD_ONLY if by_name else parameter.POSITIONAL_OR_KEYWORD)
            assert parameter.annotation is not inspect.Parameter.empty


def test_a_problem_is_solved_and_checked_through_the_face() -> None:
    """The list scheduler's schedule of a small fork is valid; a schedule that is shifted back is not."""
    problem = fork(4)
    result = solvers.solve(problem, "list", solvers.Options(seconds=1))
    assert result.status in solvers.ANSWERED and result.schedule is not None
    assert solvers.check(problem, result.schedule) == ()
    early = solvers.Schedule(
        **{name: getattr(result.schedule, name) - (name in ("start", "finish")) for name in result.schedule.__slots__}
    )
    assert {found.kind for found in solvers.check(problem, early)} >= {"time"}
    assert "list" in [row.name for row in solvers.available() if not row.why_not]
    with pytest.raises(ValueError, match="did you mean list"):
        solvers.solve(problem, "lists", solvers.Options())
    with pytest.raises(ValueError, match="workers >= 1"):
        solvers.Options(workers=0)


def test_a_solve_needs_no_options() -> None:
    """A problem and a name are enough: the options have defaults, each of them and all together."""
    assert solvers.solve(fork(4), "list").schedule is not None
    assert solvers.solve(fork(4), "list", solvers.Options(seconds=np.float64(1), seed=np.int64(3))).schedule is not None


REFUSED = {
    "seed": (lambda *_: solvers.Options(seed=1.5), TypeError, "seed is 1.5 - give a whole number"),
    "truth": (lambda *_: solvers.Options(seed=True), TypeError, "seed is True - give a whole number"),
    "most": (lambda *_: solvers.Options(seed=2**31), ValueError, "seed is 2147483648 - give 0 to 2147483647"),
    "least": (lambda *_: solvers.Options(seed=-1), ValueError, "seed is -1 - give 0 to 2147483647"),
    "formulation": (lambda *_: solvers.Options(formulation=3), TypeError, "formulation is 3 - give a name"),
    "its own": (
        lambda p, _: solvers.solve(p, "cpsat", solvers.Options(formulation="paper")),
        ValueError,
        "cpsat has a model of its own - give a formulation to a MILP solver such as cbc or highs",
    ),
    "unknown": (
        lambda p, _: solvers.solve(p, "highs", solvers.Options(formulation="papr")),
        ValueError,
        "no formulation is called 'papr' - choose one of tight, paper",
    ),
    "seconds": (lambda *_: solvers.Options(seconds="3"), TypeError, "seconds is '3' - give a number"),
    "gap": (lambda *_: solvers.Options(gap="a"), TypeError, "gap is 'a' - give a number"),
    "nan": (lambda *_: solvers.Options(gap=float("nan")), ValueError, "gap and lower_bound must be >= 0"),
    "workers": (lambda *_: solvers.Options(workers=None), TypeError, "workers is None - give a whole number"),
    "deterministic": (lambda *_: solvers.Options(deterministic=1), TypeError, "is 1 - give True or False"),
    "start": (lambda *_: solvers.Options(start=3), TypeError, "start is 3 - give a solvers.Schedule"),
    "name": (lambda p, _: solvers.solve(p, 3), TypeError, "name is 3 - give one of auto, .*cpsat"),
    "names": (lambda p, _: solvers.solve(p, ["list"]), TypeError, r"name is \['list'\] - give one of"),
    "problem": (lambda *_: solvers.solve("x", "list"), TypeError, "problem is 'x' - give a solvers.Problem"),
    "options": (lambda p, _: solvers.solve(p, "list", 5), TypeError, "options is 5 - give solvers.Options"),
    "report": (lambda p, _: solvers.solve(p, "list", report=5), TypeError, "report is 5 - give a function"),
    "stop": (lambda p, _: solvers.solve(p, "list", stop=True), TypeError, "stop is True - give a threading.Event"),
    "schedule": (lambda p, _: solvers.check(p, 3), TypeError, "schedule is 3 - give a solvers.Schedule"),
    "checked": (lambda _, s: solvers.check(3, s), TypeError, "problem is 3 - give a solvers.Problem"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_of_another_type_is_refused_with_a_remedy(name) -> None:
    """One line with the argument's name, what it is and what to give, before anything runs."""
    problem = fork(4)
    schedule = solvers.solve(problem, "list").schedule
    call, kind, says = REFUSED[name]
    with pytest.raises(kind, match=says) as caught:
        call(problem, schedule)
    assert "\n" not in str(caught.value)


def test_values_say_in_one_line_what_they_are() -> None:
    """No array, no line break, at most 120 columns."""
    problem = fork(4)
    result = solvers.solve(problem, "list", solvers.Options(seconds=1))
    ended = f"makespan {result.schedule.makespan}"
    counts = f"{problem.tasks} tasks on {problem.devices} devices at {problem.locations} locations"
    assert repr(problem).startswith(f"Problem({counts}, {problem.edges} edges, ")
    assert repr(result.schedule).startswith(f"Schedule({problem.tasks} tasks, {ended} ticks, ")
    assert repr(result).startswith(f"Result({result.status} by list") and ended in repr(result)
    failed = solvers.Result(
        status=solvers.Status.CRASHED, schedule=None, lower_bound=2**61, seconds=1e5, solver="cpsat-windows",
        version="9.15.6755.dev20260101", detail="\x1b[2J\n" * 99,
    )  # fmt: skip
    for value in (problem, result, result.schedule, failed, solvers.Options(start=result.schedule)):
        text = repr(value)
        assert "array(" not in text and text.isprintable()
        assert len(text) <= 120 or isinstance(value, solvers.Options)
