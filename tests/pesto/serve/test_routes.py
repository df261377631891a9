"""Every route of the service answers and refuses as its document says, with jobs that take no time."""

import hashlib
import socket
import sqlite3
import time
from pathlib import Path

import httpx
import pytest
from fake_jobs import FakeJobs
from jsonschema import Draft202012Validator
from live_service import live_service
from serving import SOLVE, events, refused, serving, submitted, told

import pesto
from pesto.errors import FileError, UsageError
from pesto.serve import tokens
from pesto.serve.retention import Retention
from pesto.serve.serve_config import JobBounds, ServeConfig
from pesto.serve.server import listening, opened
from pesto.serve.store.sqlite_file import FILE

TOWERS = Path(__file__).parents[2] / "data" / "two-towers.graph.json"


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path / "data") as (found, _):
        yield found


def test_a_job_from_its_submission_to_its_plan(client):
    name = submitted(client, "talk 3", priority=2)
    found = told(client, name)
    assert (found["state"], found["attempt"], found["exit_code"], found["priority"]) == ("done", 1, 0, 2)
    assert found["best_s"] == 1.0 - 2e-6
    assert found["gap"] == pytest.approx(1 - 0.5 / (1.0 - 2e-6))
    assert found["events"] == 5  # a stage, three incumbents, done
    plan = client.get(f"/v1/jobs/{name}/plan")
    assert plan.content == f"{name}.1".encode()
    again = client.get(f"/v1/jobs/{name}/plan", headers={"If-None-Match": plan.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    report = client.get(f"/v1/jobs/{name}/report")
    assert report.headers["content-type"].startswith("text/html")
    assert "sandbox" in report.headers["content-security-policy"]
    assert client.get(f"/v1/jobs/{name}/files/plan.json").content == plan.content


def test_a_stream_goes_on_after_the_last_event_that_arrived(client):
    name = submitted(client, "talk 450")
    whole = events(client, name)
    assert [number for number, _, _ in whole] == list(range(1, 453))
    assert [kind for _, kind, _ in whole] == ["stage"] + ["incumbent"] * 450 + ["done"]
    for last in (0, 1, 200, 451):
        assert events(client, name, last) == whole[last:]
    assert events(client, name, 452) == []  # it ends, too: there is nothing to wait for


def test_pages_are_newest_first_and_filtered(client):
    names = [submitted(client, f"{'wait' if k == 0 else 'talk 1'}") for k in range(5)]
    first = client.get("/v1/jobs", params={"most": 2}).json()
    assert [job["id"] for job in first["jobs"]] == names[:2:-1]
    second = client.get("/v1/jobs", params={"most": 2, "after": first["after"]}).json()
    third = client.get("/v1/jobs", params={"most": 2, "after": second["after"]}).json()
    assert [job["id"] for job in (*second["jobs"], *third["jobs"])] == names[2::-1]
    assert third["after"] is None
    assert [job["id"] for job in client.get("/v1/jobs", params={"label": "wait"}).json()["jobs"]] == names[:1]
    # the first runs until it is interrupted, the others wait for it
    assert [job["place"] for job in client.get("/v1/jobs?state=queued").json()["jobs"]] == [4, 3, 2, 1]


def test_larger_priority_first_then_the_earlier(tmp_path):
    jobs = FakeJobs()
    with serving(tmp_path, jobs) as (client, _):
        wait = submitted(client, "wait")
        names = [submitted(client, priority=priority) for priority in (0, 1, 0, 1)]
        assert [client.get(f"/v1/jobs/{name}").json()["place"] for name in names] == [3, 1, 4, 2]
        client.delete(f"/v1/jobs/{wait}")
        for name in names:
            told(client, name)
    assert [key.split(".")[0] for key in jobs.begun] == [wait, names[1], names[3], names[0], names[2]]


def test_cancelling_keeps_the_best_plan(client):
    running, waiting = submitted(client, "wait"), submitted(client)
    while client.get(f"/v1/jobs/{running}").json()["stage"] != "solve":
        pass
    assert client.delete(f"/v1/jobs/{waiting}").json()["state"] == "cancelled"
    assert client.delete(f"/v1/jobs/{running}").json()["state"] in ("cancelling", "cancelled")
    found = told(client, running)
    assert (found["state"], found["exit_code"]) == ("cancelled", 130)
    assert client.get(f"/v1/jobs/{running}/plan").status_code == 200
    refused(client.get(f"/v1/jobs/{waiting}/plan"), 404, "left no file")
    assert client.delete(f"/v1/jobs/{running}").json()["state"] == "cancelled"  # again: nothing changes


def test_what_fails_says_why(client):
    wrong = told(client, submitted(client, "wrong"))
    assert (wrong["state"], wrong["exit_code"], wrong["error"], wrong["remedy"]) == ("failed", 3, "a cycle", "break it")
    big = told(client, submitted(client, "big"))
    assert (big["state"], big["attempt"], big["error"]) == ("failed", 1, "needed more than 8 GiB")
    dies = told(client, submitted(client, "die"))
    assert (dies["state"], dies["attempt"], dies["deaths"]) == ("failed", 3, 3)
    assert told(client, submitted(client))["state"] == "done"  # the queue goes on


def test_a_lost_cluster_is_no_death_of_a_worker(client):
    name = submitted(client, "lost 4")
    again = [data for _, kind, data in events(client, name) if kind == "stage" and data["name"] == "queued"]
    assert [(data["attempt"], data["why"]) for data in again] == [(k, "the cluster was lost") for k in (1, 2, 3, 4)]
    found = told(client, name)
    assert (found["state"], found["attempt"], found["deaths"]) == ("done", 5, 0)
    assert client.get(f"/v1/jobs/{name}/plan").content == f"{name}.5".encode()


def test_uploads(client):
    data = b"a graph" * 300_000
    sha = hashlib.sha256(data).hexdigest()
    asked = {"kind": "solve", "source": {"blob": sha, "name": "g.json"}}
    refused(client.post("/v1/jobs", json=asked), 422, sha, "PUT it")
    assert client.put(f"/v1/blobs/{sha}", content=data).status_code == 201
    again = client.put(f"/v1/blobs/{sha}", content=data)
    assert (again.status_code, again.json()) == (200, {"sha256": sha, "bytes": len(data)})
    assert client.post("/v1/jobs", json=asked).status_code == 202


def test_uploads_that_are_refused_leave_nothing(tmp_path):
    data, other = b"x" * 1000, hashlib.sha256(b"y").hexdigest()
    with serving(tmp_path, upload_gib=1000 / 2**30) as (client, service):
        refused(client.put(f"/v1/blobs/{other}", content=data), 422, hashlib.sha256(data).hexdigest())
        refused(client.put("/v1/blobs/ABC", content=data), 400, "64 hexadecimal")
        refused(client.put(f"/v1/blobs/{other}", content=data + b"x"), 413, "1000 B")
        chunks = iter([data, data])
        refused(client.put(f"/v1/blobs/{other}", content=chunks), 413)  # nobody said how many would come
        short = {"Content-Length": "999"}
        refused(client.put(f"/v1/blobs/{other}", content=iter([data[:500]]), headers=short), 400, "500 of 999")
        assert list(service.blobs.folder.iterdir()) == []


def test_a_full_disk_is_507(tmp_path, monkeypatch):
    with serving(tmp_path) as (client, service):
        monkeypatch.setattr(service.blobs, "_space", lambda _: 0.04)
        monkeypatch.setattr(service.blobs, "_looked", -1e9)
        refused(client.post("/v1/jobs", json=SOLVE), 507, "5%", "free some")
        sha = hashlib.sha256(b"x").hexdigest()
        refused(client.put(f"/v1/blobs/{sha}", content=b"x"), 507)
        assert client.get("/v1/jobs").json()["jobs"] == []


def test_a_disk_that_is_full_in_a_commit_is_507_and_half_of_nothing(tmp_path):
    """SQLite's own limit of pages stands for the disk's."""

    def limit(pages):
        service.store.writer.do(lambda ledger: ledger._db.execute(f"PRAGMA max_page_count = {pages}").fetchone())

    with serving(tmp_path, FakeJobs(slots=0)) as (client, service):
        limit(1)  # which is as many as there are
        fitted, full = [], None
        while full is None:
            answer = client.post("/v1/jobs", json=SOLVE | {"label": "x" * 200})
            if answer.status_code == 202:
                fitted.append(answer.json()["id"])
            else:
                full = answer
        refused(full, 507, "full", "check the folder and the disk")
        assert client.get("/readyz").status_code == 200
        limit(1 << 30)
        fitted.append(submitted(client))
        assert [job["id"] for job in client.get("/v1/jobs?most=500").json()["jobs"]] == fitted[::-1]


def test_an_upload_that_is_cut_leaves_nothing(tmp_path):
    with live_service(tmp_path) as live:
        blobs, head = live.service.blobs.folder, f"PUT /v1/blobs/{'0' * 64} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        for how, begun in (("Content-Length: 1000", b"x" * 500), ("Transfer-Encoding: chunked", b"5\r\nabcde\r\n")):
            with socket.create_connection(("127.0.0.1", int(live.url.rpartition(":")[2]))) as link:
                link.sendall(f"{head}{how}\r\n\r\n".encode() + begun)
                while not list(blobs.iterdir()):
                    pass
            while list(blobs.iterdir()):
                pass


def test_what_is_refused_at_once(client):
    post = lambda body: client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})  # noqa: E731
    refused(post(b'{"kind": "solve"'), 400)
    refused(post(b'{"kind": "solv"}'), 400, "solv")
    refused(post(b'{"kind": "solve", "sauce": 1}'), 400, "sauce")
    refused(post(b'{"kind": "solve"}'), 422, "source")
    refused(client.post("/v1/jobs", json={"kind": "solve", "source": {"model": "rnnlmm"}}), 422, "rnnlm")
    refused(client.post("/v1/jobs", json=SOLVE | {"cluster": "v100x3"}), 422, "v100x")
    refused(client.post("/v1/jobs", json=SOLVE | {"settings": {"solver": "cpsta"}}), 422, "cpsat")
    refused(client.post("/v1/jobs", json=SOLVE | {"limits": {"threads": 65}}), 422, "64", "less")
    refused(post(b'"' + b"x" * (1 << 21) + b'"'), 413)
    refused(client.get("/v1/jobs/nobody"), 404)
    refused(client.get("/v1/jobs/%0a%1b[31m"), 404, "\\n\\x1b[31m")  # as text, wherever that is shown
    refused(client.get("/v1/jobs?after=nobody"), 404)
    refused(client.get("/v1/nothing"), 404)
    refused(client.patch("/v1/jobs"), 405)
    refused(client.get("/v1/jobs?most=0"), 400, "most")
    refused(client.get("/v1/jobs?state=odd"), 400, "state: ")
    refused(client.post("/v1/jobs", json={"kind": "check", "plan": {"job": "nobody"}}), 404, "nobody")
    refused(client.get("/v1/jobs/x/events", headers={"Last-Event-ID": "-1"}), 400, "Last-Event-ID: ")
    refused(client.post("/v1/jobs", json=SOLVE, headers={"Idempotency-Key": "x" * 201}), 400, "Idempotency-Key: ")
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_not_yet_and_removed(client):
    name = submitted(client, "wait")
    refused(client.get(f"/v1/jobs/{name}/plan"), 409, "wait for it")
    while client.get(f"/v1/jobs/{name}").json()["stage"] != "solve":
        pass
    client.delete(f"/v1/jobs/{name}")
    told(client, name)
    refused(client.get(f"/v1/jobs/{name}/trace"), 404, "no such file")


