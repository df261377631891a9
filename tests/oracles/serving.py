"""A service with jobs that take no time, a client of its routes, and what a test of them says again and again."""

import json
from contextlib import contextmanager

from fake_jobs import FakeJobs
from litestar.testing import TestClient

from pesto.service.serve.http.app import application
from pesto.service.serve.refusals import CODES
from pesto.service.serve.serve_config import ServeConfig
from pesto.service.serve.server import opened

SOLVE = {"kind": "solve", "source": {"model": "rnnlm"}}
LOCAL = {"base_url": "http://127.0.0.1"}


@contextmanager
def serving(folder, jobs=None, **config):
    """A client of a service over a folder, and the service."""
    with (
        opened(folder, ServeConfig(**config), lambda: jobs or FakeJobs()) as service,
        TestClient(application(service), **LOCAL) as client,
    ):
        yield client, service


def submitted(client, label="", **more):
    answer = client.post("/v1/jobs", json=SOLVE | {"label": label} | more)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == answer.json()["url"]
    return answer.json()["id"]


def events(client, name, last=None):
    """The events of a job that ends, as (number, kind, data)."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    text = client.get(f"/v1/jobs/{name}/events", headers=headers).text
    blocks = [
        dict(line.split(": ", 1) for line in block.split("\n")) for block in text.split("\n\n") if "id: " in block
    ]
    return [(int(block["id"]), block["event"], json.loads(block["data"])) for block in blocks]


def told(client, name):
    """The job once it has ended."""
    events(client, name)
    return client.get(f"/v1/jobs/{name}").json()


def refused(answer, status, *words):
    assert answer.status_code == status, answer.text
    problem = answer.json()
    assert set(problem) <= {"error", "where", "remedy", "exit_code", "code", "request_id"}
    assert CODES[problem["code"]].status == status
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert "\n" not in problem["error"]
    assert problem["remedy"]
    for word in words:
        assert word in problem["error"] + problem["remedy"]
