"""What a token's jobs may use together: hours are reserved and kept, tokens take turns, priorities have a cap."""

import numpy as np
import pytest
from click.testing import CliRunner
from fake_jobs import FakeJobs
from serving import SOLVE, events, refused, serving, told

from pesto.cli.main import pesto as command
from pesto.service.protocol import State
from pesto.service.serve import scheduler, tokens
from pesto.service.serve.store.job_records import Outcome, Submission
from pesto.service.serve.store.ledger import Ledger, ended_s
from pesto.service.serve.store.readings import JobFilter, Readings
from pesto.service.serve.store.sqlite_file import connected
from pesto.service.serve.tokens import Quota, Role


def bearer(folder, name, quota=None, **more):
    return {"Authorization": f"Bearer {tokens.add(folder, name, quota or Quota(), **more)}"}


def post(client, headers, label="wait", **more):
    return client.post("/v1/jobs", json=SOLVE | {"label": label} | more, headers=headers)


def test_hours_are_reserved_when_a_job_is_submitted(tmp_path):
    ann, bob = (bearer(tmp_path, name, Quota(hours=1.0)) for name in ("ann", "bob"))
    with serving(tmp_path, FakeJobs(slots=0)) as (client, _):
        assert [post(client, ann, limits={"seconds": 1500}).status_code for _ in range(2)] == [202, 202]
        refused(post(client, ann, limits={"seconds": 1500}), 429, "600 s left", "1 hours")
        assert post(client, ann).status_code == 202  # without a limit of its own: 600 s
        refused(post(client, ann), 429, "0 s left")
        waiting = client.get("/v1/jobs", headers=ann).json()["jobs"]
        assert client.delete(f"/v1/jobs/{waiting[0]['id']}", headers=ann).status_code == 200
        assert post(client, ann).status_code == 202
        assert post(client, bob, limits={"seconds": 3600}).status_code == 202


def test_running_jobs_are_stopped_at_their_tokens_share(tmp_path, monkeypatch):
    """A job whose limit is more than its token has left; with a plan it ends as at a limit of its own."""
    monkeypatch.setattr(scheduler, "SPENT_S", 0.0)
    monkeypatch.setattr(scheduler, "_COLLECT_S", 0.01)
    ann = bearer(tmp_path, "ann", Quota(hours=0.2 / 3600))
    with serving(tmp_path) as (client, service):
        name = post(client, ann).json()["id"]
        client.headers.update(ann)
        assert events(client, name)[-1][2]["state"] == "done"
        assert told(client, name)["exit_code"] == 130
        assert client.get(f"/v1/jobs/{name}/plan").status_code == 200
        refused(post(client, ann), 429, "hours")
        assert service.store.writer.do(lambda ledger: ledger.worked_s("ann")) == 1.0


@pytest.fixture
def ledger(tmp_path):
    database = connected(tmp_path)
    yield Ledger(database, lambda: 1e6)
    database.close()


def submit(ledger, token, priority=0):
    return ledger.submit(Submission(token=token, kind="solve", request=b"{}", priority=priority))


def test_tokens_take_turns_within_a_priority(ledger):
    heavy = [submit(ledger, "ann") for _ in range(3)]
    light = [submit(ledger, "bob") for _ in range(2)]
    urgent = submit(ledger, "cid", 5)
    begun = [ledger.begin() for _ in range(6)]
    assert [one.id for one in begun] == [urgent, heavy[0], light[0], heavy[1], light[1], heavy[2]]
    seconds = {"ann": 100.0, "bob": 1.0, "cid": 3.0}
    for one in begun:
        ledger.finish(one.number, one.attempt, State.DONE, Outcome(seconds=seconds[one.token]))
    last = [submit(ledger, token) for token in ("ann", "bob", "cid")]  # nobody runs: who has had less is first
    assert [ledger.begin().id for _ in range(3)] == [last[1], last[2], last[0]]


@pytest.mark.slow
def test_places_are_the_order_in_which_jobs_begin(tmp_path, ledger):
    """Random queues with running jobs and used seconds: places before are the order of `Ledger.begin` after."""
    random = np.random.default_rng(11)
    for _ in range(12):
        for _ in range(random.integers(3, 30)):
            submit(ledger, str(random.choice(("", "ann", "bob", "cid"))), int(random.choice((0, 0, 0, 5))))
        for _ in range(random.integers(5)):
            one = ledger.begin()
            if one is not None and random.random() < 0.5:
                ended = Outcome(seconds=float(random.choice((1.0, 2.0, 40.0))))
                ledger.finish(one.number, one.attempt, State.DONE, ended)
        readings = Readings(ledger.database)
        readings._seconds_of = lambda token: ended_s(ledger.database, token, 1e6)  # the ledger's clock
        waiting = readings.jobs(JobFilter(state=State.QUEUED), None, 500).jobs
        promised = sorted(waiting, key=lambda job: readings.place(job, ledger.waiting))
        assert sorted(readings.place(job, ledger.waiting) for job in waiting) == list(range(1, len(waiting) + 1))
        begun = [ledger.begin() for _ in waiting]
        assert [one.id for one in begun] == [job.id for job in promised]
        assert all(readings.place(readings.job(one.id), ledger.waiting) is None for one in begun)
        for one in begun[::2]:  # the others run on
            ledger.finish(one.number, one.attempt, State.DONE, Outcome(seconds=1.0))


def test_a_small_job_of_another_token_is_told_its_turn(tmp_path):
    ann, bob = bearer(tmp_path, "ann"), bearer(tmp_path, "bob")
    with serving(tmp_path, FakeJobs(slots=0)) as (client, _):
        heavy = [post(client, ann).json()["id"] for _ in range(5)]
        light = post(client, bob).json()["id"]
        assert client.get(f"/v1/jobs/{light}", headers=bob).json()["place"] == 2  # 6 by its number
        assert [client.get(f"/v1/jobs/{name}", headers=ann).json()["place"] for name in heavy] == [1, 3, 4, 5, 6]
        assert [job["place"] for job in client.get("/v1/jobs", headers=ann).json()["jobs"]] == [6, 5, 4, 3, 1]


def test_used_seconds_stay_with_every_attempt(ledger):
    submit(ledger, "ann")
    first = ledger.begin()
    ledger.lose(first.number, first.attempt, "killed", 7.0)
    second = ledger.begin()
    ledger.finish(second.number, second.attempt, State.DONE, Outcome(seconds=5.0))
    assert (ledger.worked_s("ann"), ledger.claimed_s("ann")) == (12.0, 12.0)
    for hours, rows in ((25, 1), (50, 0)):
        ledger._clock = lambda: 1e6 + hours * 3600  # noqa: B023
        assert ledger.worked_s("ann") == 0.0
        ledger.forget_usage()
        assert ledger._db.execute("SELECT count(*) FROM usage").fetchone() == (rows,)


def test_priorities_have_a_cap(tmp_path):
    plain, high = bearer(tmp_path, "ann"), bearer(tmp_path, "bob", Quota(priority=7))
    admin = bearer(tmp_path, "root", role=Role.ADMIN)
    with serving(tmp_path, FakeJobs(slots=0)) as (client, _):
        for headers, most in ((plain, 0), (high, 7), (admin, 100)):
            assert post(client, headers, priority=most).status_code == 202
            if most < 100:
                refused(post(client, headers, priority=most + 1), 422, f"maximum of this token, {most}")
    add = ["serve", "token", "add", "cid", "--data", str(tmp_path), "--priority", "3"]
    assert CliRunner().invoke(command, add).exit_code == 0
    assert {one.name: one.quota.priority for one in tokens.listed(tmp_path)}["cid"] == 3
