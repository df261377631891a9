"""Connections are limited in number, and requests in time and size; health is answered nonetheless."""

import json
import logging
import resource
import select
import socket
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
from fake_jobs import FakeJobs
from live_service import live_service
from serving import SOLVE

from pesto.core.errors import UsageError
from pesto.service.serve import server
from pesto.service.serve.http import connections
from pesto.service.serve.http.connections import Gate, LimitedProtocol, address_of, gate_for
from pesto.service.serve.serve_config import ServeConfig

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
JOBS = HEALTH.replace(b"/healthz", b"/v1/jobs")


@contextmanager
def joined(live):
    """A connection to the service."""
    link = socket.create_connection(("127.0.0.1", int(live.url.rpartition(":")[2])))
    link.settimeout(60)
    with link:
        yield link


def answer(link):
    """(status, headers, object) of the next answer; None where the connection ends instead."""
    data = b""
    with suppress(ConnectionResetError):
        while b"\r\n\r\n" not in data:
            part = link.recv(65536)
            if not part:
                return None
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        while len(body) < int(headers["content-length"]):
            body += link.recv(65536)
        return int(first.split(" ")[1]), headers, json.loads(body)
    return None


def asked(link, request):
    link.sendall(request)
    return answer(link)


def ended(link):
    """Whether the service has ended the connection."""
    with suppress(ConnectionResetError):
        return link.recv(1) == b""
    return True


