"""Files are taken in whole or not at all, and a full disk is said so."""

import hashlib
import socket

from fake_jobs import FakeJobs
from live_service import live_service
from serving import SOLVE, refused, serving, submitted


def test_uploads(client):
    data = b"a graph" * 300_000
    sha = hashlib.sha256(data).hexdigest()
    asked = {"kind": "solve", "source": {"blob": sha, "name": "g.json"}}
    refused(client.post("/v1/jobs", json=asked), 422, sha, "upload it: PUT")
    assert client.put(f"/v1/blobs/{sha}", content=data).status_code == 201
    again = client.put(f"/v1/blobs/{sha}", content=data)
    assert (again.status_code, again.json()) == (200, {"sha256": sha, "bytes": len(data)})
    assert client.post("/v1/jobs", json=asked).status_code == 202


def test_uploads_that_are_refused_leave_nothing(tmp_path):
    data, other = b"x" * 1000, hashlib.sha256(b"y").hexdigest()
    with serving(tmp_path, upload_gib=1000 / 2**30) as (client, service):
        refused(client.put(f"/v1/blobs/{other}", content=data), 422, hashlib.sha256(data).hexdigest())
        refused(client.put("/v1/blobs/ABC", content=data), 400, "64 hexadecimal")
        refused(client.put(f"/v1/blobs/{other}", content=data + b"x"), 413, "1000 B")
        chunks = iter([data, data])
        refused(client.put(f"/v1/blobs/{other}", content=chunks), 413)  # nobody said how many would come
        short = {"Content-Length": "999"}
        refused(client.put(f"/v1/blobs/{other}", content=iter([data[:500]]), headers=short), 400, "500 of 999")
        assert list(service.blobs.folder.iterdir()) == []


def test_a_full_disk_is_507(tmp_path, monkeypatch):
    with serving(tmp_path) as (client, service):
        monkeypatch.setattr(service.blobs, "_space", lambda _: 0.04)
        monkeypatch.setattr(service.blobs, "_looked", -1e9)
        refused(client.post("/v1/jobs", json=SOLVE), 507, "5%", "free some")
        sha = hashlib.sha256(b"x").hexdigest()
        refused(client.put(f"/v1/blobs/{sha}", content=b"x"), 507)
        assert client.get("/v1/jobs").json()["jobs"] == []


def test_a_disk_that_is_full_in_a_commit_is_507_and_half_of_nothing(tmp_path):
    """SQLite's own limit of pages stands for the disk's."""

    def limit(pages):
        service.store.writer.do(lambda ledger: ledger._db.execute(f"PRAGMA max_page_count = {pages}").fetchone())

    with serving(tmp_path, FakeJobs(slots=0)) as (client, service):
        limit(1)  # which is as many as there are
        fitted, full = [], None
        while full is None:
            answer = client.post("/v1/jobs", json=SOLVE | {"label": "x" * 200})
            if answer.status_code == 202:
                fitted.append(answer.json()["id"])
            else:
                full = answer
        refused(full, 507, "full", "check the folder and the disk")
        assert client.get("/readyz").status_code == 200
        limit(1 << 30)
        fitted.append(submitted(client))
        assert [job["id"] for job in client.get("/v1/jobs?most=500").json()["jobs"]] == fitted[::-1]


def test_an_upload_that_is_cut_leaves_nothing(tmp_path):
    with live_service(tmp_path) as live:
        blobs, head = live.service.blobs.folder, f"PUT /v1/blobs/{'0' * 64} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        for how, begun in (("Content-Length: 1000", b"x" * 500), ("Transfer-Encoding: chunked", b"5\r\nabcde\r\n")):
            with socket.create_connection(("127.0.0.1", int(live.url.rpartition(":")[2]))) as link:
                link.sendall(f"{head}{how}\r\n\r\n".encode() + begun)
                while not list(blobs.iterdir()):
                    pass
            while list(blobs.iterdir()):
                pass
