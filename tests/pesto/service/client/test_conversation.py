"""What clients decide without a socket: when they ask again, what an answer means, which events are new."""

import time

import msgspec
import pytest

from pesto.core.errors import Exit, FileError, InputError, UsageError
from pesto.service.client.calls import (
    Ask,
    Calls,
    Followed,
    Patience,
    Pause,
    Reply,
    answered,
    checked_url,
    failed,
    headers,
    retry_after,
)

URL = "http://127.0.0.1:8780"
SUBMITTED = Reply(202, body=b'{"id": "a1", "url": "/v1/jobs/a1"}')


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def conversation(steps, replies):
    """What the steps yield when they are sent these replies, and what they return."""
    yielded, step, rest = [], next(steps), iter(replies)
    try:
        while True:
            yielded.append(step)
            step = steps.send(None if isinstance(step, Pause) else next(rest))
    except StopIteration as end:
        return yielded, end.value


def reached(most_s=60.0):
    clock = Clock()
    patience = Patience(most_s, clock)
    patience.answered()
    return patience, clock


def test_a_submission_that_must_be_sent_again_is_the_same_one():
    """Its key is made once, so that an answer that was lost makes no second job."""
    calls = Calls(URL, 60.0)
    calls.patience.answered()
    lost, full = Reply(why="reset"), Reply(429, retry_after="7", body=b'{"error": "full"}')
    yielded, name = conversation(calls.submit({"kind": "solve"}, None), [lost, Reply(503), full, SUBMITTED])
    asked = [step for step in yielded if isinstance(step, Ask)]
    assert name == "a1" and len(asked) == 4 and len({step.headers["Idempotency-Key"] for step in asked}) == 1
    assert all(step == asked[0] for step in asked)
    other, _ = conversation(calls.submit({"kind": "solve"}, None), [SUBMITTED])
    assert other[0].headers != asked[0].headers
    given, _ = conversation(calls.submit({"kind": "solve"}, "monday"), [SUBMITTED])
    assert given[0].headers["Idempotency-Key"] == "monday"


def test_retry_after_is_what_is_waited():
    patience, _ = reached()
    full = Reply(429, retry_after="7", body=b'{"error": "full", "remedy": "wait", "exit_code": 2}')
    yielded, body = conversation(answered(URL, patience, Ask("GET", "/")), [full, Reply(200, body=b"x")])
    assert (yielded[1], body) == (Pause(7.0), b"x")
    short, _ = reached(6.0)
    with pytest.raises(UsageError, match="full - wait"):
        conversation(answered(URL, short, Ask("GET", "/")), [full])
    assert retry_after(None) is None and retry_after("soon") is None
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600))
    assert 3500 < retry_after(later) <= 3600


def test_silence_is_borne_of_who_has_answered_once():
    """Pauses double to 5 s; an answer begins anew."""
    patience, clock = reached(30.0)
    pauses = []
    while (pause := patience.pause()) is not None:
        pauses.append(pause)
        clock.now += pause
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]  # 26.3 s, and 5 more would be too many
    patience.answered()
    assert patience.pause() == 0.1
    with pytest.raises(FileError, match=r"cannot reach .*: refused - is pesto serve running"):
        conversation(answered(URL, Patience(30.0), Ask("GET", "/")), [Reply(why="refused")])


@pytest.mark.parametrize("code", [code for code in Exit if code not in (Exit.OK, Exit.DIFFERENT)])
def test_an_error_has_the_code_that_the_service_says(code):
    error = failed(int(code), "a cycle", "break it")
    assert (error.exit_code, str(error)) == (code, "a cycle - break it")


def test_answers_of_somebody_else():
    patience, _ = reached()
    for body in (b"<html>", b"\xff", b"[]"):
        with pytest.raises(FileError, match="answered 404, which is no word of pesto serve"):
            conversation(answered(URL, patience, Ask("GET", "/")), [Reply(404, body=body)])
    with pytest.raises(FileError, match="no word of pesto serve"):
        conversation(Calls(URL, 1.0).job("a1"), [Reply(200, body=b"<html>")])
    with pytest.raises(UsageError, match="PESTO_TOKEN"):
        conversation(answered(URL, patience, Ask("GET", "/")), [Reply(401, body=b"{}")])
    with pytest.raises(InputError, match=r"^odd$"):
        conversation(answered(URL, patience, Ask("GET", "/")), [Reply(422, body=b'{"error": "odd", "exit_code": 3}')])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8780",
        "ftp://host",
        "http://",
        "http://h:99999",
        "http://h/?a=1",
        "http://h\n",
        "http://[",
        "http://h#x",
    ],
)
def test_what_is_no_address(url):
    with pytest.raises(UsageError, match="no address of a service"):
        checked_url(url)


def test_addresses_and_tokens(monkeypatch):
    assert checked_url("https://host/pesto/") == "https://host/pesto"
    with pytest.raises(UsageError, match="no name and no password"):
        checked_url("http://ann:secret@host")
    monkeypatch.setenv("PESTO_TOKEN", "pesto_1_x")
    assert headers(None) == {"Authorization": "Bearer pesto_1_x"}
    assert headers("pesto_2_y") == {"Authorization": "Bearer pesto_2_y"}
    monkeypatch.delenv("PESTO_TOKEN")
    assert headers(None) == {}
    for wrong in ("a b", "a\nb", "ä"):
        with pytest.raises(UsageError, match="characters that no token has"):
            headers(wrong)


def stream(numbers):
    kinds = {1: "stage", 9: "done"}
    blocks = [f'id: {n}\nevent: {kinds.get(n, "log")}\ndata: {{"text": "a\\nb: {n}"}}\n\n' for n in numbers]
    return (": pesto\n\n" + ": still here\n\n".join(blocks)).encode()


def test_events_come_whole_in_whatever_pieces(seeds):
    """Cut anywhere, once or twice; a stream that is cut within an event says it again, and it is told once."""
    whole = stream(range(1, 10))
    for seed in seeds(150):
        followed, told = Followed("a1", 0), []
        cut = (seed * 7919) % len(whole)
        followed.begin()
        told += followed.take(whole[:cut])
        again = stream(range(max(1, followed.last), 10))  # the service may repeat the last one
        followed.begin()
        half = (seed * 104_729) % len(again)
        for part in (again[:half], again[half:]):
            told += followed.take(part)
        assert [event.number for event in told] == list(range(1, 10))
        assert followed.over and followed.headers["Last-Event-ID"] == "9"
        assert told[3].data == {"text": "a\nb: 4"}


def test_what_is_no_event_is_refused():
    for wrong in (b"id: x\nevent: log\ndata: {}\n\n", b"id: 1\nevent: log\ndata: [\n\n"):
        with pytest.raises(FileError, match="no event"):
            list(Followed("a1", 0).take(wrong))
    with pytest.raises(UsageError, match="no job is called"):
        Followed("a\n", 0)


def test_requests_say_what_is_given_alone():
    """A mapping goes as it is, and is judged by the service."""
    asked = next(Calls(URL, 1.0).submit({"kind": "solve", "label": "é"}, None))
    assert msgspec.json.decode(asked.body) == {"kind": "solve", "label": "é"}
