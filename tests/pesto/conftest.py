"""What several rooms' tests of the product share."""

import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from pesto.cli.main import main
from pesto.core.errors import Exit
from pesto.planning.solving import interrupt


@pytest.fixture
def signals() -> Iterator[None]:
    """Signals as a verb has them, begun as a shell leaves them; handlers and memory put back afterwards."""
    before = {s: signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    hook = sys.unraisablehook
    interrupt.install()
    yield
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)
    interrupt._SignalState.received, interrupt._SignalState.held, interrupt._SignalState.noted = None, False, False


@pytest.fixture
def pesto(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str | int, str, str]]:
    """(exit code, stdout, stderr) of a command, run in this process."""

    def run(*words: object) -> tuple[str | int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pesto", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or Exit.OK, *capfd.readouterr()

    return run
