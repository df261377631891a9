"""What jobs wrote: each file with its type and tag, kept over runs of the service, and removed in the end."""

import hashlib
import sys
import time
from pathlib import Path

import pytest
from fake_jobs import FakeJobs
from serving import events, refused, serving, submitted, told

import pesto
from pesto.service.serve.blobs import Retention
from pesto.service.serve.serve_config import KeepDays

TOWERS = Path(__file__).parents[3] / "data" / "two-towers.graph.json"

WRITTEN = {
    "plan": ("plan.json", "application/json"),
    "report": ("report.html", "text/html; charset=utf-8"),
    "trace": ("trace.json.gz", "application/gzip"),
    "explain": ("explain.json", "application/json"),
    "files/chart.svg": ("chart.svg", "image/svg+xml"),
    "files/page.txt": ("page.txt", "text/plain; charset=utf-8"),
}


def test_not_yet_and_removed(client):
    name = submitted(client, "wait")
    refused(client.get(f"/v1/jobs/{name}/plan"), 409, "wait for it")
    while client.get(f"/v1/jobs/{name}").json()["stage"] != "solve":
        pass
    client.delete(f"/v1/jobs/{name}")
    told(client, name)
    refused(client.get(f"/v1/jobs/{name}/trace"), 404, "no such file")


def test_every_file_has_its_type_and_is_not_sent_to_who_has_it(tmp_path):
    """An ETag that is known is 304 with nothing in it, whatever type the route has."""
    with serving(tmp_path, FakeJobs(files={file: b"{}" for file, _ in WRITTEN.values()})) as (client, _):
        name = submitted(client)
        told(client, name)
        routes = client.get("/v1/openapi.json").json()["paths"]
        for route, (_, kind) in WRITTEN.items():
            path = "files/{file}" if route.startswith("files/") else route
            answers = routes[f"/v1/jobs/{{name}}/{path}"]["get"]["responses"]
            assert kind.split(";")[0] in answers["200"]["content"] and "304" in answers
            found = client.get(f"/v1/jobs/{name}/{route}")
            assert (found.status_code, found.headers["content-type"], found.content) == (200, kind, b"{}")
            again = client.get(f"/v1/jobs/{name}/{route}", headers={"If-None-Match": found.headers["etag"]})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", found.headers["etag"]), route


