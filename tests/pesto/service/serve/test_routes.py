"""Every route of the service answers and refuses as its document says, with jobs that take no time."""

import hashlib

import msgspec
import pytest
from fake_jobs import FakeJobs
from serving import SOLVE, events, refused, serving, submitted, told

from pesto.service.serve import tokens


def test_a_job_from_its_submission_to_its_plan(client):
    name = submitted(client, "talk 3", priority=2)
    found = told(client, name)
    assert (found["state"], found["attempt"], found["exit_code"], found["priority"]) == ("done", 1, 0, 2)
    assert found["best_s"] == 1.0 - 2e-6
    assert found["gap"] == pytest.approx(1 - 0.5 / (1.0 - 2e-6))
    assert found["events"] == 6  # two stages, three incumbents, done
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
    assert [number for number, _, _ in whole] == list(range(1, 454))
    assert [kind for _, kind, _ in whole] == ["stage"] * 2 + ["incumbent"] * 450 + ["done"]
    for last in (0, 1, 200, 452):
        assert events(client, name, last) == whole[last:]
    assert events(client, name, 453) == []  # it ends, too: there is nothing to wait for


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
        while client.get(f"/v1/jobs/{wait}").json()["stage"] != "solve":
            pass
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


def test_what_is_refused_at_once(client):
    post = lambda body: client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})  # noqa: E731
    refused(post(b'{"kind": "solve"'), 400)
    refused(post(b""), 400, "no body")
    refused(post(b"[" * 200_000), 400, "too deep")
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
    refused(client.get("/v1/jobs?after=nobody"), 400, "after")
    refused(client.get("/v1/nothing"), 404)
    refused(client.patch("/v1/jobs"), 405)
    refused(client.get("/v1/jobs?most=0"), 400, "most")
    refused(client.get("/v1/jobs?state=odd"), 400, "state: ")
    refused(client.post("/v1/jobs", json={"kind": "check", "plan": {"job": "nobody"}}), 404, "nobody")
    refused(client.get("/v1/jobs/x/events", headers={"Last-Event-ID": "-1"}), 400, "Last-Event-ID: ")
    document = client.get("/v1/openapi.json").json()["paths"]
    (most,) = [
        one["schema"]["maximum"]
        for one in document["/v1/jobs/{name}/events"]["get"]["parameters"]
        if one["name"] == "Last-Event-ID"
    ]
    assert "e" not in repr(most)  # which would be rounded
    for more, status in ((0, 404), (1, 400)):
        last = str(int(f"{most:.0f}") + more)
        assert client.get("/v1/jobs/x/events", headers={"Last-Event-ID": last}).status_code == status
    refused(client.post("/v1/jobs", json=SOLVE, headers={"Idempotency-Key": "x" * 201}), 400, "Idempotency-Key: ")
    assert client.get("/v1/jobs").json()["jobs"] == []


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
    ann, bob = (
        tokens.add(tmp_path, name, quota)
        for name, quota in (("ann", msgspec.structs.replace(few, hours=10.0)), ("bob", few))
    )
    with serving(tmp_path, FakeJobs(slots=3)) as (client, _):
        as_ann, as_bob = ({"Authorization": f"Bearer {token}"} for token in (ann, bob))
        waiting = SOLVE | {"label": "wait", "limits": {"seconds": 3600}}  # until it is cancelled at the end
        answers = [client.post("/v1/jobs", json=waiting, headers=as_ann) for _ in range(4)]
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
        refused(answer, 429, "maximum of 1 jobs")
        assert answer.headers["retry-after"] == "30"


def test_a_site_that_a_browser_was_led_from_may_not_ask(client):
    refused(client.get("/v1/jobs", headers={"Host": "evil.example"}), 403, "token add")
    for host in ("localhost:8780", "LOCALHOST", "[::1]", "[::1]:8780", "127.0.0.1:"):
        assert client.get("/v1/jobs", headers={"Host": host}).status_code == 200
    refused(client.get("/v1/jobs", headers={"Host": "[::1].evil.example:1"}), 403)


def test_a_page_of_another_site_may_not_ask_by_this_one_s_name(client, tmp_path):
    """A browser sends what a page asks for without looking at the answer, and says the page's origin; who has none, and
    who has a token, may ask."""
    here = {"Host": "localhost:8780", "Content-Type": "text/plain"}
    for origin in ("http://evil.example", "http://localhost:8781", "http://localhost", "null", ""):
        refused(client.post("/v1/jobs", json=SOLVE, headers=here | {"Origin": origin}), 403, "another site")
    assert client.get("/v1/jobs").json()["jobs"] == []
    assert client.post("/v1/jobs", json=SOLVE, headers=here | {"Origin": "http://LocalHost:8780"}).status_code == 202
    ann = tokens.add(tmp_path, "ann", tokens.Quota())
    with serving(tmp_path) as (other, _):
        headers = {"Origin": "http://evil.example", "Authorization": f"Bearer {ann}"}
        assert other.get("/v1/jobs", headers=headers).status_code == 200


def test_counts(client):
    submitted(client, "wait")
    hostile = submitted(client, 'a"} 1\\nb{')
    client.delete(f"/v1/jobs/{hostile}")
    text = client.get("/metrics").text
    assert 'pesto_jobs_ended_total{kind="solve",model="rnnlm",state="cancelled"} 1.0' in text
    assert hostile not in text and "1\\nb{" not in text
    assert client.get("/readyz").json() == {"status": "ready"}
