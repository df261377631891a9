"""The document of the routes: each answer, method and kind of job is as it says."""

import httpx
import pytest
from jsonschema import Draft202012Validator
from live_service import live_service
from serving import SOLVE, refused, submitted, told


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
