"""Receivers are told of the end of jobs: signed, again until they have it, and at no private address unless allowed."""

import hashlib
import hmac
import ipaddress
import json
import socket
import threading
import time
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner
from fake_jobs import FakeJobs
from serving import SOLVE, refused, serving

from benchmarks.postgres_server import PostgresServer, missing
from pesto.cli.main import pesto
from pesto.service.serve import tokens, webhooks
from pesto.service.serve.serve_config import WebhookConfig
from pesto.service.serve.store import ledger as ledger_module
from pesto.service.serve.store.job_records import Submission
from pesto.service.serve.store.ledger import Ledger
from pesto.service.serve.store.sqlite_file import connected
from pesto.service.serve.webhooks import WebhookError, claim_webhooks, is_public, pause_s, send, webhook_key

ON = WebhookConfig(enabled=True, private=True, tries=3)


@contextmanager
def receiver(*statuses, slow=False):
    """A receiver that answers so, the last status again and again: its address, and what it was told."""
    told, left = [], list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.append((self.path, dict(self.headers), body))
            if slow:
                while True:
                    self.wfile.write(b"H")
                    time.sleep(0.05)
            status = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    class Quiet(HTTPServer):
        def handle_error(self, *_):
            pass

    with Quiet(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook?secret=x", told
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def ledger(tmp_path):
    database = connected(tmp_path)
    yield Ledger(database)
    database.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(webhooks, "LOOK_S", 0.01)
    monkeypatch.setattr(webhooks, "FIRST_S", 0.001)


def until(true):
    while not true():
        time.sleep(0.005)


def due(service):
    return service.store.writer.do(
        lambda ledger: ledger.database.execute("SELECT count(*) FROM webhooks").fetchone()[0]
    )


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True), ("2606:4700::1111", True), ("127.0.0.1", False), ("10.1.2.3", False), ("172.16.0.1", False),
        ("192.168.1.1", False), ("169.254.169.254", False), ("100.64.0.1", False), ("0.0.0.0", False),  # noqa: S104
        ("224.0.0.1", False), ("255.255.255.255", False), ("::1", False), ("::", False), ("fe80::1", False),
        ("fd00::1", False), ("::ffff:127.0.0.1", False), ("::ffff:8.8.8.8", True), ("64:ff9b::a00:1", False),
        ("64:ff9b::808:808", True), ("2002:7f00:1::", False), ("2001:0:7f00:1::", False), ("ff02::1", False),
        ("::127.0.0.1", False), ("::10.0.0.1", False), ("fec0::1", False), ("64:ff9b:1::a00:1", False),
        ("::ffff:0:127.0.0.1", False), ("100::1", False), ("2001:db8::1", False), ("4000::1", False),
    ],
)  # fmt: skip
def test_addresses_of_the_internet(address, public):
    assert is_public(ipaddress.ip_address(address)) == public


def test_a_receiver_is_told_once_and_can_tell_who_signed(tmp_path):
    ann = {"Authorization": f"Bearer {tokens.add(tmp_path, 'ann', tokens.Quota())}"}
    with receiver(204) as (url, told), serving(tmp_path, webhooks=ON) as (client, service):
        name = client.post("/v1/jobs", json=SOLVE | {"notify": url, "label": "mine"}, headers=ann).json()["id"]
        until(lambda: told and due(service) == 0)
        shown = client.get(f"/v1/jobs/{name}", headers=ann).json()["request"]["notify"]
    [(path, headers, body)] = told
    job = json.loads(body)
    assert (path, job["event"], job["id"], job["state"], job["label"]) == (
        "/hook?secret=x", "job.ended", name, "done", "mine",
    )  # fmt: skip
    assert headers["X-Pesto-Delivery"] == name and "secret" not in shown and shown.startswith("http://127.0.0.1")
    came = CliRunner().invoke(pesto, ["serve", "token", "webhook-key", "ann", "--data", str(tmp_path)])
    signed = hmac.new(came.output.strip().encode(), f"{headers['X-Pesto-Timestamp']}.".encode() + body, hashlib.sha256)
    assert headers["X-Pesto-Signature"] == f"sha256={signed.hexdigest()}"


