"""What a request may say: refused at once, with the nearest name, from the request alone."""

import subprocess
import sys
from dataclasses import fields

import msgspec
import pytest

from pesto.core.errors import PestoError
from pesto.core.settings import Settings
from pesto.verbs.jobs.checks import checked, compare_options, given_settings, split_options, sweep_options
from pesto.verbs.jobs.request import JobRequest, JobSettings, blobs_of, plans_of, resolved

SHA, OTHER = "a" * 64, "b" * 64
TINY = {"model": "rnnlm", "variant": "tiny"}
FINE = [
    {"kind": "solve", "source": TINY},
    {"kind": "solve", "source": {"blob": SHA, "name": "g.pb", "fetch": ["*"]}, "cluster": {"blob": OTHER}},
    {"kind": "solve", "source": TINY, "settings": {"solver": "highs", "formulation": "paper"}},
    {"kind": "solve", "source": TINY, "cluster": "v100x4", "cuts": "2x2,4"},
    {"kind": "solve", "source": {"blob": SHA, "name": "g.pb", "fetch": ["*"]}, "cuts": "auto"},
    {"kind": "compare", "source": TINY, "methods": "expert,m-sct,pesto", "settings": {"headroom": 0}},
    {"kind": "sweep", "source": TINY, "sweep": {"links": [0.1, 1], "devices": [2, 4], "cross": True}},
    {"kind": "split", "source": TINY, "cluster": "v100x4", "split": {"workers": "2x2", "memory_gib": 4}},
    {"kind": "check", "plan": {"job": "17"}, "certificate": True},
    {"kind": "report", "plan": {"blob": SHA}, "against": [{"job": "3"}, {"blob": OTHER}]},
]
REFUSED = [
    ({"kind": "solve"}, "no source is given"),
    ({"kind": "solve", "source": {}}, "no graph"),
    ({"kind": "solve", "source": {**TINY, "blob": SHA}}, "several graphs"),
    ({"kind": "solve", "source": {"model": "rnnml"}}, "did you mean rnnlm?"),
    ({"kind": "solve", "source": {"model": "rnnlm", "variant": "tinny"}}, "did you mean tiny?"),
    ({"kind": "solve", "source": {"blob": SHA, "batch": 3}}, "a batch goes with TensorFlow's graphs"),
    ({"kind": "solve", "source": {"blob": SHA, "name": ".."}}, "no file can be called"),
    (
        {"kind": "solve", "source": {"blob": SHA, "name": "\u202egraph.json"}},
        r"called '\u202egraph.json'",
    ),
    ({"kind": "solve", "source": {"blob": SHA, "name": "\U0001f600" * 60}}, "no file can be called"),
    ({"kind": "solve", "source": TINY, "cluster": "v100x3"}, "did you mean v100x8?"),
    ({"kind": "solve", "source": TINY, "cluster": "../v100x4.toml"}, "no cluster is named"),
    ({"kind": "solve", "source": TINY, "settings": {"solver": "cpsatt"}}, "did you mean cpsat?"),
    ({"kind": "solve", "source": TINY, "settings": {"time_limit_s": -1}}, "time limit"),
    ({"kind": "solve", "source": TINY, "settings": {"formulation": "tigt", "solver": "highs"}}, "tight"),
    ({"kind": "solve", "source": TINY, "start": {}}, "a blob or of a job"),
    ({"kind": "solve", "source": TINY, "methods": "all"}, "methods does not go with the kind solve"),
    ({"kind": "solve", "source": TINY, "cuts": "2y2"}, "2y2"),
    ({"kind": "solve", "source": {"blob": SHA, "name": "g.json"}, "cuts": "auto"}, "no shapes to cut by"),
    ({"kind": "solve", "source": TINY, "cuts": "auto", "start": {"blob": SHA}}, "for placements alone"),
    ({"kind": "solve", "source": TINY, "cuts": "auto", "beside": {"blob": SHA}}, "beside no plan - leave out cuts, or"),
    (
        {"kind": "solve", "source": TINY, "label": "a\nb\x1b"},
        r"'a\nb\x1b' has characters that cannot be shown",
    ),
    ({"kind": "compare", "source": TINY, "methods": "exprt"}, "did you mean expert?"),
    ({"kind": "compare", "source": TINY, "settings": {"gap": 0.1}}, "gap is no setting of the kind compare"),
    ({"kind": "compare", "source": TINY, "methods": "heft", "settings": {"solver": "highs"}}, "leave out solver"),
    ({"kind": "sweep", "source": TINY}, "no axis"),
    ({"kind": "sweep", "source": TINY, "sweep": {"compute": [0]}}, "give factors"),
    ({"kind": "split", "source": TINY}, "how many workers"),
    ({"kind": "split", "source": TINY, "split": {"workers": "2", "method": "exat"}}, "did you mean exact?"),
    ({"kind": "check", "source": TINY}, "the kind check is of a plan"),
    ({"kind": "check", "plan": {"job": "1", "blob": SHA}}, "one of the two"),
]
MALFORMED = [
    {"kind": "run", "source": TINY},
    {"kind": "solve", "source": {"function": "os:system"}},
    {"kind": "solve", "source": {"saved_model": "/etc"}},
    {"kind": "solve", "source": {"blob": "A" * 64}},
    {"kind": "solve", "source": {"blob": SHA, "name": "a/b.json"}},
    {"kind": "solve", "source": TINY, "limits": {"seconds": 0}},
    {"kind": "solve", "source": TINY, "colour": "red"},
    {"kind": "split", "source": TINY, "split": {"workers": "2x" * 60 + "2"}},
]


