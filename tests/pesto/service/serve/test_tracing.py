"""Requests have ids, codes of errors, a line in the log of requests and a place in the histograms."""

import ast
import json
import os
import re
import threading
from pathlib import Path

import httpx
import pytest
from fake_jobs import FakeJobs
from litestar.utils import sync
from live_service import live_service
from serving import SOLVE, events, refused, serving, submitted

from pesto.core.errors import FileError
from pesto.core.executing import child_process
from pesto.service.serve import telemetry, tokens
from pesto.service.serve.http.tracing import _ID
from pesto.service.serve.refusals import CODES, code_of
from pesto.service.serve.telemetry import AccessLog, Histogram

ROOT = Path(__file__).parents[4]


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_code_is_in_the_docs_and_in_the_document(client):
    page = (ROOT / "docs" / "guides" / "service.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.*) \|$", page, re.M)
    assert [(code, int(status), meaning) for code, status, meaning in rows] == [
        (code, one.status, one.meaning) for code, one in CODES.items()
    ]
    document = client.get("/v1/openapi.json").json()
    assert document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"] == list(CODES)


def test_each_refusal_has_a_code_of_its_status():
    """All that the service's source refuses, by the status and the code that are written there."""
    found = 0
    for path in (ROOT / "pesto" / "service" / "serve").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            name = getattr(getattr(call, "func", None), "id", "")
            if name not in ("RefusedError", "full") or path.stem == "refusals":
                continue
            status = 429 if name == "full" else call.args[0].value
            usual = code_of(status)
            codes = [word.value.value for word in call.keywords if word.arg == "code"] or [usual]
            assert CODES[codes[0]].status == status, (path, call.lineno)
            found += 1
    assert found > 15


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (("GET", "/v1/nothing"), "not_found"),
        (("GET", "/v1/jobs/nobody"), "not_found"),
        (("PATCH", "/v1/jobs"), "method_not_allowed"),
        (("GET", "/v1/jobs?most=0"), "invalid_request"),
        (("POST", "/v1/jobs", {"kind": "solve"}), "invalid_job"),
        (("POST", "/v1/jobs", SOLVE | {"limits": {"threads": 65}}), "beyond_limit"),
        (("POST", "/v1/jobs", {"kind": "solve", "source": {"blob": "0" * 64, "name": "g.json"}}), "blob_missing"),
    ],
)
def test_codes_tell_errors_apart(client, ask, code):
    answer = client.request(*ask[:2], **({"json": ask[2]} if len(ask) > 2 else {}))
    refused(answer, CODES[code].status)
    assert answer.json()["code"] == code


def test_an_id_is_taken_over_or_made(client):
    for path in ("/healthz", "/v1/jobs", "/v1/nothing", "/", "/v1/openapi.json"):
        assert client.get(path, headers={"X-Request-Id": "trace-1.a:b_c"}).headers["x-request-id"] == "trace-1.a:b_c"
    made = [client.get("/healthz").headers["x-request-id"] for _ in range(2)]
    assert len(set(made)) == 2 and all(map(re.compile("[0-9a-f]{16}").fullmatch, made))
    for wrong in ("x" * 101, "", "a b", 'a"', "a;b"):
        assert client.get("/healthz", headers={"X-Request-Id": wrong}).headers["x-request-id"] != wrong
    assert not _ID.fullmatch(b"a\nb")
    assert client.head("/healthz", headers={"X-Request-Id": "head"}).headers["x-request-id"] == "head"


def test_who_asked_what_is_written(tmp_path):
    """Names and never tokens; what was refused; the job of a submission; a stream once it has ended."""
    log = tmp_path / "access.jsonl"
    data = tmp_path / "data"
    data.mkdir()
    eve = tokens.add(data, "eve", tokens.Quota(), role=tokens.Role.READER)
    ann = tokens.add(data, "ann", tokens.Quota())
    as_ann, as_eve = ({"Authorization": f"Bearer {token}"} for token in (ann, eve))
    with serving(data, access_log=str(log)) as (client, _):
        job = client.post("/v1/jobs", json=SOLVE, headers=as_ann | {"X-Request-Id": "first"}).json()["id"]
        client.get(f"/v1/jobs/{job}/events", headers=as_ann)
        client.post("/v1/jobs", json=SOLVE, headers=as_eve)
        client.get("/v1/jobs?label=a%20b&most=1", headers={"Authorization": f"Bearer {ann}x"})
        client.head("/v1/jobs/a%0ab", headers=as_ann)
    first, stream, reader, unknown, head = lines(log)
    assert (first["id"], first["token"], first["role"], first["job"]) == ("first", "ann", "user", job)
    assert (first["method"], first["path"], first["status"]) == ("POST", "/v1/jobs", 202) and first["sent_bytes"] > 10
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"]) and first["seconds"] > 0
    assert (stream["path"], stream["status"]) == (f"/v1/jobs/{job}/events", 200)
    assert (reader["token"], reader["role"], reader["code"]) == ("eve", "reader", "forbidden_role")
    assert (unknown["token"], unknown["status"], unknown["query"]) == ("", 401, "label=a%20b&most=1")
    assert (head["method"], head["path"], head["code"]) == ("HEAD", "/v1/jobs/a\nb", "not_found")
    text = log.read_text()
    assert ann not in text and eve not in text and "Bearer" not in text
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_address_is_that_of_the_connection_whatever_a_header_says(tmp_path):
    """A proxy hands on what its clients say, and so could each of them write another address into the log."""
    log = tmp_path / "access.jsonl"
    with live_service(tmp_path / "data", access_log=str(log)) as service:
        named = {"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1", "X-Real-IP": "192.0.2.1"}
        assert httpx.get(f"{service.url}/healthz", headers=named, timeout=600).status_code == 200
    assert [line["address"] for line in lines(log)] == ["127.0.0.1"]