WRITTEN = {
    "plan": ("plan.json", "application/json"),
    "report": ("report.html", "text/html; charset=utf-8"),
    "trace": ("trace.json.gz", "application/gzip"),
    "explain": ("explain.json", "application/json"),
    "files/chart.svg": ("chart.svg", "image/svg+xml"),
    "files/page.txt": ("page.txt", "text/plain; charset=utf-8"),
}


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
        sweep = lambda now, days=1.0, most=1 << 40: Retention(  # noqa: E731
            tmp_path / "jobs", service.blobs.folder, days, most
        ).sweep(service.store.writer.do, now)
        for sha, one in zip(shas, data, strict=True):
            client.put(f"/v1/blobs/{sha}", content=one)
        name = submitted(client)
        told(client, name)
        client.post("/v1/jobs", json={"kind": "solve", "source": {"blob": needed}, "label": "wait"})
        assert sweep(time.time()) == 0
        assert sweep(time.time() + 90_000) == 3  # the files of the job, two uploads; the third is waited for
        answer = client.get(f"/v1/jobs/{name}/plan")
        refused(answer, 410, "removed")
        assert client.get(f"/v1/jobs/{name}").json()["files"] == []
        assert [file.name for file in service.blobs.folder.iterdir()] == [needed]
        for sha, one in zip(shas, data, strict=True):
            assert client.put(f"/v1/blobs/{sha}", content=one).status_code == (200 if sha == needed else 201)
        assert sweep(time.time(), most=3) == 1  # 3 bytes each but for what is waited for: the older one goes
        assert old not in {file.name for file in service.blobs.folder.iterdir()}


