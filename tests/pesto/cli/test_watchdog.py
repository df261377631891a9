"""Signals end every verb, also one whose main thread is stuck in native code, and none that ends by itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from process_families import descendants, gone

from pesto.cli.main import VERBS

STUCK = '''
import ctypes, os, pathlib, signal, subprocess, sys, tempfile, threading, time
import click
from pesto.cli import main as cli
from pesto.planning.solving import interrupt

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where nohup began the tests

def stuck():
    """Lock a mutex twice: a native call that no signal ends, without the interpreter's lock."""
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    libc.pthread_mutex_lock(mutex)
    threading.Timer(1, print, ["begun"], {"flush": True}).start()  # by then this thread is in the call
    libc.pthread_mutex_lock(mutex)

def with_child():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10000)"])
    stuck()

def saving():
    """End in order, for longer than a stuck call has."""
    try:
        print("begun", flush=True)
        time.sleep(10000)
    except KeyboardInterrupt:
        until = time.monotonic() + 4
        while time.monotonic() < until:
            time.sleep(0.05)
        print("saved", flush=True)
        raise

def forked():
    """A child that is struck by the signal is no reason to end its parent."""
    child = os.fork()
    if not child:
        try:
            stuck()
        finally:
            os._exit(0)
    time.sleep(3)
    os.kill(child, signal.SIGTERM)
    time.sleep(4)
    os.kill(child, signal.SIGKILL)
    print("outlived", flush=True)

PACKAGE = """
import time
print("begun", flush=True)
until = time.monotonic() + {seconds}
while time.monotonic() < until:
    time.sleep(0.01)
"""

def importing(seconds=10000):
    """Import a package that takes long, with nothing in hand."""
    interrupt.DELAY_S = 10000.0
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder, "site-packages")
        place.mkdir()
        (place / "takes_long.py").write_text(PACKAGE.format(seconds=seconds))
        sys.path.insert(0, str(place))
        import takes_long

def importing_with_a_plan():
    """With a plan in hand, which is written once a package is imported."""
    interrupt.keep()
    try:
        importing(6)
        time.sleep(10000)
    except KeyboardInterrupt:
        print("saved", flush=True)
        raise

def others():
    """Who handles signals while a verb runs is not disturbed."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    stuck()

verb, how = sys.argv[1:3]
real = cli.pesto.get_command(None, verb)
assert real is not None
cli.pesto.get_command = lambda ctx, name: click.Command(name, callback=globals()[how])
sys.argv = ["pesto", verb]
cli.main()
'''
LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")


def begin(verb: str, how: str) -> subprocess.Popen[str]:
    """The verb, once it does what its stub does."""
    run = subprocess.Popen(
        [sys.executable, "-c", STUCK, verb, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    return run


RUN_HERE = {"run": (), "solve": pytest.mark.kill, "serve": pytest.mark.kill, "pipeline": pytest.mark.kill}
"""Verbs of the default run and of the gate: one path of the program ends them all."""


@pytest.mark.parametrize("verb", [pytest.param(verb, marks=RUN_HERE.get(verb, pytest.mark.night)) for verb in VERBS])
def test_a_verb_that_is_stuck_in_native_code_ends_by_sigterm(verb: str) -> None:
    """With 143; without the watchdog the call would last for ever."""
    run = begin(verb, "stuck")
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=600)
    assert run.returncode == 143


@LINUX
@pytest.mark.parametrize(
    ("sent", "code"), [pytest.param(signal.SIGHUP, 143, marks=pytest.mark.kill), (signal.SIGTERM, 143)]
)
def test_no_process_stays_behind(sent: int, code: int) -> None:
    """What the verb has begun ends with it."""
    run = begin("run", "with_child")
    below = descendants(run.pid)
    run.send_signal(sent)
    run.communicate(timeout=600)
    assert run.returncode == code and below and gone(*below)


@pytest.mark.kill
def test_ctrl_c_twice_ends_a_stuck_verb() -> None:
    """Once may be a slip: the second says that it is meant."""
    run = begin("run", "stuck")
    run.send_signal(signal.SIGINT)
    time.sleep(4)
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=600)
    assert run.returncode == 130


@pytest.mark.kill
def test_a_verb_that_ends_in_order_is_left_alone() -> None:
    """However long it saves."""
    run = begin("solve", "saving")
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate(timeout=600)
    assert run.returncode == 143 and out == "saved\n"


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.kill)]
)
def test_a_signal_ends_a_verb_that_imports_a_package(sent: int, code: int) -> None:
    """With nothing in hand there is nothing to wait for, however long the package takes."""
    run = begin("solve", "importing")
    run.send_signal(sent)
    _, said = run.communicate(timeout=600)
    assert run.returncode == code and "pesto: interrupted" in said


@pytest.mark.kill
def test_an_import_ends_before_a_plan_is_saved() -> None:
    """What it would leave broken may be needed to write the plan."""
    run = begin("solve", "importing_with_a_plan")
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate(timeout=600)
    assert run.returncode == 143 and out == "saved\n"


@pytest.mark.kill
def test_a_signal_of_a_forked_process_is_its_own() -> None:
    """It has the same descriptor, and must not speak for its parent."""
    run = subprocess.Popen([sys.executable, "-c", STUCK, "run", "forked"], stdout=subprocess.PIPE, text=True)
    out, _ = run.communicate(timeout=600)
    assert run.returncode == 0 and out == "begun\noutlived\n"


@pytest.mark.kill
def test_signals_that_others_handle_are_theirs() -> None:
    """As the server's, which ends in order."""
    run = begin("serve", "others")
    run.send_signal(signal.SIGTERM)
    time.sleep(4)
    assert run.poll() is None
    run.kill()
    run.communicate(timeout=600)


WAITS = """
import tensorflow as tf
v1 = tf.compat.v1

def step():
    with tf.Graph().as_default() as graph:
        queue = v1.RandomShuffleQueue(8, 4, [tf.float32], [[6]])  # 4 must stay in it, and no more are put in
        with tf.control_dependencies([queue.enqueue_many(tf.ones([4, 6])), tf.print("filled")]):
            x = queue.dequeue_many(4)
        w = v1.get_variable("w", [6, 3], use_resource=True)
        loss = tf.reduce_mean(tf.tanh(x @ w))
        return graph, [v1.train.GradientDescentOptimizer(0.1).minimize(loss), loss]
"""


@pytest.mark.kill
def test_a_step_that_waits_for_ever_ends_by_sigterm(tmp_path: Path) -> None:
    """In TensorFlow's own session, where nothing could be seen beforehand."""
    (tmp_path / "waits.py").write_text(WAITS)
    command = [sys.executable, "-m", "pesto", "profile", "--function", "waits:step", "-o", "p.json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    assert any("filled" in line for line in run.stderr)  # by the session, which then waits
    time.sleep(1)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=600)
    assert run.returncode == 143 and not (tmp_path / "p.json").exists()
