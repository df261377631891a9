"""Placement methods of the literature: their result type, and the table that names all of them."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from solvers.arrays import Ints, ints
from solvers.problem import Problem
from solvers.result import Options
from solvers.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """A device for every task, and the order that the method gives them, if it gives one."""

    device: Ints
    """[n] device of each task: one that can run it, and one location for each group."""
    rank: Ints | None = None
    """[n] a permutation that follows the precedence; each device runs its tasks in this order. None where the method
    leaves the order to a runtime: its tasks are then listed by bottom level."""

    def __post_init__(self) -> None:
        """Copy and freeze."""
        object.__setattr__(self, "device", ints(self.device))
        if self.rank is not None:
            object.__setattr__(self, "rank", ints(self.rank))


class NoRoomError(Exception):
    """A method that respects memory found no place for a task: one line, with the bytes."""


Place = Callable[[Problem, Options], Placement]
"""A method: deterministic in (problem, `options.seed`), and within `options.seconds` where it could go on for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placer:
    """One row of the table of placement methods."""

    place: str
    """The `Place`, as "module of this package:function"."""
    source: str
    """Author, year, and what the method is called there."""
    memory: bool = False
    """True if the source respects a device's memory, and so this does."""
    repair: bool = False
    """True if its source places without looking at memory and then moves what does not fit, as the caller must do."""
    emulator: str | None = None
    """Module whose `emulate` gives the order that the source leaves to a framework's scheduler, also in its repair."""
    package: str | None = None
    """The distribution it needs, where that is one with native code, so that it runs in a process of its own."""

    def load(self) -> Place:
        """Import and return the method."""
        module, _, function = self.place.partition(":")
        place: Place = getattr(importlib.import_module(f"solvers.heuristics.{module}"), function)
        return place

    def timing(self) -> Callable[[Problem, Ints], Schedule] | None:
        """Return what makes the framework's schedule of [n] devices; None where the caller has the order."""
        if self.emulator is None:
            return None
        emulate: Callable[[Problem, Ints], Schedule] = importlib.import_module(
            f"solvers.heuristics.{self.emulator}"
        ).emulate
        return emulate


PLACERS: dict[str, Placer] = {
    "round-robin": Placer(
        place="devices_of_location:place_in_turn", source="ParDNN (Qararyah et al. 2020), section 6.4.1, baseline RR"
    ),
    "pardnn": Placer(place="pardnn.place:place", source="ParDNN (Qararyah et al. 2020), section 4.1", repair=True),
    "pardnn-unrefined": Placer(
        place="pardnn.place:place_unrefined",
        source="ParDNN (Qararyah et al. 2020), section 6.4.1, slicing and mapping alone",
        repair=True,
    ),
    "pardnn-glb": Placer(
        place="pardnn.place:place_balanced",
        source="ParDNN (Qararyah et al. 2020), figure 4.2 (e), GLB instead of LALB",
        repair=True,
    ),
    "pardnn-emulated": Placer(
        place="pardnn.place:place_emulated",
        source="ParDNN (Qararyah et al. 2020), section 4.1, ordered and repaired by its emulator (4.1.2)",
        repair=True,
        emulator="pardnn.emulator",
    ),
    "random": Placer(place="devices_of_location:place_at_random", source="uniform, as in Mirhoseini et al. 2017"),
    "linear-clustering": Placer(
        place="clusters.linear_clustering:place",
        source="Kim & Browne 1988, with GLB (Radulescu & van Gemund 1998) and EST First (Wang & Sinnen 2018)",
    ),
    "metis": Placer(
        place="clusters.metis:place",
        source="multilevel k-way partitioning (Karypis & Kumar 1998), as in Mirhoseini et al. 2017",
        package="pymetis",
    ),
    "pipedream": Placer(
        place="clusters.pipedream:place",
        source="PipeDream (Harlap et al. 2018; Narayanan et al. 2019), section 3.1, without replication",
        memory=True,
    ),
    "mcmc": Placer(
        place="clusters.mcmc:place", source="FlexFlow (Jia, Zaharia & Aiken 2019), section 6, one op, one location"
    ),
    "heft": Placer(place="lists.heft:place_by_heft", source="Topcuoglu, Hariri and Wu 2002, HEFT"),
    "cpop": Placer(place="lists.heft:place_by_cpop", source="Topcuoglu, Hariri and Wu 2002, CPOP"),
    "etf": Placer(place="lists.etf:place", source="Hwang, Chow, Anger and Lee 1989, ETF"),
    "dls": Placer(place="lists.dls:place", source="Sih and Lee 1993, DLS"),
    "m-topo": Placer(place="baechi.placers:place_by_m_topo", source="Baechi (Jeon et al. 2020), m-TOPO", memory=True),
    "m-etf": Placer(place="baechi.placers:place_by_m_etf", source="Baechi (Jeon et al. 2020), m-ETF", memory=True),
    "m-sct": Placer(
        place="baechi.placers:place_by_m_sct", source="Baechi (Jeon et al. 2020), m-SCT", memory=True, package="ortools"
    ),
}
"""A new method is one new function and one row here."""
