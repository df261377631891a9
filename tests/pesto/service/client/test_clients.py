"""Both clients against a service on a port: all that can be asked, refusals, and a service that is begun anew."""

import asyncio
import subprocess
import sys

import pytest
from live_service import live_service

import pesto
from pesto import FileError, UsageError
from pesto.service.client import clients
from pesto.service.client.calls import Reply
from pesto.service.serve import tokens

SOLVE = {"kind": "solve", "source": {"model": "rnnlm"}}


@pytest.fixture
def live(tmp_path):
    with live_service(tmp_path / "data") as found:
        yield found


def test_a_job_from_its_upload_to_its_plan(live, tmp_path):
    step = tmp_path / "step.json"
    step.write_bytes(b"a graph" * 100_000)
    with pesto.Client(live.url) as client:
        sha = client.upload(step)
        assert client.upload(step.read_bytes()) == sha
        name = client.submit({"kind": "solve", "source": {"blob": sha, "name": "step.json"}, "label": "talk 3"})
        told = list(client.events(name))
        assert [event.kind for event in told] == ["stage", "stage", "incumbent", "incumbent", "incumbent", "done"]
        assert told == [*client.events(name)] and told[3:] == [*client.events(name, 3)]
        assert list(client.events(name, 6)) == []  # there is nothing to wait for
        assert client.job(name).state == "done" and told[-1].data["files"] == ["plan.json", "report.html"]
        assert client.plan(name) == client.report(name) == client.file(name, "plan.json") == f"{name}.1".encode()
        assert [job.id for job in client.jobs()] == [name]
        assert client.jobs(state="queued") == client.jobs(label="x") == []
        assert client.wait(name) == client.job(name)
        assert client.wait(client.submit(SOLVE | {"label": "talk 2"})).state == "done"
        wait = client.submit(SOLVE | {"label": "wait"})
        assert client.cancel(wait) in ("cancelled", "cancelling")
        assert list(client.events(wait))[-1].data["exit_code"] == 130
        for few in (1, 2):
            assert len(client.jobs(most=few)) == few


def test_a_job_is_cancelled_then_deleted(live, monkeypatch):
    with pesto.Client(live.url) as client:
        name = client.submit(SOLVE | {"label": "wait"})
        with pytest.raises(UsageError, match=r"the job \w+ is (queued|running), .* - cancel it first"):
            client.delete(name, purge=True)
        assert client.delete(name) in ("cancelled", "cancelling")
        client.wait(name)
        carried, lost = client._carried, []

        def losing(ask):
            """Carry a request, and lose the answer of the first DELETE."""
            reply = carried(ask)
            if ask.method == "DELETE" and not lost:
                lost.append(reply)
                return Reply(why="the connection was lost")
            return reply

        monkeypatch.setattr(client, "_carried", losing)
        assert client.delete(name, purge=True) == "cancelled"
        assert lost[0].status == 200
        for purge in (False, True):
            with pytest.raises(UsageError, match=f"no job '{name}'"):
                client.delete(name, purge=purge)


def test_what_is_there_is_not_sent(live, monkeypatch):
    sent = []
    with pesto.Client(live.url) as client:
        carried = client._carried
        monkeypatch.setattr(client, "_carried", lambda ask: sent.append(ask.method) or carried(ask))
        client.upload(b"x" * 1000)
        client.upload(b"x" * 1000)
    assert sent == ["GET", "PUT", "GET"]


def test_a_service_that_is_begun_anew_is_waited_for_without_a_gap(live):
    with pesto.Client(live.url) as client:
        name = client.submit(SOLVE | {"label": "wait"})
        coming = client.events(name)
        told = [next(coming), next(coming)]
        for _ in range(2):
            live.end()
            live.start()
            told += [next(coming) for _ in range(3)]
        assert client.job(name).attempt == 3
        live.jobs.end(f"{name}.3")
        told += coming
    assert [event.number for event in told] == list(range(1, 10))
    begun = ["running", "solve", "queued"]
    assert [event.data.get("name", "done") for event in told] == [*begun, *begun, "running", "solve", "done"]


