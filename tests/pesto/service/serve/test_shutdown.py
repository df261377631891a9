"""Requests that are still under way when the service ends: answered 503, with nothing left behind and no traceback."""

import logging
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx
import pytest
from live_service import LiveService

from pesto.service.serve.http import app, file_routes

SLEEPS = """#!/bin/sh
echo $$ > "$(dirname "$0")/pid"
exec sleep 600
"""


@pytest.fixture
def service(tmp_path, monkeypatch):
    monkeypatch.setattr(app, "_CLOSE_S", 0.1)
    found = LiveService(tmp_path / "data")
    yield found
    found.end()


def until(true):
    while not true():
        time.sleep(0.01)


def require_no_traceback(caplog):
    assert not [record for record in caplog.records if record.exc_info]
    assert not any("ASGI" in record.getMessage() for record in caplog.records)


def test_a_comparison_is_answered_and_its_process_ended(service, tmp_path, monkeypatch, caplog):
    program = tmp_path / "sleeps"
    program.write_text(SLEEPS)
    program.chmod(0o755)
    monkeypatch.setattr(file_routes, "sys", SimpleNamespace(executable=str(program)))
    with httpx.Client(base_url=service.url, timeout=600) as client:
        body = {"kind": "solve", "source": {"model": "rnnlm"}}
        a, b = (client.post("/v1/jobs", json=body).json()["id"] for _ in "ab")
        until(lambda: client.get(f"/v1/jobs/{b}").json()["files"])
        came = []
        asking = threading.Thread(target=lambda: came.append(client.get("/v1/diff", params={"a": a, "b": b})))
        asking.start()
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        with caplog.at_level(logging.WARNING):
            service.end()
        asking.join()
    assert (came[0].status_code, came[0].json()["code"]) == (503, "unavailable")
    assert int(came[0].headers["retry-after"]) > 0
    process = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    until(lambda: not process.exists() or process.read_text().rpartition(")")[2].split()[0] == "Z")
    require_no_traceback(caplog)


def test_an_upload_is_answered_and_leaves_nothing(service, caplog):
    where = urlsplit(service.url)
    blobs = service.folder / "blobs"
    with socket.create_connection((where.hostname, where.port)) as slow:
        head = f"PUT /v1/blobs/{'0' * 64} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
        slow.sendall(head.encode() + b"half")
        until(lambda: list(blobs.iterdir()))
        with caplog.at_level(logging.WARNING):
            service.end()
        answer = b"".join(iter(lambda: slow.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"code":"unavailable"' in answer
    assert list(blobs.iterdir()) == []
    require_no_traceback(caplog)
