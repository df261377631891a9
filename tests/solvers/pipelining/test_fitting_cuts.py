"""Contiguous stages where received inputs count: by what is held, not by the rule that nothing is above."""

import numpy as np
from pipelines import small_chain, twelve

from solvers.pipelining.chain import Machines, MemoryModel
from solvers.pipelining.contiguous import best_cuts, bytes_lacking, period_bound, thinnings
from solvers.pipelining.one_f_one_b_star import bytes_short, fitting_cuts, least_period, thinned
from solvers.pipelining.pattern_check import check

RECEIVED, WHOLE = MemoryModel.RECEIVED, ((1, 1),)


def test_cuts_for_the_memory_are_no_longer_than_those_without_regard_to_it() -> None:
    """The rule alone passes over stages that fit: of the 12 layers it finds 179 ticks where 100 do."""
    chain = twelve()
    least = {}
    for memory in range(62, 190, 6):
        machines = Machines.alike(4, memory)
        found, rule = fitting_cuts(chain, machines, RECEIVED, WHOLE)[0], best_cuts(chain, machines)
        fixed = least_period(chain, best_cuts(chain, Machines.alike(4)).allocation, memory)
        assert found.period <= rule.period
        assert fixed is None or found.period <= fixed.period
        assert found.period >= period_bound(chain, machines)
        least[memory] = found.period
    assert list(least.values()) == sorted(least.values(), reverse=True)
    machines = Machines.alike(4, 95)
    found = fitting_cuts(chain, machines, RECEIVED, WHOLE)[0]
    assert (found.period, best_cuts(chain, machines).period) == (100, 179)


def test_memory_that_just_suffices() -> None:
    """What lacks is no more than by the rule, and with it stages are found."""
    fewer = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        chain, machines = small_chain(rng, int(rng.integers(2, 9))), Machines.alike(3, 0)
        short = bytes_short(chain, machines)
        fewer += short < bytes_lacking(chain, machines)
        assert fitting_cuts(chain, Machines.alike(3, short), RECEIVED, WHOLE)[0] is not None, seed
    assert fewer > 5


def test_what_is_found_fits_and_says_what_it_holds() -> None:
    """Random chains on equal and unequal devices: the pattern is valid within the memory, bytes and groups are its."""
    shorter = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        chain, keeps = small_chain(rng, int(rng.integers(3, 9))), thinnings(int(rng.integers(1, 4)))
        machines = Machines.alike(3, int(rng.integers(10, 60)))
        if seed % 2:
            machines = Machines(speed=machines.speed, memory=machines.memory + np.arange(3))
        found, rule = fitting_cuts(chain, machines, RECEIVED, keeps)[1], best_cuts(chain, machines, keeps=keeps)
        if found is None:
            assert rule is None
            continue
        shorter += rule is None or found.period < rule.period
        pattern = thinned(machines.on(chain, found.allocation), found.allocation, found.T, found.keep)
        checked = check(chain, found.allocation, pattern, machines.memory, RECEIVED, machines)
        assert checked.valid, checked.text
        assert (checked.peaks[found.order] <= found.bytes).all()
        assert (checked.in_flight[found.first[:-1]] <= found.in_flight).all()
    assert shorter > 5
