"""Errors with a message, a place and a remedy, and the report of an error that ends a verb or a job."""

import ast
import pickle
from pathlib import Path

import pytest

import pesto
from pesto.core.errors import Exit, InputError, MismatchError, PestoError, UsageError, describe_error


def test_an_error_has_parts_and_shows_one_line() -> None:
    """A dash in the message or in the name of a file is no border."""
    error = InputError.build("a key - b - is unknown", where="step - 2.json", remedy="leave it out - or spell it")
    assert (error.message, error.where, error.remedy) == (
        "a key - b - is unknown", "step - 2.json", "leave it out - or spell it",
    )  # fmt: skip
    assert str(error) == "step - 2.json: a key - b - is unknown - leave it out - or spell it"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (str(again), again.where, again.remedy) == (str(error), error.where, error.remedy)
    report = describe_error(error, None)
    assert report.text == str(error) and report.as_object() == {
        "error": "step - 2.json: a key - b - is unknown",
        "message": "a key - b - is unknown",
        "where": "step - 2.json",
        "remedy": "leave it out - or spell it",
        "exit_code": 3,
    }


def test_parts_that_are_unknown_are_left_out() -> None:
    assert str(InputError("it is damaged")) == "it is damaged"
    report = describe_error(InputError("it is damaged"), None)
    assert (report.as_object()["where"], report.as_object()["remedy"]) == (None, None)


def test_an_error_of_a_library_below_keeps_its_remedy() -> None:
    """Its text has the remedy after the last dash."""
    error = InputError.of(ValueError("$.k: no number - give one"), where="a.json")
    assert (error.where, error.message, error.remedy) == ("a.json", "$.k: no number", "give one")
    outer = UsageError.of(error, where="--plan")
    assert (outer.where, outer.message, outer.remedy) == ("--plan", "a.json: $.k: no number", "give one")


def test_errors_of_all_kinds_are_reported() -> None:
    found = describe_error(UsageError.build("a - b is wrong", remedy="leave it out"), None)
    assert (found.error, found.remedy, found.exit_code) == ("a - b is wrong", "leave it out", Exit.USAGE)
    assert describe_error(KeyboardInterrupt(), None).remedy == ""
    assert describe_error(KeyboardInterrupt(), Exit.TERMINATED).exit_code == 143
    assert describe_error(ZeroDivisionError("x"), Exit.INTERRUPTED).exit_code == Exit.BUG


@pytest.mark.parametrize("chained", [True, False])
def test_an_error_that_comes_of_an_interruption_is_one(chained) -> None:
    """As where numpy is struck within a comparison: with the interruption as its cause, or as its context."""
    with pytest.raises(TypeError) as struck:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interruption:
            if chained:
                raise TypeError("cannot compare") from interruption
            raise TypeError("cannot compare")  # noqa: B904
    assert describe_error(struck.value, Exit.TERMINATED).exit_code == 143


def test_errors_have_the_constructor_that_autograph_asks_for():
    """It makes an error of a traced function anew by its class only where the class has Exception's constructor."""
    for kind in (PestoError, InputError, UsageError, MismatchError):
        assert kind.__init__ is Exception.__init__


def test_no_message_holds_a_remedy() -> None:
    """A remedy is a field: where an error is made, no text of its message has the dash that shows one."""
    root, found = Path(pesto.__file__).parent, list[str]()
    made = {"build", *(kind.__name__ for kind in (PestoError, *PestoError.__subclasses__()))}
    for path in root.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            name = "build" if getattr(call.func, "attr", "") == "build" else getattr(call.func, "id", "")
            texts = [text for arg in call.args[:1] for text in ast.walk(arg) if isinstance(text, ast.Constant)]
            if name in made and any(" - " in str(text.value) for text in texts):
                found.append(f"{path.relative_to(root)}:{call.lineno}")
    assert not found
