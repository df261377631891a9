"""Programs that need TensorFlow, each in a process of its own that is forked from one that has loaded it.

Loading takes seconds, and TensorFlow's devices are set once a process: `run` gives a script or the command line a new
process that has TensorFlow loaded and nothing of it used. One server for each process that tests.
"""

import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path


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


def _job() -> list[str]:
    """In the server: fork for every line of input, and answer it. Returns in the forked process, with its command."""
    for line in sys.stdin:
        command, folder, environment = json.loads(line)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if not child:
                os.chdir(folder)
                os.environ.update(environment)
                nothing = os.open(os.devnull, os.O_RDONLY)
                for descriptor, stream in enumerate((nothing, out.fileno(), err.fileno())):
                    os.dup2(stream, descriptor)
                return command
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for stream in (out, err):
                stream.seek(0)
            print(json.dumps([code, out.read(), err.read()]), flush=True)
    sys.exit()


def _main() -> None:
    from pesto.tf.start import tensorflow

    tensorflow()
    import keras  # noqa: F401  # with all that it loads

    from pesto import api  # noqa: F401
    from pesto.cli.main import main

    sys.argv = command = _job()
    sys.path[0] = str(Path(command[0]).resolve().parent)
    if command[0] == "pesto":
        main()
    else:
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    _main()