@pytest.mark.parametrize("fields", FINE)
def test_what_can_be_done_passes(fields) -> None:
    """And comes back from JSON as it was."""
    request = msgspec.convert(fields, JobRequest)
    checked(request)
    assert msgspec.json.decode(msgspec.json.encode(request), type=JobRequest) == request


@pytest.mark.parametrize(("fields", "why"), REFUSED)
def test_what_cannot_be_done_is_refused_with_a_remedy(fields, why) -> None:
    with pytest.raises(PestoError) as refused:
        checked(msgspec.convert(fields, JobRequest))
    assert why in str(refused.value) and " - " in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("fields", MALFORMED)
def test_what_is_no_request_is_refused_when_it_is_read(fields) -> None:
    """What runs code, and what names a path, has no field at all."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, JobRequest)


def test_settings_are_those_of_a_solve() -> None:
    """Every one, under its name, and with the time limits that the verbs have."""
    assert JobSettings.__struct_fields__ == tuple(f.name for f in fields(Settings))
    assert Settings(**given_settings(msgspec.convert(FINE[0], JobRequest))) == Settings()
    for row, options_of_kind, seconds in ((5, compare_options, 30), (6, sweep_options, 20), (7, split_options, 60)):
        assert options_of_kind(msgspec.convert(FINE[row], JobRequest)).time_limit_s == seconds


def test_files_and_jobs_that_are_needed() -> None:
    """Each once; a job's plan is a file once it is known which."""
    given = {"plan": {"job": "3", "name": "mine.json"}, "against": [{"blob": SHA}, {"job": "3"}]}
    request = msgspec.convert(
        {"kind": "report", "source": {"blob": SHA}, "costs": {"blob": OTHER}, **given}, JobRequest
    )
    assert blobs_of(request) == (SHA, OTHER)
    assert [plan.job for plan in plans_of(request)] == ["3", None, "3"]
    known = resolved(request, {"3": "c" * 64})
    assert blobs_of(known) == (SHA, OTHER, "c" * 64) and not any(plan.job for plan in plans_of(known))
    assert known.plan is not None and known.plan.name == "mine.json"


def test_a_request_is_read_without_what_solves_need() -> None:
    """Clients have the types alone; and no check loads TensorFlow."""
    text = """
import sys
from pesto.verbs.jobs.request import JobRequest, JobSource
from pesto.verbs.jobs.job_events import decode
assert "numpy" not in sys.modules, "numpy"
from pesto.verbs.jobs.checks import checked
checked(JobRequest(kind="solve", source=JobSource(model="rnnlm")))
assert "tensorflow" not in sys.modules, "tensorflow"
"""
    subprocess.run([sys.executable, "-c", text], check=True)
