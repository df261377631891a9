"""pesto serve token: what it adds, lists and removes."""

import json
import os
import signal
import time

import click
import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.core.errors import UsageError
from pesto.service.serve import tokens


@pytest.fixture
def said(tmp_path):
    """Run `pesto serve token`, and return what it prints."""

    def run(*words):
        came = CliRunner().invoke(pesto, ["serve", "token", *words, "--data", str(tmp_path)], standalone_mode=False)
        if came.exception is not None:
            raise came.exception
        return came.output

    return run


def test_tokens_are_listed_with_role_expiry_and_last_use(said):
    said("add", "ann", "--role", "admin", "--expires", "90d")
    said("add", "bob", "--hours", "2.5")
    ann, bob = json.loads(said("list", "--json"))["tokens"]
    assert (ann["role"], ann["last_used"], bob["role"], bob["expires"]) == ("admin", None, "user", None)
    assert bob["hours"] == 2.5 and abs(ann["expires"] - time.time() - 90 * 86400) < 3600
    said("add", "eve", "--role", "reader")
    lines = said("list").splitlines()
    assert lines[0].split()[-3:] == ["expires", "last", "used"]
    assert [line.split()[:2] for line in lines[1:]] == [["ann", "admin"], ["bob", "user"], ["eve", "reader"]]
    assert lines[2].split()[-2:] == ["never", "never"]


def test_a_use_is_listed(said, tmp_path):
    token = said("add", "ann").strip()
    authenticator = tokens.TokenAuthenticator(tmp_path, loopback=True)
    assert authenticator.find(token).name == "ann"
    authenticator.save_uses(now=True)
    assert json.loads(said("list", "--json"))["tokens"][0]["last_used"] == pytest.approx(time.time(), abs=3600)
    assert said("list").splitlines()[1].split()[-2] == time.strftime("%Y-%m-%d")


def test_a_token_is_removed_with_or_without_its_jobs(said, tmp_path):
    for name in ("ann", "bob", "eve", "zoe"):
        said("add", name)
    said("remove", "ann")
    said("remove", "bob", "--jobs", "cancel")
    said("remove", "eve", "--give", "zoe")
    assert [one.name for one in tokens.listed(tmp_path)] == ["zoe"]
    departures = tokens.TokenAuthenticator(tmp_path, loopback=True).departures
    assert [(one.name, one.to) for one in departures] == [("bob", ""), ("eve", "zoe")]
    with pytest.raises(UsageError, match="both cancelled and given"):
        said("remove", "zoe", "--jobs", "cancel", "--give", "ann")


@pytest.mark.parametrize(
    "quota", [("--hours", "inf"), ("--hours", "nan"), ("--hours", "1e12"), ("--jobs", "9" * 30), ("--queued", "9" * 30),
              ("--bytes", "9" * 400)],
)  # fmt: skip
def test_a_quota_that_no_file_can_hold_is_refused_and_leaves_the_tokens_as_they_are(said, tmp_path, quota):
    """JSON has no infinity: a file with one could not be read again, and no server would start with it."""
    said("add", "ann")
    with pytest.raises((UsageError, click.UsageError)):
        said("add", "bob", *quota)
    assert [one.name for one in tokens.listed(tmp_path)] == ["ann"]


def test_sighup_does_not_end_a_server_that_begins(tmp_path, monkeypatch):
    """As by `systemctl reload` right after its start: it ended with 143."""
    came = []

    def serve(*_):
        os.kill(os.getpid(), signal.SIGHUP)
        came.append("goes on")

    monkeypatch.setattr("pesto.service.serve.server.serve", serve)
    before = signal.signal(signal.SIGHUP, lambda *_: came.append("ended"))
    try:
        ran = CliRunner().invoke(pesto, ["serve", "--data", str(tmp_path)], standalone_mode=False)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert ran.exception is None and came == ["goes on"]
