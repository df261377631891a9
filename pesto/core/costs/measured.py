"""Measured op times: a profile of one graph on one device, kept in a file bound to the graph's fingerprint."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from pesto.core.cluster import Cluster, Device
from pesto.core.costs import MEASURED, Costs
from pesto.core.costs.analytical import known_everywhere, runnable
from pesto.core.costs.disturbance import list_programs
from pesto.core.costs.presets import preset_named_in
from pesto.core.errors import InputError, MismatchError
from pesto.core.files.disk import read_bytes, write_atomic
from pesto.core.files.json import Amount, DocumentKind, decode_document, encode_json, short_fingerprints, shown
from pesto.core.graph import Graph
from pesto.core.quantities import percent
from pesto.core.source import PROFILE, Origin
from solvers.arrays import Floats, Ints, floats
from solvers.compiled.dag import topological_order

KIND = DocumentKind(format="pesto-profile", version=2, help="make one with pesto profile", oldest=1)
_COLUMNS = ("seconds", "low", "median", "mean", "launch", "spread", "raw_spread")
_LATER = ("low", "median", "mean", "launch")
"""Columns that older profiles do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Trust in the times of a profile: load of the machine, and how much they vary."""

    runs: int
    """Steps that were traced, those that do not count among them."""
    refused: int
    """Disturbed ones of these, which do not count."""
    others_cores: float | None
    """Cores that other programs used on average during the runs that count; None where nothing says."""
    busy: tuple[tuple[str, float], ...] = ()
    """The busiest of those programs, each with its cores."""
    kept: bool = False
    """True if disturbed runs count as all others do, because the user wanted them."""
    excess: float
    """Share by which the trimmed means of all ops sum to more than their lower deciles."""
    clocks: str = ""
    """Clocks of the device after the runs, as it says; empty where it says nothing."""

    def __post_init__(self) -> None:
        """Validate."""
        amounts = [self.excess, *(cores for _, cores in self.busy)]
        amounts += [] if self.others_cores is None else [self.others_cores]
        if not all(0 <= x < math.inf for x in amounts) or not 0 <= self.refused < self.runs:
            raise InputError("profile: its noise must be finite and not negative, and one run at least must count")

    def __str__(self) -> str:
        """Return one line."""
        left = f", {self.refused} more were disturbed and left out" if self.refused else ""
        if self.others_cores is None:
            load = "what other programs used is not known"
        else:
            who = f" ({list_programs(self.busy)})" if self.busy and self.kept else ""
            load = f"other programs used {self.others_cores:.2f} cores meanwhile{who}"
        how = "DISTURBED RUNS KEPT, " if self.kept else ""
        clocks = f"; {self.clocks}" if self.clocks else ""
        mean = f"means are {percent(self.excess)} longer"
        return f"profile: {how}lower deciles of {self.runs - self.refused} runs{left}; {load}; {mean}{clocks}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """Op times of one graph on one device (Pesto, section 3.1), by op index of the graph that was profiled.

    InputError when the arrays differ in length, or a number is negative or infinite.
    """

    fingerprint: str
    """`Graph.fingerprint` of the profiled graph."""
    kind: str
    """Kind of the device that ran: gpu, cpu."""
    device: str
    """Name that the device gives itself."""
    iterations: int
    """Steps that were traced."""
    seconds: Floats
    """[n] trimmed mean; NaN where the op was never traced."""
    low: Floats | None = None
    """[n] lower decile, which plans rest on; None in a profile of version 1, of which they take the means."""
    median: Floats | None = None
    """[n] median of all iterations, as Pesto's released code takes; None in older profiles."""
    mean: Floats | None = None
    """[n] mean of all iterations, as the paper takes (3.1); None in older profiles."""
    launch: Floats | None = None
    """[n] lower decile of what the host takes to launch the op's kernels, NaN where none was seen; None of a CPU."""
    spread: Floats
    """[n] standard deviation over mean, after trimming."""
    raw_spread: Floats
    """[n] standard deviation over mean of all iterations."""
    source: str
    """One line for people: the model, or the profile's file."""
    noise: Noise | None = None
    """How far to trust the times; None where nothing says, as in a profile of version 1."""

    @property
    def times(self) -> Floats:
        """[n] seconds that plans rest on: the lower decile, or the trimmed mean where there is no other."""
        return self.seconds if self.low is None else self.low

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        for name in _COLUMNS:
            if name in _LATER and getattr(self, name) is None:
                continue
            values = floats(getattr(self, name))
            if values.ndim != 1 or len(values) != len(self.seconds):
                raise InputError(f"profile: {name} has shape {values.shape}, expected ({len(self.seconds)},)")
            bad = np.flatnonzero(np.isinf(values) | (values < 0))
            if len(bad):
                raise InputError.build(
                    f"profile: {name}[{bad[0]}] = {values[bad[0]]}", remedy="it must be finite and >= 0"
                )
            object.__setattr__(self, name, values)
        if self.iterations < 1 or not self.kind:
            raise InputError("profile: it needs a kind of device and at least one iteration")


_LOG = logging.getLogger("pesto")


class _ProfileFile(msgspec.Struct, frozen=True, kw_only=True):
    """The profile as JSON; ops stand in topological order, as in the fingerprint, not in one trace's order."""

    format: str
    format_version: int
    fingerprint: str
    kind: str
    device: str
    iterations: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    source: str
    seconds: list[Amount | None]
    low: list[Amount | None] | None = None
    median: list[Amount | None] | None = None
    mean: list[Amount | None] | None = None
    launch: list[Amount | None] | None = None
    spread: list[Amount | None]
    raw_spread: list[Amount | None]
    noise: Noise | None = None


