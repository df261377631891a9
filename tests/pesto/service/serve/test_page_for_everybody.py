"""The service's page by keyboard alone and for assistive technology, and what it says of jobs.

Skipped where no Chromium is installed: apt-get install chromium. axe-core is asked where it is: pip install
axe-core-python.
"""

import importlib.util
import json
from pathlib import Path

import browser
import pytest
from live_service import live_service

from pesto.service.client.clients import Client
from pesto.service.serve.http import file_routes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.installed() is None, reason="no chromium: apt-get install chromium"),
]
JOB = "document.getElementById"
SOLVE = {"kind": "solve", "source": {"model": "rnnlm", "variant": "tiny"}, "cluster": "v100x4"}
FOCUSED = "document.activeElement.id || document.activeElement.dataset.job || document.activeElement.textContent"
RING = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
DIFFERENCE = {
    "step_s": [1.0, 2.0], "bound_s": [0.5, 0.5], "cluster": ["v100x4", "v100x4"], "transfers": [1, 2],
    "sent_bytes": [10, None], "devices": [{"name": "gpu0", "ops": [1, 2], "busy_s": [0.5, 0.7]}],
    "moved": {"ops": 1, "groups": [{"scope": "lstm", "before": "gpu0", "after": "gpu1", "ops": 1, "seconds": 0.1}]},
    "ops": {"both": 7}, "order": {"turned": 1, "pairs": 3},
}  # fmt: skip


@pytest.fixture
def compared(monkeypatch):
    """Plans are compared without a process."""

    async def told(*_):
        return DIFFERENCE

    monkeypatch.setattr(file_routes, "_told", told)


def tab_to(tab, wanted):
    """Press Tab until this has the focus; each stop on the way is seen to have it."""
    for _ in range(60):
        if tab.value(FOCUSED) == wanted:
            return
        tab.press("Tab")
        assert tab.value(RING) or tab.value("document.activeElement === document.body"), tab.value(FOCUSED)
    raise AssertionError(f"Tab never comes to {wanted}")


def typed(tab, text):
    for letter in text:
        tab.press(letter)


def submitted(tab, label):
    """Submit the form as it is, under a label: by keys from its label on."""
    tab_to(tab, "label")
    tab.value("document.activeElement.select()")
    typed(tab, label)
    tab.press("Tab")
    assert tab.value(FOCUSED) == "Submit"
    before = tab.value("location.hash")
    tab.press("Enter")
    tab.wait(f"location.hash !== {json.dumps(before)} && {JOB}('submitted').textContent.includes('is queued')")
    return tab.value("location.hash").removeprefix("#")


@pytest.mark.usefixtures("compared")
def test_submit_watch_cancel_and_compare_by_keyboard_alone(tab, tmp_path):
    with live_service(tmp_path / "data") as live:
        tab.size(1280, 900)
        tab.open_service(live.url)
        waits = submitted(tab, "wait")
        tab.wait(f"document.querySelector('button[data-job=\"{waits}\"]')")
        tab_to(tab, waits)
        tab.press("Enter")
        tab.wait(f"!{JOB}('cancel').hidden && {JOB}('cards').textContent.includes('running')")
        tab_to(tab, "cancel")
        tab.press("Enter")
        tab.wait(f"{JOB}('cards').textContent.includes('cancelled')")
        assert tab.value(FOCUSED) == "job-title", "the place of a button that is gone"
        ends = submitted(tab, "ends")
        tab.wait(f"{JOB}('second').options.length === 2")
        tab_to(tab, "first")
        tab.press("ArrowUp")
        tab.press("ArrowDown")
        assert {tab.value(f"{JOB}('{name}').value") for name in ("first", "second")} == {waits, ends}
        tab_to(tab, "Compare")
        tab.press("Enter")
        tab.wait("document.querySelectorAll('#difference table').length === 2")
        assert "1 op of 7 on another device" in tab.value(f"{JOB}('difference').textContent")
        tab_to(tab, "search")
        typed(tab, "wai")
        tab.press("Enter")
        tab.wait("document.querySelectorAll('#queue button').length === 1")
        assert tab.value("document.querySelector('#queue button').dataset.job") == waits
        assert tab.value(FOCUSED) == "search" and tab.complaints == []