@pytest.fixture
def hasty(monkeypatch):
    """Requests must come at once; it is looked at once a second."""
    for name in ("HEAD_S", "BODY_S", "RESERVE_S"):
        monkeypatch.setattr(connections, name, 0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_requests_that_come_too_slowly_are_cut(tmp_path, caplog):
    body = json.dumps(SOLVE).encode()
    begun = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    with live_service(tmp_path) as live, joined(live) as silent, joined(live) as half, joined(live) as bodiless:
        half.sendall(JOBS[:-2])
        bodiless.sendall(begun + body[:3])
        for link in (silent, half, bodiless):
            status, headers, said = answer(link)
            assert (status, headers["connection"], said["error"]) == (
                408,
                "close",
                "the request took too long to arrive",
            )
            assert ended(link)
        with joined(live) as again:  # in time, also the second one
            assert asked(again, begun + body)[0] == 202
            assert asked(again, JOBS)[0] == 200
            again.sendall(JOBS[:7])
            assert answer(again)[0] == 408
    assert "ended or refused connections" in caplog.text


def test_heads_that_are_too_large_are_refused(tmp_path):
    with live_service(tmp_path) as live:
        for request in (
            JOBS.replace(b"Host", b"A: " + b"x" * 40_000 + b"\r\nHost"),
            JOBS.replace(b"Host", b"A: x\r\n" * 6_000 + b"Host"),
            JOBS.replace(b"jobs", b"jobs?label=" + b"x" * 40_000),
            JOBS[:-2] + b"A: " + b"x" * 400_000,  # and no end
        ):
            with joined(live) as link:
                status, _, said = asked(link, request)
                assert (status, "32768 bytes" in said["error"]) == (431, True)
                assert ended(link)
        with joined(live) as link:
            assert asked(link, JOBS.replace(b"Host", b"A: " + b"x" * 30_000 + b"\r\nHost"))[0] == 200


def test_what_is_no_http_is_refused_as_all_else_and_counted_in_the_log(tmp_path, caplog):
    """As TLS where there is none: any number of it is one line, since strangers could fill the disk."""
    with caplog.at_level(logging.WARNING), live_service(tmp_path) as live:
        sweep, live.gate.sweep = live.gate.sweep, lambda: None
        for request in (b"\x16\x03\x01\x02\x00\x01", b"nonsense\r\n\r\n", JOBS.replace(b"HTTP/1.1", b"HTTP/9")):
            with joined(live) as link:
                status, headers, said = asked(link, request)
                assert (status, headers["content-type"], said["code"]) == (400, "application/json", "invalid_request")
                assert said["remedy"] and said["request_id"] == headers["x-request-id"]
                assert ended(link)
        for name in (b"websocket", b"h2c"):
            with joined(live) as link:
                upgrade = b"Connection: Upgrade\r\nUpgrade: " + name + b"\r\n\r\n"
                assert asked(link, JOBS[:-2] + upgrade)[0] == 200
        sweep()
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
    (line,) = [record.getMessage() for record in caplog.records if "ended or refused" in record.getMessage()]
    assert "3 with what is no HTTP" in line and "2 that asked for another protocol" in line


def test_beyond_the_most_connections_health_alone_is_answered(tmp_path):
    with live_service(tmp_path, connections_per_address=2) as live, joined(live) as first, joined(live) as second:
        assert asked(first, JOBS)[0] == asked(second, JOBS)[0] == 200
        second.sendall(JOBS[:7])
        with joined(live) as other:
            status, headers, said = asked(other, JOBS)
            assert (status, headers["retry-after"], said["error"]) == (503, "2", "there are too many connections")
            assert ended(other)
        for path in (b"/healthz", b"/readyz"):
            with joined(live) as other:
                status, headers, _ = asked(other, HEALTH.replace(b"/healthz", path))
                assert (status, headers["connection"]) == (200, "close")
                assert ended(other)
        assert asked(first, JOBS)[0] == 200
        with joined(live) as a, joined(live) as b, joined(live) as c, joined(live) as d, joined(live) as fifth:
            assert ended(a)  # one address has a part of the reserve alone, and its last connections have it
            assert [asked(link, HEALTH)[0] for link in (b, c, d, fifth)] == [200] * 4
        first.close()
        while live.gate.count > 1:
            time.sleep(0.01)
        with joined(live) as other:
            assert asked(other, JOBS)[0] == 200


def test_health_is_answered_beside_silent_connections_of_the_same_address(tmp_path):
    """As to a probe that comes from the address of a proxy, or of a node, whose other clients hold all places."""
    with live_service(tmp_path, connections_per_address=1) as live, ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(joined(live))  # says nothing
        for _ in range(3):
            with joined(live) as probe:
                assert asked(probe, HEALTH)[0] == 200
        assert live.gate.count <= 1 + connections.RESERVE_EACH


def test_a_body_may_not_trickle_on_what_came_before(tmp_path, monkeypatch):
    """A body that begins fast has no more time for its rest than one that came slowly so far."""
    for name in ("BODY_S", "BODY_MOST_S"):
        monkeypatch.setattr(connections, name, 0.5)
    begun = b"PUT /v1/blobs/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500000\r\n\r\n" % (b"0" * 64)
    with live_service(tmp_path) as live, joined(live) as link:
        link.sendall(begun + b"x" * 400_000)  # 390 s at 1 KiB/s
        assert answer(link)[0] == 408
        assert ended(link)
        with joined(live) as other:
            assert asked(other, JOBS)[0] == 200


def test_a_body_ends_after_its_time_however_fast_it_comes(tmp_path):
    begun = b"PUT /v1/blobs/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\n" % (b"0" * 64)
    with live_service(tmp_path, upload_seconds=0.3) as live, joined(live) as link:
        link.sendall(begun)
        sent = 0
        with suppress(ConnectionError):  # the refusal itself is lost where more came meanwhile
            while not select.select([link], [], [], 0.02)[0]:
                link.sendall(b"x" * 4096)
                sent += 4096
                assert sent < 4 << 20
        with joined(live) as other:
            assert asked(other, JOBS)[0] == 200
        assert live.gate.count <= 1


def test_a_connection_that_waits_for_its_next_request_makes_room(tmp_path):
    with live_service(tmp_path, connections=2) as live, joined(live) as first, joined(live) as second:
        assert asked(second, JOBS)[0] == asked(first, JOBS)[0] == 200
        with joined(live) as third:
            assert asked(third, JOBS)[0] == 200
            assert ended(second)
            assert asked(first, JOBS)[0] == 200


def test_requests_sent_together_are_answered_in_turn(tmp_path):
    with live_service(tmp_path) as live, joined(live) as link:
        link.sendall(HEALTH + JOBS + HEALTH[:9])
        data = b""
        while data.count(b"HTTP/1.1 200") < 2 or not data.endswith(b"}"):
            data += link.recv(65536)
        assert data.index(b'"status"') < data.index(b'"jobs"')
        assert asked(link, HEALTH[9:])[0] == 200


def test_an_answer_that_nobody_reads_ends_its_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "UNREAD_S", 0.1)
    large = {"plan.json": b" " * (32 << 20)}
    with live_service(tmp_path, lambda: FakeJobs(files=large)) as live, joined(live) as link, joined(live) as slow:
        body = json.dumps(SOLVE).encode()
        begun = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        url = asked(link, begun + body)[2]["url"].encode()
        while asked(link, JOBS.replace(b"/v1/jobs", url))[2]["state"] != "done":
            time.sleep(0.01)
        slow.sendall(JOBS.replace(b"/v1/jobs", url + b"/plan"))
        while live.gate.count > 1:
            time.sleep(0.01)