def save_profile(path: Path, profile: Profile, graph: Graph) -> None:
    """Write the profile of `graph`. Raise MismatchError when it is another graph's, FileError when that fails."""
    _require_same_graph(profile.fingerprint, graph, str(path))
    order = _order(graph)
    columns = {name: getattr(profile, name) for name in _COLUMNS if getattr(profile, name) is not None}
    rows = {name: [None if math.isnan(x) else x for x in c[order].tolist()] for name, c in columns.items()}
    content = _ProfileFile(
        format=KIND.format, format_version=KIND.version, fingerprint=profile.fingerprint, kind=profile.kind,
        device=profile.device, iterations=profile.iterations, source=profile.source, noise=profile.noise, **rows,
    )  # fmt: skip
    write_atomic(path, encode_json(content))


def load_profile(path: Path, graph: Graph) -> Profile:
    """Read the profile of `graph` in a file, by that graph's op index.

    Raise InputError when the file is not a profile of a known version, MismatchError when it is of another graph,
    FileError when it cannot be read.
    """
    return parse_profile(read_bytes(path), graph, str(path))


def parse_profile(data: bytes, graph: Graph, where: str) -> Profile:
    """Parse content already read, as `load_profile`; `where` names it in errors."""
    found = decode_document(data, _ProfileFile, where, KIND)
    _require_same_graph(found.fingerprint, graph, where)
    columns = {name: getattr(found, name) for name in _COLUMNS if getattr(found, name) is not None}
    order = _order(graph)
    by_index: dict[str, Floats] = {}
    for name, values in columns.items():
        if len(values) != graph.ops:
            raise InputError.build(
                f"{name} has {len(values)} entries for {graph.ops} ops", where=where, remedy="make the profile again"
            )
        by_index[name] = np.empty(graph.ops)
        by_index[name][order] = [math.nan if x is None else x for x in values]
    return Profile(
        fingerprint=found.fingerprint, kind=found.kind, device=found.device, iterations=found.iterations,
        source=found.source, noise=found.noise, **by_index,
    )  # fmt: skip


def apply_profile(graph: Graph, cluster: Cluster, profile: Profile, fallback: Costs) -> Costs:
    """Return costs with the profile's times on the devices it speaks for, and `fallback`'s everywhere else.

    A profile speaks for the devices of its kind, unless it names a preset that a device does not have: times of an
    H200 are not those of a V100. An op counts as MEASURED when the profile has its time for
    every device where it may be placed, and keeps its origin in `fallback` otherwise. Times scale with `Device.speed`.
    Raise MismatchError when the profile is of another graph.
    """
    _require_same_graph(profile.fingerprint, graph, profile.source)
    can = runnable(graph, cluster)
    if len(profile.seconds) != graph.ops or fallback.compute_s.shape != can.shape:
        raise InputError(
            f"costs: a profile of {len(profile.seconds)} ops and a model of {fallback.compute_s.shape} "
            f"do not fit {can.shape} ops and devices"
        )
    compute_s = fallback.compute_s.copy()
    known = np.zeros_like(can)
    times = profile.times
    traced = ~np.isnan(times)
    for d, device in enumerate(cluster.devices):
        if _covers(profile, device):
            known[:, d] = traced & can[:, d]
            compute_s[known[:, d], d] = times[known[:, d]] / device.speed
    count = int(known.any(axis=1).sum())
    if not count:
        _LOG.warning("the profile of %s (%s) times nothing on %s", shown(profile.device), profile.kind, cluster.name)
    trust = ""
    if profile.noise is not None:
        kept = ", disturbed runs kept" if profile.noise.kept else ""
        trust = f", noise {percent(profile.noise.excess)}{kept}"
    source = (
        f"{count} of {graph.ops} ops by {shown(profile.source)} "
        f"({shown(profile.kind)}, {shown(profile.device)}, {profile.iterations} iterations{trust}), "
        f"else {fallback.source}"
    )
    file = Origin.of_file(PROFILE, shown(profile.source), times.tobytes())
    origin = np.where(known_everywhere(known, graph, cluster), MEASURED, fallback.origin)
    noise = str(profile.noise) if profile.noise else "profile: how much was going on meanwhile, it does not say"
    launch_s = None
    if profile.launch is not None:
        covered = np.array([_covers(profile, device) for device in cluster.devices])
        launch_s = floats(np.where(covered, profile.launch[:, None], np.nan))
    return Costs(
        compute_s=compute_s, origin=origin, source=source, noise=noise if count else "",
        launch_s=launch_s, files=((file,) if count else ()) + fallback.files,
    )  # fmt: skip


def spread_quantiles(
    profile: Profile, levels: Sequence[float], *, least_s: float = 10e-6, raw: bool = False
) -> Floats | None:
    """Return the CDF of the normalised standard deviation (Pesto, Fig 4a): its value at each level in 0..1.

    As in the paper, ops whose mean is below `least_s` are left out; None when no op is left. `raw`: before trimming.
    """
    spread = profile.raw_spread if raw else profile.spread
    kept = spread[(profile.seconds >= least_s) & ~np.isnan(spread)]
    return np.quantile(kept, levels) if len(kept) else None


def _covers(profile: Profile, device: Device) -> bool:
    ran_on = preset_named_in(profile.device)
    return profile.kind == device.kind and (ran_on is None or ran_on.name == device.preset)


def _order(graph: Graph) -> Ints:
    return topological_order(graph.ops, graph.edge_src, graph.edge_dst)


def _require_same_graph(fingerprint: str, graph: Graph, where: str) -> None:
    own = graph.fingerprint()
    if fingerprint != own:
        profiled, here = short_fingerprints(fingerprint, own)
        raise MismatchError.build(
            f"the profile is of graph {shown(profiled)}, this graph is {here}",
            where=where,
            remedy="profile this one; another batch size or model needs a profile of its own",
        )