def test_keys_differ_by_token_and_stay(tmp_path):
    keys = [webhook_key(tmp_path, name) for name in ("ann", "bob", "", "ann")]
    assert len(set(keys)) == 3 and keys[0] == keys[3]
    assert (tmp_path / webhooks.KEY_FILE).stat().st_mode & 0o777 == 0o600
    came = CliRunner().invoke(pesto, ["serve", "token", "webhook-key", "eve", "--data", str(tmp_path)])
    assert came.exit_code != 0


@pytest.mark.parametrize(("statuses", "tries"), [((500, 302, 200), 3), ((404,), 3), ((302,), 3)])
def test_it_is_tried_again_and_given_up_in_the_end(tmp_path, statuses, tries):
    """A redirection is no answer, and is not followed."""
    with receiver(*statuses) as (url, told), serving(tmp_path, webhooks=ON) as (client, service):
        client.post("/v1/jobs", json=SOLVE | {"notify": url, "label": "wrong"})
        until(lambda: len(told) >= tries and due(service) == 0)
    assert [path for path, _, _ in told] == ["/hook?secret=x"] * tries
    assert json.loads(told[-1][2])["state"] == "failed"


def test_what_was_not_told_is_told_by_the_next_server(tmp_path, monkeypatch):
    with receiver(200) as (url, told):
        with monkeypatch.context() as patch, serving(tmp_path, webhooks=ON) as (client, service):
            patch.setattr(webhooks, "LOOK_S", 1e6)
            client.post("/v1/jobs", json=SOLVE | {"notify": url})
            waits = client.post("/v1/jobs", json=SOLVE | {"notify": url, "label": "wait"}).json()["id"]
            client.delete(f"/v1/jobs/{waits}")
            until(lambda: due(service) == 2 or told)
        with serving(tmp_path, webhooks=ON) as (_, service):
            until(lambda: due(service) == 0)
    assert sorted(json.loads(body)["state"] for _, _, body in told) == ["cancelled", "done"]


def test_a_job_that_was_deleted_is_not_told(tmp_path, monkeypatch):
    with receiver(200) as (url, told), serving(tmp_path, webhooks=ON) as (client, service):
        monkeypatch.setattr(webhooks, "claim_webhooks", lambda *_: [])
        name = client.post("/v1/jobs", json=SOLVE | {"notify": url}).json()["id"]
        until(lambda: due(service) == 1)
        assert client.delete(f"/v1/jobs/{name}?purge").status_code == 200
        monkeypatch.undo()
        until(lambda: due(service) == 0)
    assert told == []


def test_private_addresses_are_not_connected_to(monkeypatch):
    """Whatever their name; a name is asked for once, and the address that was looked at is the one that is used."""
    asked = []

    def resolved(host, port, *_, **__):
        asked.extend([host] if host != "127.0.0.1" else [])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    with receiver(200) as (url, told):
        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        named = url.replace("127.0.0.1", "receiver.example")
        with pytest.raises(WebhookError, match="private network"):
            send(named, b"{}", {}, private=False)
        assert told == [] and asked == ["receiver.example"]
        send(named, b"{}", {}, private=True)
        assert told[0][1]["Host"] == named.split("/")[2] and len(asked) == 2


def test_who_answers_too_slowly_is_cut(monkeypatch):
    monkeypatch.setattr(webhooks, "ANSWER_S", 0.3)
    with receiver(200, slow=True) as (url, _), pytest.raises(WebhookError):
        send(url, b"{}", {}, private=True)


