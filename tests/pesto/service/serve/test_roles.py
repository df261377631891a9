"""Every route by every role: whose jobs it is about, what is refused; tokens that expire, are removed, and are used."""

import hashlib
import threading
import time

import httpx
import msgspec
import pytest
from fake_jobs import FakeJobs
from live_service import live_service
from serving import SOLVE, refused, serving

from pesto.core.errors import UsageError
from pesto.service.serve import tokens
from pesto.service.serve.http import file_routes
from pesto.service.serve.http.caller import ALL, FOR_EVERYBODY, NO, OWN, PERMISSIONS, YES, access_of
from pesto.service.serve.tokens import Role

FILE = b"{}"
SHA = hashlib.sha256(FILE).hexdigest()


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch):
    monkeypatch.setattr(tokens, "LOOK_S", 0.0)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def made(folder, **roles):
    """Headers of new tokens by name; each is of a role."""
    return {name: bearer(tokens.add(folder, name, tokens.Quota(), role=role)) for name, role in roles.items()}


def sent(client, headers, **more):
    answer = client.post("/v1/jobs", json=SOLVE | more, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def until(ask, wanted):
    """Ask until the answer is as wanted; time passes in other threads."""
    while (found := ask()) != wanted:
        time.sleep(0.01)
    return found


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A client, headers of each role and of another user, and the ended job of `ann`, a user."""
    folder = tmp_path_factory.mktemp("house")
    files = dict.fromkeys(("plan.json", "report.html", "trace.json.gz", "explain.json"), b"{}")
    headers = made(folder, root=Role.ADMIN, ann=Role.USER, bob=Role.USER, eve=Role.READER)

    async def compared(*_):
        return {}

    with serving(folder, FakeJobs(files=files)) as (client, _), pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_routes, "_told", compared)  # two plans are compared in a process, which takes seconds
        name = sent(client, headers["ann"])
        client.get(f"/v1/jobs/{name}/events", headers=headers["ann"])
        yield client, headers, name


def test_every_route_has_a_row_or_is_for_everybody(house):
    client, _, _ = house
    described = client.get("/v1/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, methods in described.items() for method in methods}
    asks = {(method, path) for method, path in routes if path not in FOR_EVERYBODY}
    assert asks == set(PERMISSIONS)
    for path in FOR_EVERYBODY:
        assert client.get(path).status_code == 200, path
    assert access_of("GET", "/v1/unknown", Role.ADMIN) == NO


@pytest.mark.parametrize("route", sorted(PERMISSIONS), ids=" ".join)
def test_each_route_by_each_role(house, route):
    """As the table says: 403 for what the role may not, 404 for a job of another, and neither for all else."""
    client, headers, name = house
    method, path = route
    path = path.replace("{name}", name).replace("{file}", "plan.json").replace("{sha256}", SHA)
    query = {"a": name, "b": name} if path.endswith("diff") else {"sha256": SHA} if path.endswith("blobs") else {}
    body = {"json": {"kind": "check", "plan": {"job": name}}} if method == "POST" else {}
    body |= {"content": FILE} if method == "PUT" else {}
    assert client.request(method, path, params=query, **body).status_code == 401
    for who, role in (("root", Role.ADMIN), ("ann", Role.USER), ("bob", Role.USER), ("eve", Role.READER)):
        access = getattr(PERMISSIONS[route], role.value)
        answer = client.request(method, path, params=query, headers=headers[who], **body)
        if path == "/v1/jobs" and method == "GET":
            seen = name in [job["id"] for job in answer.json()["jobs"]]
            assert seen == (access == ALL or who == "ann"), who
        elif access == NO:
            refused(answer, 403, role.value)
        elif access == OWN and who == "bob":
            refused(answer, 404, name)
        else:
            assert access in (ALL, OWN, YES)
            assert answer.status_code in (200, 201, 202), (who, answer.text)


def test_an_admin_cancels_what_a_reader_may_only_watch(tmp_path):
    headers = made(tmp_path, root=Role.ADMIN, ann=Role.USER, eve=Role.READER)
    with serving(tmp_path) as (client, _):
        name = sent(client, headers["ann"], label="wait")
        until(lambda: client.get(f"/v1/jobs/{name}", headers=headers["eve"]).json()["stage"], "solve")
        refused(client.delete(f"/v1/jobs/{name}", headers=headers["eve"]), 403, "reader")
        refused(client.post("/v1/jobs", json=SOLVE, headers=headers["eve"]), 403, "reader")
        assert client.delete(f"/v1/jobs/{name}", headers=headers["root"]).status_code == 200
        until(lambda: client.get(f"/v1/jobs/{name}", headers=headers["ann"]).json()["state"], "cancelled")


def test_a_machine_without_tokens_is_a_user(tmp_path):
    """It sees what was submitted without a token, and no job of a token that was removed."""
    headers = made(tmp_path, ann=Role.USER)
    with serving(tmp_path) as (client, _):
        name = sent(client, headers["ann"])
        tokens.remove(tmp_path, "ann")
        refused(client.get(f"/v1/jobs/{name}"), 404)
        assert client.get(f"/v1/jobs/{sent(client, {})}").json()["who"] == ""


def test_an_expired_token_is_refused_and_opens_nothing(tmp_path, monkeypatch):
    ann = bearer(tokens.add(tmp_path, "ann", tokens.Quota(), expires_s=60.0))
    with serving(tmp_path) as (client, _):
        assert client.get("/v1/jobs", headers=ann).status_code == 200
        later = time.time() + 61
        monkeypatch.setattr(tokens.time, "time", lambda: later)
        refused(client.get("/v1/jobs", headers=ann), 401, "expired")
        refused(client.get("/v1/jobs"), 401)
    with pytest.raises(UsageError, match="cannot expire after"):
        tokens.add(tmp_path, "bob", tokens.Quota(), expires_s=0.0)


@pytest.mark.parametrize("how", ["removed", "expired"])
def test_streams_end_with_their_token(tmp_path, monkeypatch, how):
    """Also while the job tells nothing; a stream of another token goes on."""
    data = tmp_path / "data"
    data.mkdir()
    headers = made(data, eve=Role.READER)
    headers["ann"] = bearer(tokens.add(data, "ann", tokens.Quota(), expires_s=1e6))
    with live_service(data) as live, httpx.Client(base_url=live.url, timeout=60) as client:
        name = sent(client, headers["ann"], label="wait")
        ended = dict[str, str]()

        def follow(who):
            ended[who] = httpx.get(f"{live.url}/v1/jobs/{name}/events", headers=headers[who], timeout=60).text

        threads = [threading.Thread(target=follow, args=(who,)) for who in ("ann", "eve")]
        for thread in threads:
            thread.start()
        until(lambda: live.service.watchers.count, 2)
        if how == "removed":
            tokens.remove(data, "ann")
        else:
            later = time.time() + 2e6
            monkeypatch.setattr(tokens.time, "time", lambda: later)
        threads[0].join()
        assert "done" not in ended["ann"] and live.service.watchers.count == 1
        live.service.watchers.close()
        threads[1].join()


def states(client, headers):
    return [(job["who"], job["state"]) for job in client.get("/v1/jobs", headers=headers).json()["jobs"]]


def test_jobs_of_a_removed_token_are_cancelled(tmp_path):
    """What runs and what waits; those of others, and those of a later token of that name, go on."""
    headers = made(tmp_path, root=Role.ADMIN, ann=Role.USER)
    with serving(tmp_path) as (client, _):
        for who in ("ann", "ann", "root"):
            sent(client, headers[who], label="wait")
        tokens.remove(tmp_path, "ann", cancel=True)
        until(lambda: states(client, headers["root"])[1:], [("ann", "cancelled")] * 2)
        again = made(tmp_path, ann=Role.USER)["ann"]
        sent(client, again, label="wait")
        assert states(client, headers["root"])[0] == ("ann", "queued")
    with serving(tmp_path) as (client, _):  # another server does what was said again, to the same jobs
        until(lambda: client.get("/readyz").status_code, 200)
        until(lambda: states(client, headers["root"])[1][1], "running")
        assert states(client, headers["root"])[0] == ("ann", "queued")


def test_jobs_of_a_removed_token_are_given_to_another(tmp_path):
    """What ended, runs and waits; counts of both tokens stay right, and old keys find nothing."""
    headers = made(tmp_path, ann=Role.USER, bob=Role.USER)
    with serving(tmp_path) as (client, service):
        key = {"Idempotency-Key": "monday"}
        first = client.post("/v1/jobs", json=SOLVE, headers=headers["ann"] | key).json()["id"]
        client.get(f"/v1/jobs/{first}/events", headers=headers["ann"])
        names = [sent(client, headers["ann"], label="wait") for _ in range(2)]
        until(lambda: states(client, headers["ann"])[1][1], "running")
        with pytest.raises(UsageError, match="no token 'bib'"):
            tokens.remove(tmp_path, "ann", give="bib")
        with pytest.raises(UsageError, match="cannot be given to it"):
            tokens.remove(tmp_path, "ann", give="ann")
        tokens.remove(tmp_path, "ann", give="bob")
        until(lambda: states(client, headers["bob"]), [("bob", "queued"), ("bob", "running"), ("bob", "done")])
        waiting = service.store.reader._waiting()
        assert (waiting.queued["ann"], waiting.queued["bob"]) == (0, 1)
        assert (waiting.running["ann"], waiting.running["bob"]) == (0, 1)
        again = made(tmp_path, ann=Role.USER)["ann"]
        other = client.post("/v1/jobs", json=SOLVE, headers=again | key).json()["id"]
        assert other not in (first, *names)
        assert client.delete(f"/v1/jobs/{names[0]}", headers=headers["bob"]).status_code == 200
        until(lambda: states(client, headers["bob"])[1], ("bob", "cancelled"))


def test_last_uses_are_written_for_tokens_that_are_there(tmp_path):
    headers = made(tmp_path, ann=Role.USER, bob=Role.USER, eve=Role.READER)
    ids = {one.name: one.id for one in tokens.listed(tmp_path)}
    assert tokens.last_uses(tmp_path) == {}
    began = time.time()
    with serving(tmp_path) as (client, _):
        for who in ("ann", "bob"):
            client.get("/v1/jobs", headers=headers[who])
        tokens.remove(tmp_path, "bob")
    uses = tokens.last_uses(tmp_path)
    assert set(uses) == {ids["ann"]} and began <= uses[ids["ann"]] <= time.time()
    with serving(tmp_path) as (client, _):
        client.get("/v1/jobs", headers=headers["eve"])
    assert tokens.last_uses(tmp_path)[ids["ann"]] == uses[ids["ann"]]


def test_a_token_file_of_an_older_version_is_read(tmp_path):
    """Without roles: its tokens are of users, and never expire."""
    old = {"format": "pesto-tokens", "format_version": 1, "removed": {}}
    old["tokens"] = [{"name": "ann", "id": "00000000", "sha256": "0" * 64, "quota": {"jobs": 2}}]
    (tmp_path / tokens.FILE).write_bytes(msgspec.json.encode(old))
    (ann,) = tokens.listed(tmp_path)
    assert (ann.role, ann.expires, ann.quota.jobs) == (Role.USER, None, 2)