def test_each_sees_what_is_its_own(tmp_path, monkeypatch):
    ann = tokens.add(tmp_path, "ann", tokens.Quota())
    bob = tokens.add(tmp_path, "bob", tokens.Quota())
    with serving(tmp_path) as (client, _):
        as_ann, as_bob = ({"Authorization": f"Bearer {token}"} for token in (ann, bob))
        answer = client.get("/v1/jobs")
        refused(answer, 401, "Bearer")
        assert answer.headers["www-authenticate"] == "Bearer"
        refused(client.get("/v1/jobs", headers={"Authorization": f"Bearer {ann[:-1]}"}), 401)
        name = client.post("/v1/jobs", json=SOLVE, headers=as_ann).json()["id"]
        assert client.get(f"/v1/jobs/{name}", headers=as_ann).json()["who"] == "ann"
        for path in ("", "/plan", "/events"):
            refused(client.get(f"/v1/jobs/{name}{path}", headers=as_bob), 404, name)
        refused(client.delete(f"/v1/jobs/{name}", headers=as_bob), 404)
        assert client.get("/v1/jobs", headers=as_bob).json()["jobs"] == []
        tokens.remove(tmp_path, "bob")
        monkeypatch.setattr(tokens, "LOOK_S", 0.0)
        client.post("/v1/jobs", json=SOLVE, headers=as_ann)
        refused(client.get("/v1/jobs", headers=as_bob), 401)
        assert client.get("/healthz").json() == {"status": "ok"}