def test_the_same_in_an_event_loop(live, tmp_path):
    (tmp_path / "step.json").write_bytes(b"a graph" * 100_000)

    async def all_of_it():
        async with pesto.AsyncClient(live.url) as client:
            sha = await client.upload(tmp_path / "step.json")
            assert await client.upload(b"a graph" * 100_000) == sha
            name = await client.submit(SOLVE | {"label": "wait"})
            coming = client.events(name)
            told = [await anext(coming), await anext(coming)]
            await asyncio.to_thread(live.end)
            await asyncio.to_thread(live.start)
            told += [await anext(coming) for _ in range(3)]
            live.jobs.end(f"{name}.2")
            told += [event async for event in coming]
            assert [event.number for event in told] == [1, 2, 3, 4, 5, 6]
            assert (await client.wait(name)).state == "done" and (await client.jobs())[0].id == name
            assert await client.plan(name) == await client.report(name) == await client.file(name, "plan.json")
            assert await client.cancel(name) == await client.delete(name) == "done"
            for asked in (client.trace(name), client.explain(name), client.job("nobody"), client.diff(name, "nobody")):
                with pytest.raises(UsageError):
                    await asked
            with pytest.raises(UsageError, match="no job 'nobody'"):
                await anext(client.events("nobody"))
            assert await client.delete(name, purge=True) == "done"
            with pytest.raises(UsageError, match="no job"):
                await client.job(name)

    asyncio.run(all_of_it())


def test_refusals_are_the_services_own(live, monkeypatch):
    with pesto.Client(live.url) as client:
        for asked in (client.job, client.plan, client.cancel, lambda name: next(client.events(name))):
            with pytest.raises(UsageError, match="no job 'nobody' - list"):
                asked("nobody")
            for name in ("no/body", "..", ""):
                with pytest.raises(UsageError, match="no job is called"):
                    asked(name)
        with pytest.raises(UsageError, match="did you mean rnnlm"):
            client.submit({"kind": "solve", "source": {"model": "rnnlmm"}})
        with pytest.raises(UsageError, match="Idempotency-Key"):
            client.submit(SOLVE, "monday"), client.submit(SOLVE | {"label": "x"}, "monday")
        with pytest.raises(UsageError, match="ask for 1 or more"):
            client.jobs(most=0)
    ann = tokens.add(live.folder, "ann", tokens.Quota(queued=1))
    monkeypatch.setattr(tokens, "LOOK_S", 0.0)
    live.service.authenticator.refresh()
    monkeypatch.setattr(live.service.authenticator, "_looked", -1e9)
    with pesto.Client(live.url, "pesto_1_wrong") as client, pytest.raises(UsageError, match="PESTO_TOKEN"):
        client.jobs()
    with pesto.Client(live.url, ann, patience_s=0.0) as client:
        client.submit(SOLVE | {"label": "wait"})
        with pytest.raises(UsageError, match="1 jobs of this token wait already"):
            for _ in range(3):
                client.submit(SOLVE)
    live.end()
    with pesto.Client(live.url, ann) as client, pytest.raises(FileError, match="Connection refused") as down:
        client.jobs()
    assert down.value.exit_code == 8
    live.start()


def test_files_that_cannot_be_read(live, tmp_path):
    with pesto.Client(live.url) as client, pytest.raises(FileError, match="cannot read"):
        client.upload(tmp_path / "none")


def test_without_httpx_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(pesto.SolverError, match=r"needs httpx - pip install -e '\.\[client\]'"):
        clients.library()


def test_importing_pesto_or_asking_for_help_loads_no_http():
    code = (
        "import sys, pesto; dir(pesto)\n"
        "from click.testing import CliRunner\nfrom pesto.cli.main import pesto as verbs\n"
        "CliRunner().invoke(verbs, ['--help'])\nprint(*sys.modules)\npesto.Client\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(str.split, done.stdout.splitlines())
    assert not {"httpx", "litestar", "numpy", "pesto.service.client.clients"} & set(before)
    assert "pesto.service.client.clients" in after
