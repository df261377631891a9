"""Two servers' writers at once on one PostgreSQL, acts of many kinds in a transaction: quotas hold, jobs end once."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from benchmarks.postgres_server import PostgresServer, missing
from pesto.service.protocol import FINAL, State
from pesto.service.serve.refusals import RefusedError
from pesto.service.serve.store.database import LaterError
from pesto.service.serve.store.job_records import Event, Outcome, Submission
from pesto.service.serve.store.ledger import Ledger, SubmitLimits
from pesto.service.serve.store.opening import Writer
from pesto.service.serve.store.postgres.session import Session, addressed
from pesto.service.serve.store.postgres.shared_tables import prepare
from pesto.service.serve.store.readings import JobFilter, Readings
from pesto.service.serve.tokens import Quota

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
RUNNING, CLIENTS, ACTS = 2, 6, 60
LIMITS = SubmitLimits(Quota(queued=5, hours=1e6), 1000)


class Server:
    """What a server does, by several threads of clients, so that its writer has many acts at a time."""

    def __init__(self, address, name):
        self.session = Session(address, name, turns=True)
        self.session.connect()
        self.writer = Writer(self.session, Ledger(self.session))
        self.names, self.begun, self.most, self.later = [], [], [], 0

    def client(self, seed):
        """One of many: any acts, in any order."""
        dice = random.Random(seed)  # noqa: S311 - no secret
        for _ in range(ACTS):
            act = dice.choice([self.submit, self.submit, self.begin, self.begin, self.tell, self.end, self.cancel])
            try:
                act(dice)
            except RefusedError as refused:
                assert refused.status in (404, 409, 429)
            except LaterError:
                self.later += 1

    def submit(self, dice):
        asked = Submission(
            token=dice.choice("ab"), kind="solve", request=b"{}", key=dice.choice(("", "k", "l", "m")), digest=b"1"
        )
        self.names.append(self.writer.do(lambda ledger: ledger.submit(asked, LIMITS)))

    def begin(self, _):
        def act(ledger):
            found = ledger.begin(lambda _: Quota(jobs=RUNNING))
            return found, dict(ledger.waiting.running)

        begun, running = self.writer.do(act)
        self.most += running.values()
        if begun is not None:
            self.begun.append(begun)

    def tell(self, dice):
        if self.begun:
            begun = dice.choice(self.begun)
            self.writer.do(lambda ledger: ledger.note(begun.number, begun.attempt, [Event(kind="log", data={})] * 2))

    def end(self, dice):
        if self.begun:
            begun = dice.choice(self.begun)
            how = dice.choice((
                lambda ledger: ledger.finish(begun.number, begun.attempt, State.DONE, Outcome()),
                lambda ledger: ledger.release(begun.number, begun.attempt, "asked"),
                lambda ledger: ledger.lose(begun.number, begun.attempt, "killed", 1.0),
            ))  # fmt: skip
            self.writer.do(how)

    def cancel(self, dice):
        name = dice.choice(self.names) if self.names else "none"
        self.writer.do(lambda ledger: ledger.cancel(name))

    def close(self):
        self.writer.close()
        self.session.close()


def test_two_writers_at_once(tmp_path):
    with closing(PostgresServer()) as postgres:
        address = addressed(postgres.url)
        with closing(Session(address, "first")) as first:
            prepare(first, tmp_path, address.where)
        with closing(Server(address, "a")) as a, closing(Server(address, "b")) as b, ThreadPoolExecutor() as pool:
            done = [pool.submit(server.client, k) for k in range(CLIENTS) for server in (a, b)]
            for one in done:
                one.result()
            assert max(a.most + b.most) <= RUNNING
            assert {begun.key for begun in a.begun}.isdisjoint(begun.key for begun in b.begun)
            readings = Readings(b.session)
            jobs = readings.jobs(JobFilter(), None, 10_000).jobs
            assert {job.id for job in jobs} == {*a.names, *b.names}
            for job in jobs:
                events = readings.events(job.number, 0, 10_000)
                assert [event.number for event in events] == list(range(1, job.events + 1))
                assert [event.kind for event in events].count("done") == (job.state in FINAL)
                assert all(json.loads(event.data)["event"] == event.kind for event in events)
        with psycopg.connect(postgres.url, options="-c search_path=pesto_serve") as made:
            left = made.execute("SELECT count(*) FROM jobs WHERE state IN ('running', 'cancelling')").fetchone()
            assert made.execute("SELECT count(*) FROM leases").fetchone() == left
            assert made.execute("SELECT count(*) FROM keys").fetchone()[0] <= 6
