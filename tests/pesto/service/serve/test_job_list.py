"""Jobs are listed by any filters, each by an index, in pages of bounded work; what a job is can be seen."""

import itertools
import random
import threading
from contextlib import closing

import pytest
from serving import SOLVE, refused, serving, submitted, told

from benchmarks.postgres_server import PostgresServer, missing
from pesto.service.protocol import State
from pesto.service.serve import tokens
from pesto.service.serve.refusals import RefusedError
from pesto.service.serve.store import readings
from pesto.service.serve.store.job_records import Submission
from pesto.service.serve.store.ledger import Ledger
from pesto.service.serve.store.readings import JobFilter, job_counts, job_page
from pesto.service.serve.store.sqlite_file import connected

KINDS, MODELS, LABELS, OWNERS = ("solve", "check"), ("nmt", "rnnlm", ""), ("", "Nightly 50%", "ÄB"), ("ann", "bob")
VALUES = {
    "owner": OWNERS, "kind": KINDS, "model": MODELS, "label": LABELS, "state": (State.QUEUED, State.DONE),
    "since": (40.0,), "until": (80.0,), "text": ("NIGHT", "50%", "b", "ÄB"),
}  # fmt: skip


def filled(database, count):
    """A database with jobs of all sorts, whose clock went back once: what each is, newest first."""
    times = iter(range(1, 1000))
    ledger, draw = Ledger(database, clock=lambda: float(next(times)) % 100), random.Random(7)  # noqa: S311
    rows = []
    database.begin()
    for _ in range(count):
        row = {"kind": draw.choice(KINDS), "model": draw.choice(MODELS), "label": draw.choice(LABELS)}
        owner = draw.choice(OWNERS)
        name = ledger.submit(Submission(token=owner, request=b'{"kind": "solve"}', **row))
        state = draw.choice((State.QUEUED, State.DONE))
        database.execute("UPDATE jobs SET state = ? WHERE id = ?", (state.value, name))
        (created,) = database.execute("SELECT created FROM jobs WHERE id = ?", (name,)).fetchone()
        rows.append(row | {"owner": owner, "id": name, "state": state, "created": created, "number": len(rows)})
    database.commit()
    return rows[::-1]


def expected(rows, wanted):
    """The ids that a filter lets through, as it says."""

    def fits(row):
        names = ("owner", "kind", "model", "label", "state")
        text = (wanted.text or "").lower()
        return (
            all(getattr(wanted, name) in (None, row[name]) for name in names)
            and (wanted.since is None or row["created"] >= wanted.since)
            and (wanted.until is None or row["created"] < wanted.until)
            and (any(text in row[name].lower() for name in ("label", "model", "kind")) or row["id"].startswith(text))
        )

    found = list(filter(fits, rows))
    if wanted.by_time:
        found.sort(key=lambda row: (row["created"], row["number"]), reverse=True)
    return [row["id"] for row in found]


def paged(database, wanted, most):
    """The ids of all pages."""
    found, after = [], None
    while True:
        page = job_page(database, wanted, after, most)
        assert len(page.jobs) <= most
        found += [job.id for job in page.jobs]
        after = page.after
        if after is None:
            return found


def require_all_filters(database):
    rows = filled(database, 150)
    for names in itertools.chain.from_iterable(itertools.combinations(VALUES, k) for k in range(4)):
        wanted = JobFilter(**{name: VALUES[name][-1 - len(names) % 2] if len(VALUES[name]) > 1 else VALUES[name][0]
                              for name in names})  # fmt: skip
        assert paged(database, wanted, 7) == expected(rows, wanted), wanted
    for text in VALUES["text"]:
        wanted = JobFilter(text=text)
        assert paged(database, wanted, 50) == expected(rows, wanted), text
    wanted = JobFilter(text=rows[3]["id"][:12].upper())
    assert paged(database, wanted, 50) == [rows[3]["id"]]
    for owner in (None, "ann"):
        wanted = JobFilter(owner=owner, label="")
        assert paged(database, wanted, 7) == expected(rows, wanted)
        mine = [row["state"] for row in rows if owner in (None, row["owner"])]
        counts = {state.value: min(mine.count(state), 40) for state in State}
        assert job_counts(database, owner) == counts


@pytest.fixture(params=[20, 1000])
def small(monkeypatch, request):
    """Few jobs are many, for counts and for what a page looks at; or a token has few."""
    monkeypatch.setattr(readings, "LOOKED", request.param)
    monkeypatch.setattr(readings, "COUNTED", 40)


@pytest.mark.usefixtures("small")
def test_filters_let_through_what_they_say(tmp_path):
    """Up to three at a time, in pages, with equal times and times that went back."""
    with closing(connected(tmp_path)) as database:
        require_all_filters(database)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_filters_on_postgresql(tmp_path):
    from pesto.service.serve.store.postgres.session import Session, addressed
    from pesto.service.serve.store.postgres.shared_tables import prepare

    with closing(PostgresServer()) as server:
        address = addressed(server.url)
        with closing(Session(address, "first")) as first:
            prepare(first, tmp_path, address.where)
        with closing(Session(address, "server", turns=True)) as database:
            require_all_filters(database)


class Recorded:
    """A database, and the statements that it was asked."""

    def __init__(self, database):
        self._database, self.asked = database, []

    def execute(self, sql, given=()):
        self.asked.append((sql, given))
        return self._database.execute(sql, given)


