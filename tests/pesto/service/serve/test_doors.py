"""Nobody comes in without a token where there were some, whatever becomes of their file; odd requests are refused."""

import json
import logging
from http.client import HTTPConnection

import pytest
from live_service import live_service
from serving import SOLVE, refused, serving

from pesto.core.errors import InputError
from pesto.service.serve import tokens
from pesto.service.serve.http import job_routes
from pesto.verbs.jobs.request import JobRequest

HERE = {"Host": "localhost"}


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch):
    monkeypatch.setattr(tokens, "LOOK_S", 0.0)


def bearer(token):
    return HERE | {"Authorization": f"Bearer {token}"}


def lose(folder, how):
    """Take away all tokens in one of the ways in which that happens."""
    file = folder / tokens.FILE
    if how == "removed":
        tokens.remove(folder, "ann")
    elif how == "deleted":
        file.unlink()
    elif how == "folder":
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(how)


WAYS = ("removed", "deleted", "folder", b"[]", b'{"format": "pesto-tok', b"", b"\xff", b'{"tokens": "\xff"}')


@pytest.mark.parametrize("how", WAYS)
def test_beyond_loopback_nobody_comes_in_without_a_token(tmp_path, how):
    tokens.add(tmp_path, "ann", tokens.Quota())
    with serving(tmp_path, host="0.0.0.0") as (client, _):  # noqa: S104 - nothing is bound
        lose(tmp_path, how)
        for _ in range(2):
            refused(client.post("/v1/jobs", json=SOLVE, headers=HERE), 401)
        if isinstance(how, bytes) or how == "folder":
            return
        bob = tokens.add(tmp_path, "bob", tokens.Quota())
        assert client.post("/v1/jobs", json=SOLVE, headers=bearer(bob)).status_code == 202


def test_a_new_token_is_known_at_once(tmp_path, monkeypatch):
    """Also right behind another look at the file, while removed ones are noticed at the next look."""
    ann = tokens.add(tmp_path, "ann", tokens.Quota())
    monkeypatch.setattr(tokens, "LOOK_S", 1e6)
    authenticator = tokens.TokenAuthenticator(tmp_path, loopback=True)
    authenticator.refresh()
    tokens.remove(tmp_path, "ann")
    authenticator.refresh()
    assert authenticator.find(ann) is not None
    bob = tokens.add(tmp_path, "bob", tokens.Quota())
    assert authenticator.find(bob).name == "bob" and authenticator.find(ann) is None


def test_a_file_that_cannot_be_read_is_logged_once_and_known_tokens_stay(tmp_path, caplog):
    ann = tokens.add(tmp_path, "ann", tokens.Quota())
    whole = (tmp_path / tokens.FILE).read_bytes()
    with serving(tmp_path, host="0.0.0.0") as (client, _), caplog.at_level(logging.ERROR):  # noqa: S104
        lose(tmp_path, b"[]")
        for _ in range(3):
            assert client.get("/v1/jobs", headers=bearer(ann)).status_code == 200
        assert len([line for line in caplog.records if line.name == "pesto.service.serve.tokens"]) == 1
        (tmp_path / tokens.FILE).write_bytes(whole)
        tokens.remove(tmp_path, "ann")
        refused(client.get("/v1/jobs", headers=bearer(ann)), 401)


@pytest.mark.parametrize("how", WAYS)
def test_on_loopback_the_last_token_removed_opens_and_a_lost_file_does_not(tmp_path, how):
    tokens.add(tmp_path, "ann", tokens.Quota())
    with serving(tmp_path) as (client, _):
        lose(tmp_path, how)
        assert client.get("/v1/jobs", headers=HERE).status_code == (200 if how == "removed" else 401)


@pytest.mark.parametrize("how", ["folder", b"[]", b"", b'{"format": "pesto-tok'])
def test_a_file_that_cannot_be_read_lets_nobody_in_who_needed_no_token_before(tmp_path, how):
    """There may be tokens in it; once it is gone again there never were any."""
    (tmp_path / tokens.FILE).touch()
    with pytest.raises(InputError):  # nor does a server start with such a file
        tokens.TokenAuthenticator(tmp_path, loopback=True)
    (tmp_path / tokens.FILE).unlink()
    with serving(tmp_path) as (client, _):
        assert client.get("/v1/jobs", headers=HERE).status_code == 200
        if how == "folder":
            (tmp_path / tokens.FILE).mkdir()
        else:
            (tmp_path / tokens.FILE).write_bytes(how)
        refused(client.get("/v1/jobs", headers=HERE), 401)
        (tmp_path / tokens.FILE).rmdir() if how == "folder" else (tmp_path / tokens.FILE).unlink()
        assert client.get("/v1/jobs", headers=HERE).status_code == 200