def test_a_log_that_was_renamed_is_made_anew(tmp_path):
    file = tmp_path / "access.jsonl"
    log = AccessLog(str(file))
    log.add({"k": 1})
    while not file.read_text():
        pass
    file.rename(tmp_path / "old")
    log.add({"k": 2})
    log.close()
    assert (lines(tmp_path / "old"), lines(file)) == ([{"k": 1}], [{"k": 2}])
    with pytest.raises(FileError, match="name another file"):
        AccessLog(str(tmp_path / "none" / "file"))


def test_lines_that_nobody_takes_are_counted(tmp_path, monkeypatch):
    file = tmp_path / "pipe"
    os.mkfifo(file)
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(str(file))
    monkeypatch.setattr(telemetry, "MOST_WAITING", 10)
    for k in range(5000):  # more than a pipe holds, and the queue
        log.add({"k": k, "x": "x" * 100})
    found = b""
    closing = [log.close]
    while closing or not found.endswith(b"}\n"):
        try:
            found += os.read(reader, 1 << 20)
        except BlockingIOError:
            if log._lines.qsize() == 0 and closing:
                log.add({"k": "last"})
                closing.pop()()
    found += b"".join(iter(lambda: _rest(reader), b""))
    told = [json.loads(line) for line in found.splitlines()]
    lost = sum(one.get("dropped", 0) for one in told)
    assert lost > 0 and told[-1] == {"k": "last"}
    assert lost + len([one for one in told if "x" in one]) == 5000
    os.close(reader)


def test_a_pipe_that_nobody_reads_holds_up_neither_begin_nor_end(tmp_path, monkeypatch, caplog):
    file = tmp_path / "pipe"
    os.mkfifo(file)

    def begun():
        with pytest.raises(FileError, match="nobody reads"):
            AccessLog(str(file))

    require_end(begun)
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(telemetry, "CLOSE_S", 0.01)
    log = AccessLog(str(file))
    for k in range(5000):
        log.add({"k": k, "x": "x" * 100})
    require_end(log.close)
    assert "nobody takes them" in caplog.text
    os.close(reader)  # the thread ends by that


def require_end(act):
    """Call it in a thread, which must end: what hangs is not to hang the tests."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def _rest(reader):
    try:
        return os.read(reader, 1 << 20)
    except BlockingIOError:
        return b""


def test_histograms(tmp_path):
    with serving(tmp_path, FakeJobs()) as (client, _):
        job = submitted(client)
        events(client, job)
        client.get(f"/v1/jobs/{job}")
        client.head(f"/v1/jobs/{job}")
        client.request("BREW", "/v1/nothing")
        text = client.get("/metrics").text
    assert "pesto_job_wait_seconds_count 1.0" in text and "pesto_job_run_seconds_sum 1.0" in text
    route = 'route="/v1/jobs/{name}",status="200"'
    for method in ("GET", "HEAD"):
        assert f'pesto_http_request_seconds_count{{method="{method}",{route}}} 1.0' in text
    assert 'pesto_http_request_seconds_count{method="other",route="other",status="4' in text
    assert f'pesto_http_request_seconds_bucket{{le="+Inf",method="GET",{route}}} 1.0' in text


def test_a_histogram_counts_what_is_at_most_each_bound():
    counted = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        counted.add(value)
    assert counted.cumulated() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)] and counted.sum == 12.0


def test_a_request_asks_neither_another_thread_nor_the_machine(tmp_path, monkeypatch):
    """Both cost more than all the rest of a submission, in the event loop's thread."""
    asked = []

    class Asked:
        def __truediv__(self, name):
            asked.append(name)
            return tmp_path / name

    monkeypatch.setattr(sync, "sync_to_thread", lambda function, *_, **__: asked.append(function))
    with serving(tmp_path, FakeJobs(slots=0)) as (client, _):
        monkeypatch.setattr(child_process, "_PROC", Asked())
        name = submitted(client)
        for path in (f"/v1/jobs/{name}", "/v1/jobs", "/healthz", "/metrics"):
            assert client.get(path).status_code == 200
        assert client.delete(f"/v1/jobs/{name}").status_code == 200
        limited = SOLVE | {"limits": {"rss_bytes": 2**60}}
        refused(client.post("/v1/jobs", json=limited), 422, "rss_bytes")
    assert asked == []
