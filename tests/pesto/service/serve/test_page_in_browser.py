"""The service's page in a browser, by its own buttons: submit, watch, cancel, look, compare; names are only ever text.

Skipped where no Chromium is installed: apt-get install chromium.
"""

import hashlib
import json
from pathlib import Path

import browser
import pytest
from fake_jobs import FakeJobs
from live_service import live_service

import pesto
from pesto.service.client.clients import Client
from pesto.service.serve import tokens

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.installed() is None, reason="no chromium: apt-get install chromium"),
]
TOWERS = Path(__file__).parents[3] / "data" / "two-towers.graph.json"
HOSTILE = "<img src=x onerror=document.title='ran'><script>document.title='ran'</script>"
JOB = "document.getElementById"
REPORT = b"""<!DOCTYPE html><meta charset="utf-8"><title>a report</title><p id="p">written</p><script>
const refused = (act) => { try { act(); return "let"; } catch { return "refused"; } };
setInterval(() => {
  const found = [document.getElementById("p") && "ran", origin, refused(() => parent.sessionStorage.length),
    refused(() => parent.document.title)];
  parent.postMessage(found, "*");
}, 50);
</script>"""
"""A page that tries to reach the one around it, and tells that one what came of it."""


def press(tab, name):
    tab.wait(f"!{JOB}('{name}').hidden")
    tab.value(f"{JOB}('{name}').click()")


def quiet(tab, url):
    """Nothing was complained of, and nobody else was asked for anything."""
    assert tab.complaints == []
    assert all(asked.startswith((url, "blob:")) for asked in tab.requests)
    assert tab.value("document.title") == "Pesto: the placement service"


def choose(tab, label, text):
    """Fill the form in with a file of this text, and send it."""
    tab.value(f"""(() => {{
        const files = new DataTransfer(), at = (id) => {JOB}(id);
        const change = (id) => at(id).dispatchEvent(new Event("change"));
        files.items.add(new File([{json.dumps(text)}], "step.json"));
        at("model").value = "a file"; change("model");
        at("file").files = files.files; change("file");
        at("seconds").value = 1; at("label").value = {json.dumps(label)};
        at("submit").requestSubmit();
    }})()""")
    tab.wait(f"{JOB}('submitted').textContent.includes('is queued')")


def reported(tab):
    """Show the report of the job that is watched: its page, with its own script, in a frame that reaches nothing."""
    tab.events.clear()
    press(tab, "report")
    tab.wait(f"!{JOB}('shown').hidden")
    heard = f"""new Promise((done) => {{
        addEventListener("message", (told) => {{
            if (told.source === {JOB}("shown").contentWindow) done(told.data);
        }});
    }})"""
    assert tab.value(heard) == ["ran", "null", "refused", "refused"]
    tab.wait(f"{JOB}('shown').getBoundingClientRect().width > 200")


def test_submit_watch_look_and_compare(tab, tmp_path):
    """Two jobs of an uploaded step, under hostile names; the page of one, and the difference of their plans."""
    plan = tmp_path / "plan.json"
    pesto.save_plan(pesto.solve(pesto.load_graph(TOWERS), solver="list", search=False, time_limit_s=0), plan)
    files = {"plan.json": plan.read_bytes(), "report.html": REPORT}
    with live_service(tmp_path / "data", lambda: FakeJobs(files=files)) as live:
        tab.size(1280, 900)
        tab.open_service(live.url)
        tab.wait(f"!{JOB}('empty').hidden && !{JOB}('demonstrate').hidden")
        for label in (f"talk 3 {HOSTILE}", "talk 2"):
            choose(tab, label, TOWERS.read_text())
            tab.wait(f"{JOB}('job-title').textContent.startsWith({json.dumps(label)})")
            tab.wait(f"!{JOB}('report').hidden && document.querySelector('#chart polyline.best')")
        reported(tab)
        tab.wait("!document.getElementById('compare').hidden && document.getElementById('second').options.length === 2")
        tab.wait(f"{JOB}('first').value !== {JOB}('second').value")  # the last two, unless others are chosen
        tab.value(f"{JOB}('pair').requestSubmit()")
        tab.wait("document.querySelector('#difference table')")
        assert "0 ops of 7 on another device" in tab.value(f"{JOB}('difference').textContent")
        assert tab.value("document.querySelectorAll('#queue img, #queue script, #job img, #compare img').length") == 0
        quiet(tab, live.url)


