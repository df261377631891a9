"""pesto jobs against a service on a port: lists, pages, plans, errors, and what Ctrl-C does to a watcher."""

import json
import signal
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_jobs import FakeJobs
from live_service import live_service

import pesto as face
from pesto.cli import remote_solve
from pesto.cli.main import pesto
from pesto.core.errors import FileError, InputError, SolverError, UsageError
from pesto.service.client.clients import Client

SOLVE = {"kind": "solve", "source": {"model": "rnnlm"}}


@pytest.fixture
def live(tmp_path, monkeypatch):
    with live_service(tmp_path / "data") as found:
        monkeypatch.setenv("PESTO_SERVER", found.url)
        yield found


def said(*words, code=0):
    done = CliRunner().invoke(pesto, ["jobs", *words], obj={})
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout


def refused(kind, *words):
    done = CliRunner().invoke(pesto, words, obj={})
    assert isinstance(done.exception, kind), done.exception
    return str(done.exception)


def test_a_job_is_listed_shown_watched_and_fetched(live, tmp_path):
    with Client(live.url) as client:
        name = client.submit(SOLVE | {"label": "talk 3"})
    ended = said("watch", name, "-q")
    assert name in ended and "best          1000.00 ms" in ended
    rows = said("list").splitlines()
    assert rows[0].split() == ["id", "state", "kind", "of", "cluster", "best", "gap", "age", "label"]
    assert rows[1].startswith(f"{name}  done") and rows[1].endswith("talk 3")
    shown = json.loads(said("show", name, "--json"))
    assert json.loads(said("list", "--json"))["jobs"] == [shown | {"request": None}]
    for among in (("--kind", "solve"), ("--search", "TALK"), ("--since", "1h"), ("--model", "rnnlm")):
        assert [job["id"] for job in json.loads(said("list", *among, "--json"))["jobs"]] == [name]
    assert json.loads(said("list", "--kind", "check", "--json"))["jobs"] == []
    assert json.loads(said("list", "--state", "failed", "--json")) == {"jobs": []}
    assert "files         plan.json, report.html" in said("show", name)
    out = tmp_path / "p.json"
    said("plan", name, "-o", str(out))
    assert out.read_bytes() == f"{name}.1".encode()
    assert json.loads(said("watch", name, "-q", "--json"))["state"] == "done"
    assert json.loads(said("cancel", name, "--json")) == {"id": name, "state": "done"}


def test_jobs_are_deleted_once_they_have_ended(live):
    with Client(live.url) as client:
        names = [client.submit(SOLVE) for _ in range(3)]
        for name in names:
            client.wait(name)
    assert said("delete", names[0]) == f"{names[0]}: done; to delete it: pesto jobs delete {names[0]} --purge\n"
    assert said("delete", names[0], names[0], "--purge") == f"{names[0]}: deleted\n"
    assert json.loads(said("delete", *names[1:], "--purge", "--json")) == {
        "jobs": [{"id": name, "state": "done"} for name in names[1:]], "purged": True
    }  # fmt: skip
    assert json.loads(said("list", "--json"))["jobs"] == []
    assert "no job" in refused(UsageError, "jobs", "delete", names[0], "--purge")
    assert "Missing argument" in CliRunner().invoke(pesto, ["jobs", "delete", "--purge"], obj={}).output


@pytest.mark.parametrize(
    ("asked", "file", "line"),
    [
        (SOLVE, "split.json", "split         here.json\n"),
        (SOLVE, "plan.json", "verified      written to here.json\nnext          x\n"),
        (SOLVE | {"kind": "compare"}, "plan.json", "plans         in here.json\n"),
    ],
)
def test_who_watches_is_told_how_to_fetch_a_plan_or_a_split_of_many_kinds(tmp_path, monkeypatch, asked, file, line):
    """The table of all kinds of plans stays, and no file is named that is not here."""
    page = f"step          2.00 ms\n{line}\nkind         step\nsplit 4   2.00 ms\n"
    with live_service(tmp_path / "data", lambda: FakeJobs(files={file: b"{}", "page.txt": page.encode()})) as live:
        monkeypatch.setenv("PESTO_SERVER", live.url)
        with Client(live.url) as client:
            name = client.submit(asked)
        shown = said("watch", name, "-q")
        assert "here.json" not in shown and f"next          pesto jobs plan {name}" in shown
        assert shown.endswith("\nkind         step\nsplit 4   2.00 ms\n")
        said("plan", name, "-o", str(tmp_path / "mine.json"))
        assert (tmp_path / "mine.json").read_bytes() == b"{}"


