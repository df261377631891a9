"""Who else was busy: /proc as it might be, a clock that is told the time, and runs that are refused or kept."""

import os
from dataclasses import replace

import pytest

from pesto.core.costs.disturbance import (
    CpuSnapshot,
    DisturbanceWatch,
    list_programs,
    load_between,
    run_undisturbed,
    take_snapshot,
    total_load,
)
from pesto.core.errors import Exit, NothingFoundError

ME = os.getpid()
HZ = os.sysconf("SC_CLK_TCK")


def put(root, busy, processes):
    """A /proc in which the processors were busy for so many seconds; processes {pid: (name, parent, own, ended)}."""
    ticks = [int(busy * HZ / 2), 0, 0, 10**6, 7, 0, 0, int(busy * HZ) - int(busy * HZ / 2), 0, 0]
    (root / "stat").write_text(f"cpu  {' '.join(map(str, ticks))}\ncpu0 0 0 0 0\n")
    for pid, (name, parent, used, ended) in processes.items():
        (root / str(pid)).mkdir(exist_ok=True)
        fields = [pid, f"({name})", "S", parent, *[0] * 9, int(used * HZ), 0, int(ended * HZ), 0, *[0] * 30]
        (root / str(pid) / "stat").write_text(" ".join(map(str, fields)) + "\n")


def moment(at, busy, own=0.0, **others):
    """Others as name=seconds, numbered as they come."""
    seen = {1000 + k: (name, used) for k, (name, used) in enumerate(others.items())}
    return CpuSnapshot(at_s=at, busy_s=busy, own_s=own, others=seen)


def test_proc_is_read_as_the_kernel_writes_it(tmp_path):
    """Steal is busy and waiting for a disk is not; children and theirs are one's own, with what ended ones used."""
    odd = "a) (b c"
    put(tmp_path, 9.0, {ME: ("me", 1, 2.0, 0.5), 71: ("child", ME, 1.0, 0.0), 72: ("grandchild", 71, 0.25, 0.0),
                        80: (odd, 1, 3.0, 40.0), 81: ("idle", 80, 0.0, 0.0)})  # fmt: skip
    (tmp_path / "90").mkdir()  # it has ended meanwhile
    (tmp_path / "91").mkdir()
    (tmp_path / "91" / "stat").write_text("91 (torn")
    (tmp_path / "self").mkdir()
    found = take_snapshot(tmp_path, lambda: 12.5)
    assert (found.at_s, found.busy_s, found.own_s) == pytest.approx((12.5, 9.0, 2.0 + 0.5 + 1.0 + 0.25))
    assert found.others == {80: (odd, pytest.approx(3.0)), 81: ("idle", 0.0)}


@pytest.mark.parametrize("text", [None, "", "cpu  1 2", "cpu a b c d e f g h"])
def test_a_machine_that_says_nothing_is_not_taken_for_quiet(tmp_path, text):
    """Without /proc, or with one that cannot be read, nothing is known."""
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert take_snapshot(tmp_path) is None


def test_a_proc_without_this_process_is_not_believed(tmp_path):
    """All that is busy would be others'."""
    put(tmp_path, 9.0, {80: ("a", 1, 3.0, 0.0)})
    assert take_snapshot(tmp_path) is None


def test_others_are_what_is_busy_and_not_ones_own():
    """In 2 s the processors worked 3 s, 1 s of it for us: others used one core, b of them 0.75 that can be seen."""
    before = moment(10.0, 100.0, 50.0, a=7.0, b=1.0)
    after = moment(12.0, 103.0, 51.0, a=7.0, b=2.5, c=0.2)
    found = load_between(before, after)
    assert found.cores == pytest.approx(1.0)
    assert found.who == (("b", pytest.approx(0.75)), ("c", pytest.approx(0.1)))
    renamed = replace(after, others={1000: ("a", 7.0), 1001: ("kworker/1", 2.5)})
    assert load_between(before, renamed).who == (("kworker/1", pytest.approx(0.75)),)  # not all that it ever used
    assert load_between(before, replace(after, busy_s=100.5)).cores == 0  # ticks are counted at other moments than ours


def test_stretches_of_time_are_weighed_by_their_seconds():
    """1 s at two cores and 3 s at none are half a core."""
    parts = [
        load_between(moment(0, 0, a=0.0), moment(1, 2, a=2.0)),
        load_between(moment(1, 2, a=2.0), moment(4, 2, a=2.0)),
    ]
    found = total_load(parts)
    assert (found.seconds, found.cores, found.who) == (4.0, pytest.approx(0.5), (("a", pytest.approx(0.5)),))


