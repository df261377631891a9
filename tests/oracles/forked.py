"""Programs that need TensorFlow, each in a process of its own that is forked from one that has loaded it.

Loading takes seconds, and TensorFlow's devices are set once a process: `run` gives a script or the command line a new
process that has TensorFlow loaded, and nothing of it used. One server for each process that tests.
"""

import functools
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO


def run(*command: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`pesto` or a Python script, with arguments, in the folder `cwd`: what it printed, and its exit code.

    `env` is set in its environment, beside what this process has.
    """
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    words = [str(word) for word in command]
    server.stdin.write(json.dumps([words, str(cwd), {**os.environ, **env}]) + "\n")
    server.stdin.flush()
    return subprocess.CompletedProcess(words, *json.loads(server.stdout.readline()))


@functools.cache
def _server() -> subprocess.Popen[str]:
    """It ends with the process that started it, by the end of its input."""
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _serve() -> None:
    """Load, then fork for each line of input and answer with its exit code and what it printed."""
    from pesto.tf.tensorflow_start import load_tensorflow

    load_tensorflow()
    import keras  # noqa: F401  # with all that it loads

    from pesto.verbs.compiling.parts import compile_all

    compile_all()
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            # This context's processes leave TensorFlow without taking it apart, which takes a second.
            child = multiprocessing.get_context("fork").Process(target=_become, args=(*json.loads(line), out, err))
            child.start()
            child.join()
            for stream in (out, err):
                stream.seek(0)
            print(json.dumps([child.exitcode, out.read(), err.read()]), flush=True)


def _become(command: list[str], folder: str, environment: dict[str, str], out: IO[str], err: IO[str]) -> None:
    """Run the command as `python` or `pesto` would."""
    from pesto.cli.main import main

    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    os.chdir(folder)
    os.environ.update(environment)
    sys.argv = command
    sys.path[0] = str(Path(command[0]).resolve().parent)
    if command[0] == "pesto":
        main()
    else:
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    _serve()