def test_quotas(tmp_path):
    few = tokens.Quota(jobs=1, queued=2, bytes=10, hours=2.5 / 3600)
    ann, bob = (tokens.add(tmp_path, name, few) for name in ("ann", "bob"))
    with serving(tmp_path, FakeJobs(slots=3)) as (client, _):
        as_ann, as_bob = ({"Authorization": f"Bearer {token}"} for token in (ann, bob))
        answers = [client.post("/v1/jobs", json=SOLVE | {"label": "wait"}, headers=as_ann) for _ in range(4)]
        running = client.get(f"/v1/jobs/{answers[0].json()['id']}", headers=as_ann).json()
        assert running["state"] == "running"
        refused(answers[3], 429, "2 jobs")
        assert int(answers[3].headers["retry-after"]) > 0
        # one job of ann's at a time, though there is room for three; bob's goes past
        assert [job["state"] for job in client.get("/v1/jobs", headers=as_ann).json()["jobs"]][:2] == ["queued"] * 2
        for _ in range(3):  # each takes a second of a worker
            done = client.post("/v1/jobs", json=SOLVE, headers=as_bob).json()["id"]
            client.get(f"/v1/jobs/{done}/events", headers=as_bob)
        refused(client.post("/v1/jobs", json=SOLVE, headers=as_bob), 429, "hours")
        sha = hashlib.sha256(b"x" * 11).hexdigest()
        refused(client.put(f"/v1/blobs/{sha}", content=b"x" * 11, headers=as_ann), 413, "10 B")