def test_a_job_that_failed_after_it_had_a_plan_gives_both(tmp_path, monkeypatch):
    """As one does whose first attempt was interrupted by the end of its server, and whose workers died then."""
    page = b"step          2.00 ms\nverified      written to there.json\n"
    files = {"plan.json": b"{}", "page.txt": page}
    ended = {"exit_code": 7, "error": "3 workers died of it", "remedy": "give it less to do", "files": [*files]}
    with live_service(tmp_path / "data", lambda: FakeJobs(files=files)) as live:
        whole = remote_solve.watch
        monkeypatch.setattr(remote_solve, "watch", lambda *job, **how: whole(*job, **how) and ended)
        out = tmp_path / "mine.json"
        step = ("solve", "--model", "rnnlm", "--server", live.url, "-q", "-o", str(out))
        assert refused(SolverError, *step) == "3 workers died of it - give it less to do"
        assert out.read_bytes() == b"{}"


def test_a_plan_to_stay_beside_is_sent(tmp_path):
    """As a file of the job, as the plan to begin from is."""
    towers = str(Path(__file__).parents[2] / "data" / "two-towers.graph.json")
    other, out = tmp_path / "other.json", str(tmp_path / "mine.json")
    here = ["solve", "--graph", towers, "--time-limit", "0", "--solver", "list", "--no-search", "-q", "-o", str(other)]
    assert CliRunner().invoke(pesto, here, obj={}).exit_code == 0
    files = {"plan.json": b"{}", "page.txt": b"step          2.00 ms\nverified      written to there.json\n"}
    with live_service(tmp_path / "data", lambda: FakeJobs(files=files)) as live:
        words = ["solve", "--model", "rnnlm", "--beside", str(other), "--server", live.url, "-q", "-o", out]
        done = CliRunner().invoke(pesto, words, obj={})
        assert done.exit_code == 0, done.output
        with Client(live.url) as client:
            (job,) = client.jobs()
    assert job.reads == {"beside": sha256(other.read_bytes()).hexdigest()}


def test_a_failed_job_ends_its_watcher_with_its_own_error(live):
    with Client(live.url) as client:
        name = client.submit(SOLVE | {"label": "wrong"})
    assert refused(InputError, "jobs", "watch", name, "-q") == "a cycle - break it"
    assert json.loads(said("watch", name, "-q", "--json", code=3))["error"] == "a cycle"
    assert "remedy        break it" in said("show", name)


def test_hostile_labels_stay_text(live):
    with Client(live.url) as client:
        client.submit(SOLVE | {"label": "wait <b>é"})
    assert said("list").endswith("wait <b>é\n")


def test_bad_input(live, tmp_path, monkeypatch):
    assert "no job 'nobody'" in refused(UsageError, "jobs", "show", "nobody")
    assert "is no address" in refused(UsageError, "jobs", "list", "--server", "localhost:1")
    assert "can be seen by others" in refused(UsageError, "jobs", "list", "--token", "pesto_1_secret")
    assert "none" in refused(FileError, "jobs", "list", "--token", str(tmp_path / "none"))
    down = refused(FileError, "jobs", "list", "--server", "http://127.0.0.1:1")
    assert "is pesto serve running there?" in down
    monkeypatch.setenv("PESTO_TOKEN", "x y")
    assert "no token has" in refused(UsageError, "jobs", "list")
    monkeypatch.setenv("PESTO_TOKEN", "unknown")
    said("list")  # who needs no token does not mind one
    (tmp_path / "token").write_text("pesto_1_x\n")
    said("list", "--token", str(tmp_path / "token"))


def test_what_is_not_for_a_service_is_refused(tmp_path):
    step = ("solve", "--model", "rnnlm", "--server", "http://127.0.0.1:1", "-o", str(tmp_path / "p.json"))
    code = ("solve", "--function", "m:step", *step[3:], "--split", "auto")
    assert "takes no code" in refused(UsageError, *code)
    assert "leave out --verbose" in refused(UsageError, *step, "--verbose")
    assert "cannot reach" in refused(FileError, *step)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("first", "second"), [(signal.SIGINT, None), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM, None)]
)
def test_an_interruption_asks(live, monkeypatch, capsys, first, second):
    """Once: the job goes on; twice: it is cancelled, and its end is waited for."""
    with Client(live.url) as client:
        name = client.submit(SOLVE | {"label": "wait"})
        solving = lambda *event: event[2].get("name") == "solve" and signal.raise_signal(first)  # noqa: E731
        monkeypatch.setattr(remote_solve.RemoteLine, "take", solving)
        monkeypatch.setattr(remote_solve.time, "sleep", lambda _: second and signal.raise_signal(second))
        if second is not None:
            assert remote_solve.watch(client, name, quiet=True)["state"] == "cancelled"
            assert client.plan(name) == f"{name}.1".encode()
        else:
            with pytest.raises(face.PestoError, match=f"job {name} goes on without you - pesto jobs watch") as left:
                remote_solve.watch(client, name, quiet=True)
            assert left.value.exit_code == {signal.SIGINT: 130, signal.SIGTERM: 143}[first]
            assert client.job(name).state == "running"
    assert ("Ctrl-C again within" in capsys.readouterr().err) == (first == signal.SIGINT)
