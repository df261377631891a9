"""The one place that first loads TensorFlow, quietly and with reproducible arithmetic."""

import gc
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from typing import Any

from pesto.core.distribution import install_command
from pesto.core.errors import SolverError


def load_tensorflow() -> Any:
    """Return the `tensorflow` module, quiet at its start and with sums in one order, unless the user set the variables.

    Call it before importing anything else below `pesto.tf`: TensorFlow reads the environment once, when it loads.
    With TF_CPP_MIN_LOG_LEVEL set by the user to less than 3, everything TensorFlow says is shown.
    """
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    # Else the first device of the process says for all sessions how many threads an op has, and the sums of two runs
    # differ: a model made eagerly has as many as there are cores, where a session asked for one.
    os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")
    # What a process of ours started has the 3 from it, not from the user.
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") != "3":
        return _import()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with _silence_stderr():
        module = _import()
    module.get_logger().setLevel("ERROR")
    return module


def _import() -> Any:
    """Import TensorFlow and exempt its modules from garbage collection.

    Its import makes several hundred thousand objects that live until the process ends. Every full collection would
    scan them: during the import and the tracing of a large step that is a fifth of the time.
    """
    enabled = gc.isenabled()
    gc.collect()  # what is garbage already must not be exempt
    gc.disable()
    try:
        return importlib.import_module("tensorflow")
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise SolverError.build("reading a program needs TensorFlow", remedy=install_command("tensorflow")) from error
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def onednn_enabled() -> bool:
    """Return True if the environment lets TensorFlow use oneDNN's CPU kernels, which it reads as it loads."""
    return os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1").lower() not in ("0", "false")


@contextmanager
def hide_library_output(*, quiet: bool) -> Iterator[None]:
    """Leave out what libraries write to the descriptor of stderr, and warnings, where `quiet`; prints are shown.

    With TF_CPP_MIN_LOG_LEVEL set by the user everything is shown. Call it before `tensorflow`, which sets that, too.
    """
    if not quiet or ("TF_CPP_MIN_LOG_LEVEL" in os.environ and "tensorflow" not in sys.modules):
        yield
        return
    with _silence_stderr() as descriptor, warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        if descriptor is not None and sys.stderr is sys.__stderr__:
            own = stack.enter_context(os.fdopen(descriptor, "w", buffering=1, closefd=False))
            stack.enter_context(redirect_stderr(own))
        yield


@contextmanager
def _silence_stderr() -> Iterator[int | None]:
    # Its libraries write to the descriptor itself before any logging setting is read.
    try:
        descriptor = os.dup(2)
    except OSError:  # no stderr at all
        yield None
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 2)
    try:
        yield descriptor
    finally:
        os.dup2(descriptor, 2)
        os.close(descriptor)
        os.close(sink)
