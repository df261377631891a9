"""What cannot be written now waits in its order, and nothing else waits for it."""

import pytest

from pesto.core.errors import FileError
from pesto.service.serve import scheduler
from pesto.service.serve.scheduler import PendingWrites
from pesto.service.serve.store.database import UncertainError


class Disk:
    """A writer whose disk is full for so many tries; `lost`: the act before was done, and nobody knows."""

    def __init__(self, full=0, happened=None):
        self.full, self.happened, self.done = full, happened, []

    def do(self, act):
        if self.full:
            self.full -= 1
            if self.happened is None:
                raise FileError("the disk is full - free some")
            value = act(self.done) if self.happened else None
            raise UncertainError(lambda: self.happened).holding(value)
        return act(self.done)


def added(pending, names):
    heard = []
    for name in names:
        pending.add(lambda done, name=name: (done.append(name), name.upper())[1], heard.append)
    return heard


def test_acts_wait_in_their_order_and_are_tried_again_after_a_while(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: now[0])
    disk = Disk(full=2)
    pending = PendingWrites(disk)
    heard = added(pending, "ab")
    assert [pending.work(), pending.work(), disk.full] == [False, False, 1]  # a second has not passed: it is not tried
    now[0] += scheduler.AGAIN_S
    assert [pending.work(), disk.full, disk.done] == [False, 0, []]
    heard += added(pending, "c")
    now[0] += scheduler.AGAIN_S
    assert pending.work()
    assert (disk.done, heard[:2]) == (["a", "b", "c"], ["A", "B"])
    assert pending.work()  # nothing is due
    assert disk.done == ["a", "b", "c"]


@pytest.mark.parametrize("happened", [True, False])
def test_an_act_of_which_nobody_knows_whether_it_happened_is_done_once(happened):
    disk = Disk(full=1, happened=happened)
    pending = PendingWrites(disk)
    heard = added(pending, "a")
    with pytest.raises(UncertainError, match="with its key"):
        pending.finish()
    pending.finish()
    assert (disk.done, heard) == (["a"], ["A"])