def test_names_are_one_line_and_the_busiest_alone():
    """What a process calls itself cannot act on a terminal; whoever is not seen is said to be elsewhere."""
    text = list_programs((("cc1plus", 0.9), ("evil\x1b[2J\n", 0.5), ("x", 0.2), ("y", 0.1)))
    assert text.startswith("cc1plus 0.90, ") and text.isprintable() and "y" not in text.split()
    assert "another container" in list_programs((("x", 0.001),))


class Machine:
    """A machine of two cores on which a run takes `took` seconds, and others use `load(k)` cores in its k-th window."""

    def __init__(self, took, load):
        self.took, self.load, self.now, self.busy, self.used, self.runs, self.looks = took, load, 0.0, 0.0, 0.0, 0, 0
        self.seen = 0.0

    def run(self):
        self.runs += 1
        self.now += self.took
        return self.runs

    def look(self):
        cores = self.load(self.looks)
        spent = self.now - self.seen
        self.busy, self.used, self.seen = self.busy + spent * (1 + cores), self.used + spent * cores, self.now
        self.looks += 1
        return moment(self.now, self.busy, self.seen, cc1plus=self.used)

    def watch(self, **changed):
        return DisturbanceWatch(look=self.look, clock=lambda: self.now, cores=2, **changed)


def test_runs_on_a_quiet_machine_all_count():
    """0.09 of two cores is a system at rest; the load is remembered."""
    machine = Machine(0.1, lambda _: 0.09)
    found = run_undisturbed(machine.run, 10, machine.watch())
    assert (found.samples, found.runs, found.refused) == (list(range(1, 11)), 10, 0)
    assert found.others.cores == pytest.approx(0.09)


def test_disturbed_windows_are_left_out_and_measured_again():
    """Runs of 0.1 s are judged three at once; the second window is disturbed, so runs 4 to 6 do not count."""
    machine = Machine(0.1, lambda k: 1.5 if k == 2 else 0.0)
    found = run_undisturbed(machine.run, 6, machine.watch())
    assert found.samples == [1, 2, 3, 7, 8, 9]
    assert (found.runs, found.refused, found.others.cores) == (9, 3, 0.0)


def test_a_run_of_seconds_is_judged_by_itself():
    """And the one beside it is not lost."""
    machine = Machine(3.0, lambda k: 1.0 if k == 1 else 0.0)
    assert run_undisturbed(machine.run, 2, machine.watch()).samples == [2, 3]


@pytest.mark.parametrize(
    ("load", "accepted", "runs"),
    [
        (lambda _: 1.4, 0, 30),  # no run counts: it ends when as many have been tried as were wanted
        (lambda k: 1.4 if k % 10 != 1 else 0.0, 12, 120),  # one of ten: it ends after four times as many
    ],
)
def test_a_busy_machine_ends_with_who_was_busy(load, accepted, runs):
    """Exit code 5, one line: how much, who, how many runs count, and what to do."""
    machine = Machine(0.1, load)
    told = rf"1\.40 of 2 cores \(cc1plus 1\.40\), so that only {accepted} of {runs} runs count - measure when"
    with pytest.raises(NothingFoundError, match=told) as caught:
        run_undisturbed(machine.run, 30, machine.watch())
    assert caught.value.exit_code == Exit.NOTHING and "\n" not in str(caught.value)
    assert machine.runs == runs


def test_disturbed_runs_count_where_they_are_kept():
    """The load stays with them."""
    machine = Machine(0.1, lambda _: 1.4)
    found = run_undisturbed(machine.run, 9, machine.watch(keep=True))
    assert (len(found.samples), found.refused) == (9, 0)
    assert found.others.cores == pytest.approx(1.4) and found.others.who[0][0] == "cc1plus"


def test_without_a_look_runs_count_and_nothing_is_said_of_others():
    """A machine without /proc."""
    machine = Machine(0.1, lambda _: 1.4)
    found = run_undisturbed(machine.run, 5, replace(machine.watch(), look=lambda: None))
    assert (len(found.samples), found.others) == (5, None)


def test_this_machine_is_read_where_it_has_proc():
    """Two looks, the first before the second; this process is no other."""
    before, after = take_snapshot(), take_snapshot()
    if before is None or after is None:
        pytest.skip("no /proc")
    assert after.at_s >= before.at_s and after.busy_s >= before.busy_s
    assert ME not in before.others and before.own_s > 0