@pytest.mark.slow
def test_a_difference_names_jobs_and_is_not_made_again_for_who_has_it(tmp_path):
    plan = tmp_path / "plan.json"
    pesto.save_plan(pesto.solve(pesto.load_graph(TOWERS), solver="list", search=False, time_limit_s=0), plan)
    with serving(tmp_path / "data", FakeJobs(files={"plan.json": plan.read_bytes()})) as (client, _):
        a, b = (submitted(client, label) for label in "ab")
        told(client, b)
        found = client.get("/v1/diff", params={"a": a, "b": b})
        assert found.json()["plans"] == [a, b] and not found.json()["differ"]
        assert str(tmp_path) not in found.text
        again = client.get("/v1/diff", params={"a": a, "b": b}, headers={"If-None-Match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_a_difference_is_of_the_graph_that_the_first_job_was_given(tmp_path, monkeypatch):
    """An uploaded file is named to the comparison, with its fetches; a model is named by the plan itself."""
    listing = tmp_path / "listing"
    listing.write_text(
        f"#!{sys.executable} -IS\n"
        "import json, sys\n"
        "option = lambda name: [w.removeprefix(name) for w in sys.argv if w.startswith(name)]\n"
        "graphs = [open(path).read() for path in option('--graph=')]\n"
        "print(json.dumps({'graphs': graphs, 'fetches': option('--fetch=')}))\n"
    )
    listing.chmod(0o700)
    graph = b"a graph"
    sha = hashlib.sha256(graph).hexdigest()
    uploaded = {"kind": "solve", "source": {"blob": sha, "name": "g.pb", "fetch": ["train", "loss"]}}
    with serving(tmp_path / "data", FakeJobs(files={"plan.json": b"{}"})) as (client, _):
        assert client.put(f"/v1/blobs/{sha}", content=graph).status_code == 201
        given, model = client.post("/v1/jobs", json=uploaded).json()["id"], submitted(client)
        for name in (given, model):
            told(client, name)
        monkeypatch.setattr(sys, "executable", str(listing))
        for first, second, graphs, fetches in ((given, model, ["a graph"], ["train", "loss"]), (model, given, [], [])):
            found = client.get("/v1/diff", params={"a": first, "b": second})
            assert found.json() == {"graphs": graphs, "fetches": fetches, "plans": [first, second]}


def test_the_best_of_a_job_is_that_of_what_it_wrote(tmp_path):
    """A split that was chosen is of other seconds than the placement that was found beside it."""
    with serving(tmp_path, FakeJobs(files={"split.json": b"{}"}, result={"makespan_s": 0.25})) as (client, _):
        found = told(client, submitted(client, "talk 2"))
        assert (found["best_s"], found["bound_s"], found["gap"]) == (0.25, None, None)


def test_a_split_of_a_job_is_checked_by_that_job_s_name(tmp_path):
    """Only checked: what is solved from or shown must be a plan."""
    with serving(tmp_path, FakeJobs(files={"split.json": b"{}"})) as (client, service):
        name = submitted(client)
        told(client, name)
        asked = {"kind": "check", "plan": {"job": name}}
        assert client.post("/v1/jobs", json=asked).status_code == 202
        assert service.store.readings.blob(hashlib.sha256(b"{}").hexdigest()) == 2
        refused(client.post("/v1/jobs", json=asked | {"kind": "report"}), 422, name, "no plan")


def test_old_files_are_removed_and_what_waits_keeps_its_own(tmp_path):
    data = [b"old", b"needed", b"new"]
    old, needed, _ = shas = [hashlib.sha256(one).hexdigest() for one in data]
    with serving(tmp_path) as (client, service):
        sweep = lambda now, days=1.0, most=1 << 40: Retention(tmp_path, days, most, KeepDays()).sweep(  # noqa: E731
            service.store.writer.do, now
        )
        for sha, one in zip(shas, data, strict=True):
            client.put(f"/v1/blobs/{sha}", content=one)
        name = submitted(client)
        told(client, name)
        client.post("/v1/jobs", json={"kind": "solve", "source": {"blob": needed}, "label": "wait"})
        assert sweep(time.time()) == 0
        assert sweep(time.time() + 90_000) == 3  # the files of the job, two uploads; the third is waited for
        answer = client.get(f"/v1/jobs/{name}/plan")
        refused(answer, 410, "deleted")
        assert client.get(f"/v1/jobs/{name}").json()["files"] == []
        assert [file.name for file in service.blobs.folder.iterdir()] == [needed]
        for sha, one in zip(shas, data, strict=True):
            assert client.put(f"/v1/blobs/{sha}", content=one).status_code == (200 if sha == needed else 201)
        assert sweep(time.time(), most=3) == 1  # 3 bytes each but for what is waited for: the older one goes
        assert old not in {file.name for file in service.blobs.folder.iterdir()}


def test_what_ran_is_queued_again_and_its_plan_kept_when_the_service_ends(tmp_path):
    with serving(tmp_path) as (client, _):
        name = submitted(client, "wait")
        while client.get(f"/v1/jobs/{name}").json()["stage"] != "solve":
            pass
    jobs = FakeJobs()
    with serving(tmp_path, jobs) as (client, _):
        assert client.get(f"/v1/jobs/{name}/plan").content == f"{name}.1".encode()
        while f"{name}.2" not in jobs.begun:
            pass
        jobs.end(f"{name}.2")
        found = told(client, name)
        assert (found["state"], found["attempt"], found["deaths"]) == ("done", 2, 0)
        assert client.get(f"/v1/jobs/{name}/plan").content == f"{name}.2".encode()
        stages = [data.get("name", "done") for _, _, data in events(client, name)]
        assert stages == ["running", "solve", "queued", "running", "solve", "done"]


@pytest.mark.parametrize("how", ["queued", "running", "failed"])
def test_a_plan_that_was_kept_is_there_whatever_comes_of_later_attempts(tmp_path, how):
    """Of a job that is cancelled while it waits again or runs again, and of one whose workers die then."""
    with serving(tmp_path) as (client, _):
        name = submitted(client, "once die" if how == "failed" else "once")
        while client.get(f"/v1/jobs/{name}").json()["stage"] != "solve":
            pass
    written = ["plan.json", "report.html"]
    with serving(tmp_path, FakeJobs(slots=0 if how == "queued" else 1)) as (client, _):
        if how != "failed":
            assert client.get(f"/v1/jobs/{name}").json()["files"] == written
            while how == "running" and client.get(f"/v1/jobs/{name}").json()["attempt"] < 2:
                pass
            client.delete(f"/v1/jobs/{name}")
        found = told(client, name)
        assert (found["state"], found["files"]) == ("failed" if how == "failed" else "cancelled", written)
        assert bool(found["error"]) == (how == "failed")
        assert client.get(f"/v1/jobs/{name}/plan").content == f"{name}.1".encode()