def test_the_demonstration_is_watched_cancelled_and_outlives_the_server(tab, tmp_path):
    with live_service(tmp_path / "data") as live:
        tab.size(390, 844, phone=True)
        tab.open_service(live.url)
        press(tab, "demonstrate")
        tab.wait("document.querySelector('#queue .state.done')")
        with Client(live.url) as client:
            (job,) = client.jobs()
            assert (job.label, job.state) == ("demonstration", "done")
            name = client.submit({"kind": "solve", "source": {"model": "rnnlm"}, "label": "wait"})
        tab.wait(f"document.querySelector('button[data-job=\"{name}\"]')")
        tab.value(f"document.querySelector('button[data-job=\"{name}\"]').click()")
        tab.wait(f"{JOB}('cards').textContent.includes('running')")
        quiet(tab, live.url)
        live.end()
        tab.wait(f"!{JOB}('trouble').hidden")
        live.start()
        tab.wait(f"{JOB}('trouble').hidden && {JOB}('cards').textContent.includes('attempt 2')")
        press(tab, "cancel")
        tab.wait(f"{JOB}('cards').textContent.includes('cancelled') && !{JOB}('plan').hidden")
        assert tab.value("document.documentElement.scrollWidth") <= 390
        assert tab.value("document.title") == "Pesto: the placement service"


def test_a_token_is_asked_for_and_a_report_is_shown_and_a_split_saved_with_it(tab, tmp_path):
    with live_service(
        tmp_path / "data", lambda: FakeJobs(files={"split.json": b"a split", "report.html": REPORT})
    ) as live:
        tab.size(390, 844, phone=True)
        ann = tokens.add(live.folder, "ann", tokens.Quota())
        live.end()
        live.start()
        tab.call("Page.navigate", url=f"{live.url}/")
        tab.wait(f"{JOB}('door') && !{JOB}('door').hidden")
        tab.value(f"({JOB}('token').value = '{ann}', {JOB}('door').requestSubmit())")
        tab.wait("document.querySelectorAll('#cluster option').length > 3")
        tab.wait(f"{JOB}('door').hidden && {JOB}('trouble').hidden")
        choose(tab, "talk 1", TOWERS.read_text())
        reported(tab)
        shown = [asked for asked in tab.requests if not asked.startswith(f"{live.url}/v1/jobs")]
        assert shown == [f"{live.url}/frame"], "the token is in no address"
        assert tab.complaints == []
        tab.value("HTMLAnchorElement.prototype.click = function () { window.saved = this.download; }")
        tab.value("URL.createObjectURL = (blob) => { window.blob = blob; return 'blob:none'; }")
        press(tab, "plan")
        tab.wait("window.saved")
        assert tab.value("blob.text().then((text) => [saved, text])") == ["split.json", "a split"]


def polled(tab, times=2):
    """Wait until the page has asked for the jobs so many times more."""
    asked = "performance.getEntriesByType('resource').filter((one) => one.name.includes('jobs?most')).length"
    tab.wait(f"{asked} >= {tab.value(asked) + times}")