def test_too_many_wait(tmp_path):
    with serving(tmp_path, queued=1) as (client, _):
        submitted(client, "wait")
        while client.get("/v1/jobs?state=running").json()["jobs"] == []:
            pass
        submitted(client)
        answer = client.post("/v1/jobs", json=SOLVE)
        refused(answer, 429, "1 jobs wait")
        assert answer.headers["retry-after"] == "30"


def test_a_site_that_a_browser_was_led_from_may_not_ask(client):
    refused(client.get("/v1/jobs", headers={"Host": "evil.example"}), 403, "token add")
    assert client.get("/v1/jobs", headers={"Host": "localhost:8780"}).status_code == 200


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
        assert stages == ["solve", "queued", "solve", "done"]


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


def test_counts(client):
    submitted(client, "wait")
    hostile = submitted(client, 'a"} 1\\nb{')
    client.delete(f"/v1/jobs/{hostile}")
    text = client.get("/metrics").text
    assert 'pesto_jobs_ended_total{kind="solve",model="rnnlm",state="cancelled"} 1.0' in text
    assert hostile not in text and "1\\nb{" not in text
    assert client.get("/readyz").json() == {"status": "ready"}


@pytest.mark.parametrize("name", ["models", "clusters", "solvers"])
def test_choices(client, name):
    assert client.get(f"/v1/{name}").json()[name]


def test_the_document_describes_every_answer(client):
    document = client.get("/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/v1/"):
                assert {"400", "401", "403", "500"} <= set(operation["responses"]), (method, path)
    submission = document["paths"]["/v1/jobs"]["post"]
    assert set(submission["responses"]) == {
        "202",
        "400",
        "401",
        "403",
        "404",
        "409",
        "413",
        "422",
        "429",
        "500",
        "503",
        "507",
    }


def test_options_names_every_method_of_a_route(client):
    for path, methods in client.get("/v1/openapi.json").json()["paths"].items():
        allowed = client.options(path.replace("{", "").replace("}", ""))
        named = set(allowed.headers["allow"].split(", "))
        head = {"HEAD"} if "get" in methods else set()
        assert (allowed.status_code, named) == (204, {"OPTIONS", *map(str.upper, methods)} | head), path


def test_head_is_get_without_a_body(tmp_path):
    """Also of errors and of what is not to be sent again; of a stream it ends at once, and nobody watches after it."""
    with live_service(tmp_path) as live, httpx.Client(base_url=live.url) as client:
        name, waits = submitted(client), submitted(client, "wait")
        told(client, name)
        while client.get(f"/v1/jobs/{waits}").json()["stage"] != "solve":
            pass
        paths = ["/", "/healthz", "/v1/jobs", "/v1/models", f"/v1/jobs/{name}", f"/v1/jobs/{name}/plan"]
        for path in (*paths, f"/v1/jobs/{name}/report", "/v1/jobs/nobody", "/v1/jobs?most=0", "/v1/openapi.json"):
            found, bare = client.get(path), client.head(path)
            assert (bare.status_code, bare.content) == (found.status_code, b""), path
            for header in ("content-type", "content-length", "etag", "content-security-policy"):
                assert bare.headers.get(header) == found.headers.get(header), (path, header)
        tag = {"If-None-Match": client.head(f"/v1/jobs/{name}/plan").headers["etag"]}
        assert client.head(f"/v1/jobs/{name}/plan", headers=tag).status_code == 304
        stream = client.head(f"/v1/jobs/{waits}/events")
        assert stream.status_code == 200 and stream.headers["content-type"].startswith("text/event-stream")
        while live.service.watchers.count:
            pass
        wrong = client.head(f"/v1/blobs/{'0' * 64}")
        assert wrong.status_code == 405 and "HEAD" not in wrong.headers["allow"]
        assert "GET, HEAD" in client.patch("/v1/jobs").headers["allow"]