def test_a_lost_file_is_noticed_also_by_the_next_server(tmp_path):
    """By the jobs of tokens that are there."""
    ann = tokens.add(tmp_path, "ann", tokens.Quota())
    with serving(tmp_path) as (client, _):
        assert client.post("/v1/jobs", json=SOLVE, headers=bearer(ann)).status_code == 202
    lose(tmp_path, "deleted")
    with serving(tmp_path) as (client, _):
        refused(client.get("/v1/jobs", headers=HERE), 401)


def test_jobs_of_a_removed_token_keep_its_quota(tmp_path):
    few = tokens.Quota(jobs=1)
    tokens.add(tmp_path, "ann", few)
    authenticator = tokens.TokenAuthenticator(tmp_path, loopback=True)
    tokens.remove(tmp_path, "ann")
    authenticator.refresh()
    assert authenticator.quota("ann") == few
    assert tokens.TokenAuthenticator(tmp_path, loopback=True).quota("ann") == few  # of another server, too
    assert authenticator.quota("") == tokens.MACHINE
    assert authenticator.quota("nobody") == tokens.Quota()
    tokens.add(tmp_path, "ann", tokens.Quota(jobs=2))
    authenticator.refresh()
    assert authenticator.quota("ann").jobs == 2
    assert json.loads((tmp_path / tokens.FILE).read_bytes())["removed"] == {}


@pytest.mark.parametrize(
    "body", [b'{"kind": "\xff"}', b'{"\xff": 1}', b'{"kind": "solve", "label": "\xe2\x82"}', b'{"a": "\xed\xa0\x80"}']
)
def test_a_body_that_is_no_utf8(client, body):
    refused(client.post("/v1/jobs", content=body), 400, "UTF-8")


def test_a_header_that_is_there_twice(tmp_path):
    """Over a socket, since clients of tests join such headers; also where nobody asks who it is."""
    with live_service(tmp_path) as live:
        for path in ("/healthz", "/readyz", "/metrics", "/", "/frame", "/v1/models", "/v1/jobs", "/v1/openapi.json"):
            for name in ("Host", "Authorization", "Origin", "Idempotency-Key"):
                link = HTTPConnection("127.0.0.1", int(live.url.rpartition(":")[2]), timeout=60)
                link.putrequest("GET", path, skip_host=True)
                for value in ("127.0.0.1", "evil.example"):
                    link.putheader(name, value)
                if name != "Host":
                    link.putheader("Host", "127.0.0.1")
                link.endheaders()
                answer = link.getresponse()
                assert (answer.status, b"several headers " + name.encode() in answer.read()) == (400, True), path
                link.close()


def test_requests_that_were_looked_at_are_remembered_by_their_digest_alone(monkeypatch):
    """A request may have 1 MiB, and a thousand of them are remembered."""
    looked = []
    monkeypatch.setattr(job_routes, "checked", looked.append)
    monkeypatch.setattr(job_routes, "_FINE", {})
    requests = [JobRequest(kind="solve", label=str(k)) for k in range(job_routes.MOST_FINE + 1)]
    for request in requests[:2] * 2 + requests[2:] + requests[:1] + requests[-1:]:
        job_routes.check_once(request, request.label.encode())
    assert looked == [*requests, requests[0]]
    assert len(job_routes._FINE) == job_routes.MOST_FINE
    assert all(isinstance(digest, bytes) for digest in job_routes._FINE)


def test_models_are_told_to_nobody_without_a_token(tmp_path):
    """Also not after somebody with one has asked."""
    ann = tokens.add(tmp_path, "ann", tokens.Quota())
    with serving(tmp_path) as (client, _):
        assert client.get("/v1/models", headers=bearer(ann)).status_code == 200
        refused(client.get("/v1/models", headers=HERE), 401)