def test_pauses_grow_up_to_an_hour(monkeypatch):
    monkeypatch.setattr(webhooks, "FIRST_S", 5.0)
    assert 80 <= pause_s(3) <= 88.1 and 320 <= pause_s(4) <= 352.1
    assert 3600 <= pause_s(8) <= 3960 and 5 <= pause_s(1) <= 5.5


def test_addresses_are_refused_at_once(tmp_path, client):
    answer = client.post("/v1/jobs", json=SOLVE | {"notify": "https://example.org/"})
    refused(answer, 422, "leave out notify")
    assert answer.json()["code"] == "webhooks_off"
    with serving(tmp_path / "on", webhooks=ON) as (allowed, _):
        for wrong in ("https://", "https://a:b@example.org/", "https://example.org:99999/", "https://[::1/", "http:///x",
                      "https://exa mple.org/", "https://ex\u00e4mple.org/", "https://example.org:0/"):  # fmt: skip
            refused(allowed.post("/v1/jobs", json=SOLVE | {"notify": wrong}), 422, "https://HOST/PATH")
        refused(allowed.post("/v1/jobs", json=SOLVE | {"notify": "ftp://example.org/"}), 400, "notify")


def end_jobs(ledger, token, count):
    """So many jobs of a token that have ended and are to be told."""
    for _ in range(count):
        asked = Submission(token=token, kind="solve", request=b"{}", notify="http://receiver.example/")
        ledger.cancel(ledger.submit(asked))


def test_tokens_take_turns(ledger):
    """However many of one wait, and however long: receivers that do not answer hold up nobody else's."""
    for token, count in (("eve", 50), ("ann", 2), ("bob", 1)):
        end_jobs(ledger, token, count)
    claimed = [[one.token for one in claim_webhooks(ledger, 1.0, 4, lambda _: 1e9)] for _ in range(3)]
    assert list(map(sorted, claimed)) == [["ann", "bob", "eve", "eve"], ["ann", "eve", "eve", "eve"], ["eve"] * 4]


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=f"no PostgreSQL: {missing()}")
def test_two_servers_never_claim_the_same(tmp_path):
    from pesto.service.serve.store.postgres.session import Session, addressed
    from pesto.service.serve.store.postgres.shared_tables import prepare

    with closing(PostgresServer()) as server:
        address = addressed(server.url)
        with closing(Session(address, "a")) as one, closing(Session(address, "b")) as other:
            prepare(one, tmp_path, address.where)
            ledgers = [Ledger(session) for session in (one, other) if session.connect() is None]
            one.begin()
            for token, count in (("eve", 6), ("ann", 1)):
                end_jobs(ledgers[0], token, count)
            one.commit()
            claimed = []
            for _ in range(2):
                for session in (one, other):
                    session.begin()
                claimed += [claim_webhooks(ledger, 1.0, 4, lambda _: 1e9) for ledger in ledgers]
                for session in (one, other):
                    session.commit()
    assert sorted(one.token for one in claimed[0]) == ["ann", "eve", "eve", "eve"] and claimed[1] == []
    jobs = [one.job for found in claimed for one in found]
    assert len(jobs) == len(set(jobs)) == 7


def test_a_token_may_have_so_many_untold(tmp_path, monkeypatch):
    monkeypatch.setattr(webhooks, "LOOK_S", 1e6)
    monkeypatch.setattr(ledger_module, "MOST_UNTOLD", 2)
    ann, bob = ({"Authorization": f"Bearer {tokens.add(tmp_path, name, tokens.Quota())}"} for name in ("ann", "bob"))
    body = SOLVE | {"notify": "https://receiver.example/"}
    with serving(tmp_path, FakeJobs(slots=0), webhooks=ON) as (client, service):
        service.store.writer.do(lambda ledger: end_jobs(ledger, "ann", 2))
        refused(client.post("/v1/jobs", json=body, headers=ann), 429, "leave out notify")
        assert client.post("/v1/jobs", json=SOLVE, headers=ann).status_code == 202
        assert client.post("/v1/jobs", json=body, headers=bob).status_code == 202