def test_refusals_stay_until_they_are_dismissed_and_the_keyboard_keeps_its_place(tab, tmp_path):
    """By keys alone, over several looks at the queue: refused, dismissed, submitted, selected, cancelled."""
    focused = "document.activeElement.id || document.activeElement.dataset.job || document.activeElement.tagName"
    with live_service(tmp_path / "data") as live, Client(live.url) as client:
        tab.size(1280, 900)
        tab.open_service(live.url)
        tab.value(f"({JOB}('model').value = 'a file', {JOB}('model').dispatchEvent(new Event('change')))")
        tab.value(f"{JOB}('label').focus()")
        tab.press("Enter")
        tab.wait(f"!{JOB}('submit-refusal').hidden")
        polled(tab)
        assert "no file is chosen" in tab.value(f"{JOB}('submit-refusal').textContent")
        assert tab.value(focused) == "label"
        tab.value("document.querySelector('#submit-refusal .away').focus()")
        tab.press("Enter")
        assert tab.value(f"{JOB}('submit-refusal').hidden") and tab.value(focused) == "label"
        tab.value(f"({JOB}('model').value = 'rnnlm', {JOB}('model').dispatchEvent(new Event('change')))")
        tab.value(f"({JOB}('seconds').value = '', {JOB}('label').value = 'wait', {JOB}('label').focus())")
        tab.value(
            "(window.sent = [], window.fetched = fetch,"
            "fetch = (path, how) => (sent.push(how.body), fetched(path, how)))"
        )
        tab.press("Enter")
        tab.wait(f"{JOB}('submitted').textContent.includes('is queued')")
        assert json.loads(tab.value("sent.find((body) => body)"))["settings"] == {}, "no seconds: the default"
        tab.wait("location.hash.length > 1")
        first = tab.value("location.hash").removeprefix("#")
        tab.wait(f"document.querySelector('button[data-job=\"{first}\"]')")
        tab.value(f"document.querySelector('button[data-job=\"{first}\"]').focus()")
        tab.value("""(() => {
            const range = document.createRange();
            range.selectNodeContents(document.activeElement.closest("tr").lastElementChild);
            getSelection().removeAllRanges();
            getSelection().addRange(range);
        })()""")
        second = client.submit({"kind": "solve", "source": {"model": "rnnlm"}, "label": "wait"})
        tab.wait(f"document.querySelector('button[data-job=\"{second}\"]')")
        polled(tab)
        assert tab.value(focused) == first and tab.value("getSelection().toString()") == first
        tab.press("Enter")
        tab.wait(f"!{JOB}('cancel').hidden && {JOB}('cards').textContent.includes('running')")
        tab.value(f"{JOB}('cancel').focus()")
        polled(tab)
        assert tab.value(focused) == "cancel"
        tab.press("Enter")
        tab.wait(f"{JOB}('cards').textContent.includes('cancelled')")
        assert tab.value(focused) == "job-title"
        quiet(tab, live.url)


def test_a_job_that_is_not_there_is_refused_where_it_would_be_and_that_stays(tab, tmp_path):
    """As by an old bookmark, and of one that is deleted while it is watched."""
    with live_service(tmp_path / "data") as live, Client(live.url) as client:
        tab.size(1280, 900)
        tab.call("Page.navigate", url="about:blank")
        tab.wait("location.href === 'about:blank'")
        tab.call("Page.navigate", url=f"{live.url}/#0123456789abcdef")
        tab.wait(f"{JOB}('job-refusal') && !{JOB}('job-refusal').hidden")
        polled(tab)
        assert "there is no job '0123456789abcdef'" in tab.value(f"{JOB}('job-refusal').textContent")
        assert tab.value(f"{JOB}('trouble').hidden")
        name = client.submit({"kind": "solve", "source": {"model": "rnnlm"}, "label": "wait"})
        tab.wait(f"document.querySelector('button[data-job=\"{name}\"]')")
        tab.value(f"document.querySelector('button[data-job=\"{name}\"]').click()")
        tab.wait(f"{JOB}('cards').textContent.includes('running')")
        assert tab.value(f"{JOB}('job-refusal').hidden"), "superseded by the next job"
        client.cancel(name)
        tab.wait(f"{JOB}('cards').textContent.includes('cancelled')")


def test_the_job_of_a_link_is_watched_once_there_is_a_token(tab, tmp_path):
    with live_service(tmp_path / "data") as live:
        ann = tokens.add(live.folder, "ann", tokens.Quota())
        live.end()
        live.start()
        with Client(live.url, ann) as client:
            name = client.submit({"kind": "solve", "source": {"model": "rnnlm"}, "label": "linked"})
            client.wait(name)
        tab.call("Page.navigate", url="about:blank")
        tab.wait("location.href === 'about:blank'")
        tab.call("Page.navigate", url=f"{live.url}/#{name}")
        tab.wait(f"{JOB}('door') && !{JOB}('door').hidden")
        tab.value(f"({JOB}('token').value = '{ann}', {JOB}('door').requestSubmit())")
        tab.wait(f"{JOB}('cards').textContent.includes('done')")
        assert tab.value(f"{JOB}('job-title').textContent").startswith("linked")
        assert tab.value(f"{JOB}('job-refusal').hidden")


def test_the_pages_own_hash_is_sha256(tab, tmp_path):
    """What is used where a browser has none to offer: over plain HTTP from another machine."""
    assets = Path(__file__).parents[4] / "pesto/service/serve/http/assets"
    script = (assets / "sha256.js").read_text()
    with live_service(tmp_path / "data") as live:
        tab.open_service(live.url)
        for count in (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000):
            data = bytes(k * 7 % 256 for k in range(count))
            found = tab.value(f"(() => {{{script} return hex(hashed(new Uint8Array({list(data)})));}})()")
            assert found == hashlib.sha256(data).hexdigest()
