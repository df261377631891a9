"""pesto solve --server is pesto solve at home: the same bytes, lines and exit codes; a killed server is waited for."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import pesto

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[4]
TOWERS = ROOT / "tests" / "data" / "two-towers.graph.json"
MODULE = """
def step():
    import tensorflow as tf
    return tf.function(lambda a, b: a @ b), *[tf.TensorSpec((64, 64))] * 2
"""


PATIENT = """
from pesto.cli.main import main
from pesto.service.serve import scheduler
scheduler.PATIENCE_S = 600.0  # a busy machine needs some of them
main()
"""


def words(*given):
    return [sys.executable, "-m", "pesto", *map(str, given)]


class Server:
    """`pesto serve` in a process of its own, on one port."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url, self._folder = f"http://127.0.0.1:{self.port}", folder
        self.start()

    def start(self):
        given = ("serve", "--data", self._folder, "--port", self.port, "-q")
        self.process = subprocess.Popen([sys.executable, "-c", PATIENT, *map(str, given)])
        with pesto.Client(self.url, "", patience_s=0) as client:
            while True:
                assert self.process.poll() is None
                try:
                    client.jobs()
                    return
                except pesto.FileError:
                    time.sleep(0.05)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait()


@contextmanager
def serving(folder):
    server = Server(folder)
    try:
        yield server
    finally:
        server.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("service") / "data") as found:
        yield found


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "step.json").write_bytes(TOWERS.read_bytes())
    (tmp_path / "mine.toml").write_bytes((ROOT / "configs/clusters/v100x4.toml").read_bytes())
    (tmp_path / "mine.csv").write_text("name,seconds\nleft/1,0.0001\n")
    (tmp_path / "mymodel.py").write_text(MODULE)
    return tmp_path


def solved(folder, *given):
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return subprocess.run(
        words("solve", *given), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "step",
    [
        ("--graph", "step.json", "--cluster", "mine.toml", "--costs", "mine.csv", "--start", "older.json"),
        ("--function", "mymodel:step"),
    ],
)
def test_a_plan_of_the_service_and_one_of_home_are_the_same_bytes(server, folder, step):
    quick = ("--cluster", "mine.toml", "--no-search", "--time-limit", 0, "-q")
    older = solved(folder, *step[:2], *quick, "-o", "older.json")
    assert older.returncode == 0, older.stderr
    step = (*step, "--deterministic", "--time-limit", 600, "-q")
    (folder / "sub").mkdir()
    home = solved(folder, *step, "-o", "sub/home.json", "--report", "home.html", "--part", "home.part")
    there = solved(
        folder, *step, "-o", "sub/there.json", "--report", "there.html", "--part", "there.part", "--server", server.url
    )
    assert (home.returncode, there.returncode) == (0, 0), home.stderr + there.stderr
    assert (folder / "sub/there.json").read_bytes() == (folder / "sub/home.json").read_bytes()
    assert (folder / "there.part").read_bytes() == (folder / "home.part").read_bytes()
    assert b"<html" in (folder / "there.html").read_bytes()[:200]
    told = [done.stdout.replace("there.", "home.").split("\nseconds ") for done in (home, there)]
    assert told[0][0].split("CPU seconds")[0] == told[1][0].split("CPU seconds")[0]
    assert told[0][1].split("verified")[1] == told[1][1].split("verified")[1]


def test_a_solve_with_cuts_is_that_of_home(server, folder):
    """The plan, the table of kinds with the file as it is called here, and code refused."""
    (folder / "sub").mkdir()
    asked = ("--split", 2, "--deterministic", "--time-limit", 0, "-q")
    step = ("--model", "rnnlm", "--variant", "tiny")
    home = solved(folder, *step, *asked, "-o", "sub/home.json")
    there = solved(folder, *step, *asked, "-o", "sub/there.json", "--server", server.url)
    assert (home.returncode, there.returncode) == (0, 0), home.stderr + there.stderr
    assert pesto.load_plan(folder / "sub/there.json").names == pesto.load_plan(folder / "sub/home.json").names
    told = [done.stdout.replace("there.", "home.").split("\nverified")[1] for done in (home, there)]
    assert told[0].split("found in s")[0].split() == told[1].split("found in s")[0].split()
    code = solved(folder, "--function", "mymodel:step", *asked, "--server", server.url)
    assert code.returncode == 2 and "no shapes to cut by" in code.stderr


