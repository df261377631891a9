"""A key that is known has its job, with the same request, whatever has filled up or changed since."""

import pytest
from fake_jobs import FakeJobs
from serving import SOLVE, refused, serving, told

from pesto.service.serve import tokens
from pesto.service.serve.http import job_routes
from pesto.service.serve.serve_config import JobBounds

KEY = {"Idempotency-Key": "monday"}
LONG = SOLVE | {"settings": {"time_limit_s": 30}}


def sent(client, body=SOLVE, **headers):
    return client.post("/v1/jobs", json=body, headers=headers)


def comes_again(client, first, status, body=SOLVE, **headers):
    """Others are refused so, the key that is known has its job, and another request by it is told of the key."""
    refused(sent(client, body, **headers), status)
    refused(sent(client, body, **headers | {"Idempotency-Key": "tuesday"}), status)
    again = sent(client, body, **headers | KEY)
    assert (again.status_code, again.json()) == (202, first.json())
    assert again.headers["location"] == again.json()["url"]
    refused(sent(client, body | {"label": "x"}, **headers | KEY), 409, "new key")


def test_a_key_makes_one_job_of_many_submissions(tmp_path):
    with serving(tmp_path) as (client, _):
        first, again = sent(client, **KEY), sent(client, **KEY)
        assert first.json() == again.json()
        assert len(client.get("/v1/jobs").json()["jobs"]) == 1
        refused(sent(client, SOLVE | {"label": "x"}, **KEY), 409, "different request", "new key")


def test_where_too_much_waits(tmp_path, monkeypatch):
    """In the queue, and for the disk."""
    with serving(tmp_path, FakeJobs(slots=0), queued=1) as (client, _):
        first = sent(client, **KEY)
        comes_again(client, first, 429)
        monkeypatch.setattr(job_routes, "MOST_TURNS", -1)
        comes_again(client, first, 429)


def test_where_a_token_has_had_its_hours(tmp_path):
    """A token's keys are its own."""
    ann, bob = (tokens.add(tmp_path, name, tokens.Quota(hours=0.5 / 3600)) for name in ("ann", "bob"))
    as_ann, as_bob = ({"Authorization": f"Bearer {token}"} for token in (ann, bob))
    with serving(tmp_path) as (client, _):
        first = sent(client, **as_ann | KEY)
        client.get(f"{first.json()['url']}/events", headers=as_ann)
        comes_again(client, first, 429, **as_ann)
        other = sent(client, **as_bob | KEY)
        assert other.status_code == 202 and other.json() != first.json()


def test_where_the_disk_is_full(tmp_path, monkeypatch):
    """Before a commit, and in it: SQLite's own limit of pages stands for the disk's."""
    with serving(tmp_path, FakeJobs(slots=0)) as (client, service):
        first = sent(client, **KEY)
        with monkeypatch.context() as full:
            full.setattr(service.blobs, "_space", lambda _: 0.04)
            full.setattr(service.blobs, "_looked", -1e9)
            comes_again(client, first, 507)
        monkeypatch.setattr(service.blobs, "_looked", -1e9)
        assert sent(client).status_code == 202
        service.store.writer.do(lambda ledger: ledger._db.execute("PRAGMA max_page_count = 1").fetchone())
        while sent(client).status_code == 202:
            pass
        comes_again(client, first, 507)


def test_where_the_request_would_be_refused_today(tmp_path):
    """By bounds that are less now, and by the files of another job, which were removed."""
    with serving(tmp_path) as (client, service):
        first = sent(client, LONG, **KEY)
        told(client, first.json()["id"])
        asked = {"kind": "check", "plan": {"job": first.json()["id"]}}
        check = sent(client, asked, **KEY | {"Idempotency-Key": "check"})
        service.store.writer.do(lambda ledger: ledger._db.execute("UPDATE jobs SET expired = 1"))
        refused(sent(client, asked), 422, "no plan")
        again = sent(client, asked, **KEY | {"Idempotency-Key": "check"})
        assert (again.status_code, again.json()) == (202, check.json())
    with serving(tmp_path, job=JobBounds(seconds=10.0)) as (client, _):
        comes_again(client, first, 422, LONG)


@pytest.mark.parametrize("how", ["wrong token", "wrong host"])
def test_who_may_not_ask_is_told_no_job(tmp_path, how):
    with serving(tmp_path) as (client, _):
        assert sent(client, **KEY).status_code == 202
    if how == "wrong token":
        tokens.add(tmp_path, "ann", tokens.Quota())
    with serving(tmp_path) as (client, _):
        headers = KEY if how == "wrong token" else KEY | {"Host": "evil.example"}
        refused(sent(client, **headers), 401 if how == "wrong token" else 403)