def test_the_document_says_what_goes_with_a_kind(client):
    """What it admits of fields is what is taken, and what it does not admit is refused."""
    document = client.get("/v1/openapi.json").json()
    body = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["discriminator"]["mapping"]) == {"solve", "compare", "sweep", "split", "check", "report"}
    admits = Draft202012Validator({**body, "components": document["components"]}).is_valid
    model, plan = {"model": "rnnlm"}, {"job": submitted(client)}
    taken = [
        SOLVE | {"cuts": "2", "settings": {"deterministic": True}, "label": "x"},
        {"kind": "compare", "source": model, "methods": "all", "settings": {"headroom": 0.1}},
        {"kind": "sweep", "source": model, "sweep": {"links": [0.5]}},
        {"kind": "split", "source": model, "split": {"workers": "2x2"}, "cluster": "v100x4"},
        {"kind": "check", "plan": plan, "certificate": True},
        {"kind": "report", "plan": plan, "against": [plan]},
    ]
    assert all(map(admits, taken))
    told(client, plan["job"])
    assert [client.post("/v1/jobs", json=one).status_code for one in taken] == [202] * 6
    wrong = [
        SOLVE | {"methods": "all"},
        {"kind": "solve"},
        {"kind": "compare", "source": model, "settings": {"gap": 0.1}},
        {"kind": "sweep", "source": model},
        {"kind": "split", "source": model, "split": {"workers": "2"}, "costs": {"blob": "0" * 64}},
        {"kind": "check", "source": model},
        {"kind": "report", "plan": {"blob": "0"}},
    ]
    assert not any(map(admits, wrong))
    assert {client.post("/v1/jobs", json=one).status_code for one in wrong} == {400, 422}
    put = document["paths"]["/v1/blobs/{sha256}"]["put"]["parameters"][0]["schema"]
    asked = document["paths"]["/v1/blobs"]["get"]["parameters"][0]["schema"]
    assert put["pattern"] == asked["items"]["pattern"] == "^[0-9a-f]{64}$"
    refused(client.get("/v1/blobs?sha256=ABC"), 400, "64 hexadecimal")


def test_one_server_a_folder_and_one_a_port(tmp_path):
    config = ServeConfig(port=0)
    again = opened(tmp_path, config, FakeJobs)
    with opened(tmp_path, config, FakeJobs), pytest.raises(UsageError, match="another server"), again:
        pass
    with listening(config, tmp_path) as bound, pytest.raises(FileError, match=r"in use - give another --port"):
        listening(ServeConfig(port=bound.getsockname()[1]), tmp_path)
    with pytest.raises(UsageError, match="token add"):
        listening(ServeConfig(host="0.0.0.0"), tmp_path)  # noqa: S104


@pytest.mark.parametrize(
    ("made", "why"), [("PRAGMA user_version = 99", "version 99"), ("CREATE TABLE mine (x)", "no data of this service")]
)
def test_data_of_another_version_or_program_is_left_as_it_is(tmp_path, made, why):
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute(made)
    other.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(UsageError, match=f"{why}.* - give another --data"), opened(tmp_path, ServeConfig(), FakeJobs):
        pass
    assert (tmp_path / FILE).read_bytes() == before


def test_bounds_of_a_configuration():
    with pytest.raises(UsageError, match="workers is 0"):
        ServeConfig(workers=0)
    with pytest.raises(UsageError, match="rss_gib is -1"):
        ServeConfig(job=JobBounds(rss_gib=-1.0))