def test_a_split_that_is_chosen_is_that_of_home(server, folder):
    """The same bytes from the service, by its verb and by another fetch; its job has the split's seconds."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        weight = tf.compat.v1.get_variable("w", (4096, 4096))
        tf.matmul(tf.compat.v1.placeholder(tf.float32, (4096, 4096)), weight, name="y")
    (folder / "product.pb").write_bytes(graph.as_graph_def().SerializeToString())
    step = ("--graph", "product.pb", "--fetch", "y", "--cluster", "v100x4", "--split", 4)
    asked = (*step, "--deterministic", "--time-limit", 0, "-q", "--json")
    home, there = solved(folder, *asked, "-o", "home.json"), solved(folder, *asked, "--server", server.url)
    assert (home.returncode, there.returncode) == (0, 0), home.stderr + there.stderr
    assert (folder / "plan.json").read_bytes() == (folder / "home.json").read_bytes()
    said = [json.loads(done.stdout) for done in (home, there)]
    assert [one["chosen_kind"] for one in said] == ["data-parallel", "data-parallel"]  # cut by rows, as its input is
    assert [one["split"] for one in said] == ["home.json", "plan.json"]
    with pesto.Client(server.url) as client:
        assert client.job(said[1]["job"]).best_s == said[0]["makespan_s"]
    fetched = words("jobs", "plan", said[1]["job"], "--server", server.url, "-o", folder / "fetched.json")
    subprocess.run(fetched, check=True, capture_output=True)
    assert (folder / "fetched.json").read_bytes() == (folder / "home.json").read_bytes()


def test_refusals_are_those_of_home(server, folder):
    (folder / "odd.json").write_text("{")
    asked = ("--graph", "odd.json", "--json", "-q", "--time-limit", 1)
    home, there = solved(folder, *asked), solved(folder, *asked, "--server", server.url)
    assert home.returncode == there.returncode == 3
    assert json.loads(home.stdout) == json.loads(there.stdout)
    assert not (folder / "plan.json").exists()


def begun(folder, server, *given):
    """A solve that goes on until it is told otherwise, once its job runs."""
    step = ("--graph", "step.json", "--cluster", "mine.toml", "--gap", 0, "-o", "there.json", *given)
    asked = words("solve", *step, "--server", server.url)
    process = subprocess.Popen(asked, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stderr.readline().split()[1]


@pytest.mark.kill
def test_a_server_that_is_killed_and_begun_anew_is_waited_for(folder):
    """The job is queued again, and its watcher, who has seen nothing of it, ends with its plan."""
    with serving(folder / "data") as server:
        process, name = begun(folder, server)
        with pesto.Client(server.url) as client:
            next(client.events(name))  # it runs
        server.end(signal.SIGKILL)
        server.start()
        out, err = process.communicate()
        assert process.returncode == 0, out + err
        with pesto.Client(server.url) as client:
            assert client.plan(name) == (folder / "there.json").read_bytes()
            told = list(client.events(name))
        assert [event.number for event in told] == list(range(1, len(told) + 1))


@pytest.mark.kill
def test_sigterm_while_solving_keeps_the_plan_and_queues_the_job_again(tmp_path):
    with serving(tmp_path / "data") as server, pesto.Client(server.url, patience_s=600.0) as client:
        settings = {"time_limit_s": 3600, "gap": 0}
        source = {"model": "rnnlm", "variant": "tiny"}
        name = client.submit({"kind": "solve", "source": source, "settings": settings})
        assert any(event.kind == "incumbent" for event in client.events(name))
        assert server.end(signal.SIGTERM) == 0
        server.start()
        (tmp_path / "plan.json").write_bytes(client.plan(name))
        client.cancel(name)
        (*_, last) = client.events(name)
        assert (last.kind, client.job(name).state) == ("done", "cancelled")
        assert {event.data.get("attempt") for event in client.events(name) if event.data.get("name") == "queued"} == {1}
    pesto.check(pesto.load_plan(tmp_path / "plan.json"), pesto.load_graph(model="rnnlm", variant="tiny"))