def test_what_a_job_is_and_how_many_there_are(tab, tmp_path):
    """Counts by state, the job's step, cluster and request, and filters; hostile names are text."""
    hostile = "<img src=x onerror=document.title='ran'>"
    with live_service(tmp_path / "data") as live, Client(live.url) as client:
        done = client.submit(SOLVE | {"label": hostile, "settings": {"time_limit_s": 5}})
        client.wait(done)
        client.submit(SOLVE | {"label": "wrong", "source": {"model": "nmt"}})
        tab.open_service(live.url)
        tab.wait(f"{JOB}('counts').textContent === '1 done, 1 failed'")
        row = tab.value("[...document.querySelectorAll('#queue tbody tr')].map((row) => row.textContent).join('|')")
        assert "rnnlm tiny" in row and hostile in row
        tab.value(f"({JOB}('of-model').value = 'rnnlm', {JOB}('find').dispatchEvent(new Event('change')))")
        tab.wait("document.querySelectorAll('#queue tbody tr').length === 1")
        tab.value("document.querySelector('#queue button').click()")
        tab.wait(f"{JOB}('cards').textContent.includes('v100x4') && !{JOB}('asked').hidden")
        shown = json.loads(tab.value(f"{JOB}('request').textContent"))
        assert shown["request"] == SOLVE | {"label": hostile, "settings": {"time_limit_s": 5.0}}
        tab.value(f"({JOB}('kind').value = 'check', {JOB}('find').dispatchEvent(new Event('change')))")
        tab.wait(f"{JOB}('queue').textContent === 'None.' && {JOB}('empty').hidden")
        assert tab.value("document.title") == "Pesto: the placement service" and tab.complaints == []


def axe():
    """axe-core's script; None where it is not installed."""
    found = importlib.util.find_spec("axe_core_python")
    return None if found is None else (Path(found.origin).parent / "axe.min.js").read_text()


@pytest.mark.usefixtures("compared")
@pytest.mark.skipif(axe() is None, reason="no axe-core: pip install axe-core-python")
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_no_fault(tab, tmp_path, dark):
    """On the empty page, with refusals, and with all of its parts shown; also on a phone."""
    asked = """axe.run(document).then((found) => found.violations.map((one) =>
        `${one.id}: ${one.nodes.map((node) => node.html).join(" ").slice(0, 400)}`))"""
    with live_service(tmp_path / "data") as live, Client(live.url) as client:
        tab.size(1280, 900, dark=dark)
        tab.open_service(live.url)
        tab.value(axe() + "; null")
        assert tab.value(asked) == []
        tab.value(f"({JOB}('model').value = 'a file', {JOB}('model').dispatchEvent(new Event('change')))")
        tab.value(f"{JOB}('submit').requestSubmit()")
        tab.wait(f"!{JOB}('submit-refusal').hidden")
        assert tab.value(asked) == []
        for label in ("talk 3", "wrong", ""):
            client.wait(client.submit(SOLVE | {"label": label}))
        first = client.submit(SOLVE | {"label": "wait"})
        client.submit(SOLVE)
        tab.wait(f"document.querySelector('button[data-job=\"{first}\"]')")
        tab.value("[...document.querySelectorAll('#queue button')].find((b) => b.textContent === 'talk 3').click()")
        tab.wait(f"!{JOB}('report').hidden && document.querySelector('#chart polyline.best')")
        tab.value(f"{JOB}('asked').open = true")
        tab.value(f"{JOB}('pair').requestSubmit()")
        tab.wait("document.querySelectorAll('#difference table').length === 2")
        assert tab.value(asked) == []
        tab.size(390, 844, dark=dark, phone=True)
        assert tab.value(asked) == []
        tab.value(f"{JOB}('label').parentElement.replaceWith({JOB}('label'))")
        assert [fault for fault in tab.value(asked) if fault.startswith("label")], "a field that lost its label"