class Closing:
    """A transport that was closed and still has something to send."""

    ended = False

    def is_closing(self):
        return True

    def close(self):
        """Nothing more than before."""

    def abort(self):
        self.ended = True


def test_a_connection_that_was_closed_and_is_not_read_ends():
    link = LimitedProtocol.__new__(LimitedProtocol)
    link._made, link._unread_since, link._phase, link._due_s, link.transport = True, None, 3, 0.0, Closing()
    assert (link.late(1000.0), link.late(1059.0), link.transport.ended) == ("", "", False)
    assert link.late(1060.0) == "with answers that were not read"
    link.cut()
    assert link.transport.ended


class Place:
    """A connection of a gate."""

    dropped = False

    def drop(self):
        self.dropped = True


def test_places_are_counted_by_address():
    gate, made = Gate(3, 2), [Place() for _ in range(6)]
    near, far = ("10.0.0.1", 1), ("10.0.0.2", 1)
    assert [gate.enter(one, near) for one in made[:3]] == [True, True, False]
    assert [gate.enter(one, far) for one in made[3:5]] == [True, False]
    gate.leave(made[0])
    gate.leave(made[0])
    assert (gate.enter(made[5], far), gate.count) == (True, 5)
    for one in made:
        gate.leave(one)
    assert gate.count == 0 and not gate._by_address and not any(one.dropped for one in made)


def test_the_reserve_for_health_drops_who_has_been_there_longest():
    gate = Gate(1, 1)
    gate.enter(Place(), ("10.0.0.9", 1))
    made = [(Place(), f"10.0.{k % 11}.1") for k in range(60)]
    for place, address in made:
        assert gate.enter(place, (address, 1)) is False
    kept = [address for place, address in made if not place.dropped]
    assert len(kept) == connections.RESERVE == gate.count - 1
    assert kept == [address for _, address in made[-connections.RESERVE :]]
    last = [Place() for _ in range(connections.RESERVE_EACH + 1)]
    for place in last:
        gate.enter(place, ("10.0.0.9", 1))
    assert [place.dropped for place in last] == [True] + [False] * connections.RESERVE_EACH


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("10.0.0.1", 80), "10.0.0.1"), (("::ffff:10.0.0.1", 80, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3::4", 80, 0, 0), "2001:db8:1:2::/64"), (("fe80::1%eth0", 80, 0, 2), "fe80::/64"),
        ("", ""), (None, ""),
    ],
)  # fmt: skip
def test_an_address_of_ipv6_is_that_of_its_network(peer, address):
    assert address_of(peer) == address


def test_connections_leave_room_for_other_files(monkeypatch, caplog):
    limits = [256, 1 << 20]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.__setitem__(slice(2), given))
    assert server.raised_file_limit() == limits[0] == 1 << 16
    limits[:] = [256, 256]
    assert server.raised_file_limit() == 256
    assert gate_for(ServeConfig(), 256)._most == 256 - connections.SPARE_FILES - connections.RESERVE
    assert "ulimit -n" in caplog.text
    assert gate_for(ServeConfig(connections=50), 1024)._most == 50
    with pytest.raises(UsageError, match="connections is 0"):
        ServeConfig(connections=0)
