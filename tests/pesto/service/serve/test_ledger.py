"""The service's ledger does what a plain model in memory does, whatever is asked, with a crash at any moment.

The model knows dictionaries and lists; acts gather in a transaction, `commit` keeps them, `crash` drops what was not
committed and opens the file anew. What is committed is never lost, and events of a job are 1, 2, 3, ... without a gap.
"""

import copy
import json
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from benchmarks.postgres_server import PostgresServer, missing
from pesto.service.protocol import State
from pesto.service.serve.refusals import RefusedError
from pesto.service.serve.store.job_records import DEATHS, Event, Outcome, Submission
from pesto.service.serve.store.ledger import Ledger, ended_by_token
from pesto.service.serve.store.readings import JobFilter, Readings
from pesto.service.serve.store.sqlite_file import connected
from pesto.service.serve.store.waiting import Waiting
from pesto.service.serve.tokens import MACHINE, Quota

TOKENS = ("", "ann", "bob")
BEST = st.sampled_from((0.5, 1.0, 2.0))


def found(code, best):
    """How an attempt ends that has a plan."""
    return Outcome(exit_code=code, result={"makespan_s": best}, seconds=2.0, files=("plan.json",))


class Model:
    """What the ledger should hold."""

    def __init__(self):
        self.jobs, self.keys, self.used = [], {}, []

    def submit(self, token, priority, key, digest):
        if key and (token, key) in self.keys:
            known, name = self.keys[token, key]
            return name if known == digest else None
        job = {
            "token": token,
            "priority": priority,
            "state": "queued",
            "attempt": 0,
            "deaths": 0,
            "events": [],
            "kept": 0,
            "best": None,
        }
        self.jobs.append(job)
        if key:
            self.keys[token, key] = digest, len(self.jobs) - 1
        return len(self.jobs) - 1

    def next(self, but, now):
        """The job of the highest priority, of the token with the fewest running jobs, then the fewest seconds."""

        def turn(k):
            token = self.jobs[k]["token"]
            running = sum(j["state"] in ("running", "cancelling") for j in self.jobs if j["token"] == token)
            used = sum(s for who, hour, s in self.used if who == token and hour > int(now / 3600) - 24)
            return -self.jobs[k]["priority"], running, used, k

        allowed = [k for k, job in enumerate(self.jobs) if job["state"] == "queued" and job["token"] not in but]
        return min(allowed, key=turn) if allowed else None

    def picks(self, now):
        """The waiting jobs in the order in which they begin, one after the other, while nothing ends."""
        future, order = copy.deepcopy(self), []
        while (k := future.next((), now)) is not None:
            future.jobs[k]["state"] = "running"
            order.append(k)
        return order

    def use(self, k, seconds, now):
        self.used.append((self.jobs[k]["token"], int(now / 3600), seconds))

    def runs(self, k, attempt):
        return self.jobs[k]["state"] in ("running", "cancelling") and self.jobs[k]["attempt"] == attempt

    def end(self, k, state):
        self.jobs[k]["state"] = state
        self.jobs[k]["events"].append("done")

    def again(self, k):
        self.jobs[k]["state"] = "queued"
        self.jobs[k]["events"].append("stage")

    def keep(self, k, attempt, best, cut):
        """The files of an attempt, if it has some, unless it was cut and those of another are of a shorter step."""
        job = self.jobs[k]
        if best is not None and not (cut and job["kept"] and job["best"] < best):
            job |= {"kept": attempt, "best": best}

    def recover(self):
        for k, job in enumerate(self.jobs):
            if job["state"] == "running":
                self.again(k)
            elif job["state"] == "cancelling":
                self.end(k, "cancelled")


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=Path("/dev/shm") if Path("/dev/shm").is_dir() else None)  # noqa: S108
        self.model, self.names, self.ticks = Model(), [], 1000.0
        self.open()

    def connect(self):
        """A connection, its server taken for gone where it was another's."""
        self.db = connected(Path(self.folder.name))
        self.db.begin()

    def waiting(self):
        return self.ledger.waiting

    def open(self):
        self.connect()
        self.ledger = Ledger(self.db, lambda: self.ticks)
        self.ledger.recover()
        self.db.commit()
        self.model.recover()
        self.db.begin()
        self.kept = copy.deepcopy(self.model), list(self.names)

    def teardown(self):
        self.db.close()
        self.folder.cleanup()

    @rule()
    def commit(self):
        self.db.commit()
        self.db.begin()
        self.kept = copy.deepcopy(self.model), list(self.names)

    @rule()
    def crash(self):
        self.db.close()  # without a commit: what a killed process leaves
        self.model, self.names = self.kept
        self.open()

    @rule()
    def fail(self):
        self.db.undo()  # as the writer does where the disk is full
        self.ledger.reload()
        self.model, self.names = copy.deepcopy(self.kept[0]), list(self.kept[1])
        self.db.begin()

    @rule(back=st.floats(-4000, 4000))
    def set_clock(self, back):
        self.ticks += back

    @rule(
        token=st.sampled_from(TOKENS),
        priority=st.integers(-2, 2),
        key=st.sampled_from(("", "k", "l")),
        digest=st.sampled_from((b"1", b"2")),
    )
    def submit(self, token, priority, key, digest):
        asked = Submission(token=token, kind="solve", priority=priority, request=b"{}", key=key, digest=digest)
        expected = self.model.submit(token, priority, key, digest)
        if expected is None:
            with pytest.raises(RefusedError, match="different request") as refused:
                self.ledger.submit(asked)
            assert refused.value.status == 409
            return
        name = self.ledger.submit(asked)
        if expected == len(self.names):
            self.names.append(name)
        assert self.names[expected] == name

    @rule(but=st.sets(st.sampled_from(TOKENS), max_size=2))
    def begin(self, but):
        begun, expected = (
            self.ledger.begin(lambda token: Quota(jobs=0) if token in but else MACHINE),
            self.model.next(but, self.ticks),
        )
        assert (begun and begun.id) == (None if expected is None else self.names[expected])
        if begun is not None:
            self.model.jobs[expected]["state"] = "running"
            self.model.jobs[expected]["attempt"] += 1
            self.model.jobs[expected]["events"].append("stage")
            assert begun.attempt == self.model.jobs[expected]["attempt"]

    def drawn(self, data, late):
        """A job, and its attempt or an earlier one; mostly one that runs."""
        running = [k for k, job in enumerate(self.model.jobs) if job["state"] in ("running", "cancelling")]
        k = data.draw(st.sampled_from(running if running and not late else range(len(self.model.jobs))))
        attempt = self.model.jobs[k]["attempt"] - (1 if late else 0)
        number = Readings(self.db).job(self.names[k]).number
        return k, number, attempt, self.model.runs(k, attempt)

    @precondition(lambda self: self.model.jobs)
    @rule(
        data=st.data(), late=st.booleans(), kinds=st.lists(st.sampled_from(("stage", "incumbent", "log")), max_size=3)
    )
    def note(self, data, late, kinds):
        k, number, attempt, runs = self.drawn(data, late)
        events = [Event(kind=kind, data={"best_s": 1.0}) for kind in kinds]
        assert self.ledger.note(number, attempt, events) == runs
        if runs:
            self.model.jobs[k]["events"] += kinds

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), late=st.booleans(), good=st.booleans(), cut=st.booleans(), best=BEST)
    def finish(self, data, late, good, cut, best):
        """`cut`: it was interrupted, with a plan or before there was one."""
        k, number, attempt, runs = self.drawn(data, late)
        state, outcome = State.DONE if good else State.FAILED, found(130 if cut else 0, best)
        assert self.ledger.finish(number, attempt, state, outcome, keeps=good) == runs
        if runs:
            self.model.use(k, 2.0, self.ticks)
            asked_for = cut and self.model.jobs[k]["state"] == "cancelling"
            self.model.end(k, "cancelled" if asked_for else state.value)
            self.model.keep(k, attempt, best if good else None, cut)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), late=st.booleans())
    def lose(self, data, late):
        k, number, attempt, runs = self.drawn(data, late)
        assert self.ledger.lose(number, attempt, "killed by SIGKILL", 1.0) == runs
        if not runs:
            return
        self.model.use(k, 1.0, self.ticks)
        job = self.model.jobs[k]
        job["deaths"] += 1
        if job["state"] == "cancelling":
            self.model.end(k, "cancelled")
        elif job["deaths"] == DEATHS:
            self.model.end(k, "failed")
        else:
            self.model.again(k)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), late=st.booleans(), best=st.none() | BEST)
    def release(self, data, late, best):
        k, number, attempt, runs = self.drawn(data, late)
        cancelling = self.model.jobs[k]["state"] == "cancelling"
        came = None if best is None else found(143, best)
        assert self.ledger.release(number, attempt, "the service ends", rescued=came) == runs
        if runs:
            kept = self.model.jobs[k]["kept"]
            self.model.keep(k, attempt, best, cut=True)
            if cancelling and self.model.jobs[k]["kept"] != kept:
                self.model.use(k, 2.0, self.ticks)
            if cancelling:
                self.model.end(k, "cancelled")
            else:
                self.model.again(k)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def cancel(self, data):
        k = data.draw(st.sampled_from(range(len(self.model.jobs))))
        state = self.model.jobs[k]["state"]
        if state == "queued":
            self.model.end(k, "cancelled")
        elif state == "running":
            self.model.jobs[k]["state"] = "cancelling"
        assert self.ledger.cancel(self.names[k]) == self.model.jobs[k]["state"]

    @invariant()
    def same(self):
        readings = Readings(self.db)
        found = readings.jobs(JobFilter(), None, 1000).jobs[::-1]
        assert [job.id for job in found] == self.names
        for job, expected in zip(found, self.model.jobs, strict=True):
            assert (job.token, job.priority, job.state, job.attempt, job.deaths, job.kept) == (
                expected["token"], expected["priority"], expected["state"], expected["attempt"], expected["deaths"],
                expected["kept"],
            )  # fmt: skip
            # what is kept is told, whatever came of later attempts
            assert bool(job.outcome and job.outcome.files) == bool(expected["kept"])
            assert not job.kept or job.outcome.result["makespan_s"] == expected["best"]
            events = readings.events(job.number, 0)
            assert [event.number for event in events] == list(range(1, job.events + 1))
            assert [event.kind for event in events] == expected["events"]
            assert [json.loads(event.data) for event in events if event.kind == "done"] == [
                json.loads(event.data) for event in events[-1:] if job.state in ("done", "failed", "cancelled")
            ]
        self.in_memory(found)

    def in_memory(self, found):
        """Queue places and each token's counts are those of the model."""
        order = [found[k] for k in self.model.picks(self.ticks)]
        waiting, crowd = self.waiting(), self.ledger.waiting
        seconds = ended_by_token(self.db, self.ticks)
        places = [waiting.place(job.token, job.priority, job.number, lambda t: seconds.get(t, 0.0)) for job in order]
        assert places == list(range(1, len(order) + 1))
        assert len(crowd) == len(waiting) == len(order)
        for token in TOKENS:
            of = [job for job in found if job.token == token]
            assert waiting.queued[token] == crowd.queued_of(token) == sum(job.state == "queued" for job in of)
            assert (
                waiting.running[token]
                == crowd.running.get(token, 0)
                == sum(job.state in ("running", "cancelling") for job in of)
            )


Machine.TestCase.settings = settings(settings.default, stateful_step_count=30)
TestMachine = Machine.TestCase


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_same_on_postgresql(tmp_path):
    """One state machine, both databases: a crash is a server whose leases have run out."""
    from pesto.service.serve.store.postgres.session import Session, addressed
    from pesto.service.serve.store.postgres.shared_tables import prepare

    with closing(PostgresServer()) as server:
        address = addressed(server.url)
        with closing(Session(address, "first")) as first:
            prepare(first, tmp_path, address.where)

        class OnPostgres(Machine):
            fresh = True

            def connect(self):
                self.db = Session(address, "server", turns=True)
                self.db.begin()
                if self.fresh:
                    self.db.execute("TRUNCATE jobs, events, keys, sums, blobs, needs, leases, usage, parts, removals")
                    self.fresh = False
                self.db.execute("UPDATE leases SET until = '-infinity'")

            def waiting(self):
                seen = Waiting()
                seen.reload(self.db)
                return seen

        run_state_machine_as_test(OnPostgres, settings=settings(max_examples=20, stateful_step_count=30, deadline=None))