@pytest.mark.parametrize("owner", [None, "ann", "few"])
@pytest.mark.parametrize("name", ["owner", "kind", "model", "state", "label", "since", "until", "text"])
@pytest.mark.parametrize("after", [None, "n5t5"])
def test_each_filter_is_by_its_index(tmp_path, monkeypatch, name, owner, after):
    """And by no sorting but of what it looks at: SQLite says how it would answer. A token with few jobs has its own."""
    monkeypatch.setattr(readings, "LOOKED", 3)
    values = VALUES | {"model": ("nmt",), "label": ("x",)}
    wanted = {"owner": owner} | ({} if name == "owner" else {name: values[name][0]})
    with closing(connected(tmp_path)) as database:
        ledger = Ledger(database)
        for _ in range(5):
            ledger.submit(Submission(token=OWNERS[0], kind="solve", request=b"{}"))
        recorded = Recorded(database)
        job_page(recorded, JobFilter(**wanted), after, 50)
        for sql, given in recorded.asked:
            steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
            index = f"jobs_by_{ {'since': 'time', 'until': 'time'}.get(name, name) }"
            if name in ("owner", "text") or (owner == "few" and name != "owner"):
                index = "jobs_of_token" if owner else ""
            if "OFFSET" in sql and "SELECT 1 " in sql:
                index = "jobs_of_token"
            for look in (step for step in steps if " jobs" in step):
                by_number = "INTEGER PRIMARY KEY" in look or (look == "SCAN jobs" and not index and after is None)
                assert f"INDEX {index} (" in look or by_number, (sql, steps)
            sorts = owner is not None or name == "text"
            assert sorts or not any("TEMP B-TREE" in step for step in steps), steps


def test_several_filters_look_at_a_bounded_number(tmp_path):
    with closing(connected(tmp_path)) as database:
        recorded = Recorded(database)
        job_page(recorded, JobFilter(kind="solve", state=State.DONE), None, 50)
        assert f"LIMIT {readings.LOOKED}" in recorded.asked[0][0]


@pytest.mark.parametrize("after", ["", "n", "n1x", "nobody", "n1t", "t1", "n" + "9" * 19, "n1t1e5"])
def test_what_no_page_ends_with(tmp_path, after):
    with closing(connected(tmp_path)) as database:
        for wanted in (JobFilter(), JobFilter(since=0.0)):
            with pytest.raises(RefusedError, match="of the page before"):
                job_page(database, wanted, after, 50)
        with pytest.raises(RefusedError, match="of the page before"):
            job_page(database, JobFilter(until=1.0), "n5", 50)


def test_lists_are_not_made_in_the_event_loop(tmp_path, monkeypatch):
    where = []
    listed = readings.job_page
    with serving(tmp_path) as (client, _):
        monkeypatch.setattr(
            "pesto.service.serve.store.readings.job_page",
            lambda *asked: where.append(threading.current_thread().name) or listed(*asked),
        )
        assert client.get("/v1/jobs").json() == {"jobs": [], "after": None, "counts": {}}
    assert where[0].startswith("lister")


def test_what_a_job_is_can_be_seen(client):
    """All of its request in the job, a summary in lists, and none of it where that is long."""
    sha = "0" * 64
    body = SOLVE | {"settings": {"time_limit_s": 5.0}, "cluster": "v100x4", "label": "mine", "limits": {"threads": 2}}
    name = submitted(client, **{key: value for key, value in body.items() if key not in ("kind", "source")})
    job = told(client, name)
    assert job["request"] == body
    assert (job["source"], job["variant"], job["cluster"]) == ("rnnlm", "", "v100x4")
    assert (job["settings"], job["reads"]) == ({"time_limit_s": 5.0}, {})
    check = client.post("/v1/jobs", json={"kind": "check", "plan": {"job": name, "name": "p.json"}}).json()["id"]
    (listed, _) = client.get("/v1/jobs").json()["jobs"]
    assert (listed["id"], listed["source"], listed["request"]) == (check, "p.json", None)
    assert set(listed["reads"]) == {"plan"} and listed["reads"]["plan"] != sha
    assert client.get("/v1/jobs?kind=check").json()["jobs"][0]["id"] == check
    long = submitted(client, source={"model": "rnnlm", "variant": "tiny"}, settings={"seed": 1}, methods=None)
    assert client.get(f"/v1/jobs/{long}").json()["variant"] == "tiny"


def test_filters_of_the_route(tmp_path):
    ann, bob = ({"Authorization": f"Bearer {tokens.add(tmp_path, name, tokens.Quota())}"} for name in ("ann", "bob"))
    with serving(tmp_path) as (client, _):
        name = client.post("/v1/jobs", json=SOLVE | {"label": "Night run"}, headers=ann).json()["id"]
        client.get(f"/v1/jobs/{name}/events", headers=ann)
        created = client.get(f"/v1/jobs/{name}", headers=ann).json()["created"]

        def found(query, headers=ann):
            answer = client.get(f"/v1/jobs?{query}", headers=headers).json()
            return [job["id"] for job in answer["jobs"]] == [name], answer["counts"]

        for query in ("kind=solve", "model=rnnlm", "state=done", "label=Night%20run", "search=NIGHT", f"search={name}"):
            assert found(query)[0], query
        assert found(f"since={created}")[0] and found(f"until={created + 1}&since=0")[0]
        for query in ("kind=check", "model=nmt", "state=failed", "label=night", "search=day", f"until={created}"):
            assert not found(query)[0], query
        assert found("counts=true")[1] == {state.value: int(state == State.DONE) for state in State}
        assert found("counts=true", bob) == (False, {state.value: 0 for state in State})
        refused(client.get("/v1/jobs?kind=cook", headers=ann), 400, "kind")
        refused(client.get("/v1/jobs?since=-1", headers=ann), 400, "since")
