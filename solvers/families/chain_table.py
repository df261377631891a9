"""The one table of families of chains, and `make_case`: a case from a name, a seed and integers."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from solvers.families import network_chains, theorem_chains
from solvers.families.pipeline_case import PipelineCase
from solvers.instances.table import Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFamily:
    """Chains of one structure."""

    function: Callable[..., PipelineCase]
    """Takes the parameters by name, after a random generator where `seeded`."""
    seeded: bool
    parameters: Mapping[str, Parameter]
    help: str
    """Description of the family, one line."""


_DEVICES = Parameter(default=4, least=1, most=256)
_ROOM = Parameter(default=150, least=100, most=10**6)
_WIDTH = Parameter(default=256, least=1, most=10**5)

CHAIN_FAMILIES: dict[str, ChainFamily] = {
    "three-partition": ChainFamily(
        function=theorem_chains.three_partition,
        seeded=True,
        parameters={
            "parts": Parameter(default=2, least=1, most=1000), "total": Parameter(default=20, least=3, most=10**6),
        },
        help="a given allocation with holes for a hidden partition of numbers in threes (Th 2)",
    ),
    "many-batches": ChainFamily(
        function=theorem_chains.many_batches,
        seeded=False,
        parameters={"k": Parameter(default=3, least=1, most=1000)},
        help="equal layers that need patterns of k batches (Th 4)",
    ),
    "twice-as-long": ChainFamily(
        function=theorem_chains.twice_as_long,
        seeded=False,
        parameters={"k": Parameter(default=2, least=2, most=50)},
        help="contiguous stages take almost twice as long as the best allocation (Th 5)",
    ),
    "arbitrarily-longer": ChainFamily(
        function=theorem_chains.arbitrarily_longer,
        seeded=False,
        parameters={"k": Parameter(default=3, least=2, most=1000)},
        help="contiguous stages within the memory take k - 1 times as long as the best allocation (Th 6)",
    ),
    "one-two-one": ChainFamily(
        function=theorem_chains.one_two_one,
        seeded=False,
        parameters={"bounded": Parameter(default=1, least=0, most=1)},
        help="three layers on two devices; bounded=1: that no contiguous stages fit (Lemma 2)",
    ),
    "random-chain": ChainFamily(
        function=network_chains.random_chain,
        seeded=True,
        parameters={
            "layers": Parameter(default=12, least=1, most=10_000), "devices": _DEVICES,
            "longest": Parameter(default=20, least=1, most=10**9), "room": _ROOM,
        },
        help="ticks and bytes at random; room: percent of the least memory for contiguous stages",
    ),
    "transformer-chain": ChainFamily(
        function=network_chains.transformer_chain,
        seeded=True,
        parameters={
            "blocks": Parameter(default=6, least=1, most=5000), "devices": _DEVICES, "width": _WIDTH, "room": _ROOM,
        },
        help="attention and feed-forward layers between an embedding and a softmax",
    ),
    "convolution-chain": ChainFamily(
        function=network_chains.convolution_chain,
        seeded=True,
        parameters={
            "layers": Parameter(default=20, least=1, most=10_000), "devices": _DEVICES,
            "width": Parameter(default=16, least=1, most=10**4), "room": _ROOM,
        },
        help="convolutions: large activations first, large weights last",
    ),
}  # fmt: skip
"""A new family is one function and one row here."""


def make_case(name: str, seed: int = 0, **parameters: int) -> PipelineCase:
    """The case of a family; equal arguments give equal cases. `seed` counts only where the family is seeded.

    ValueError, with the remedy, for an unknown family or parameter, and for a value out of range.
    """
    if name not in CHAIN_FAMILIES:
        raise ValueError(f"no family is called {name!r} - {_nearest(name, CHAIN_FAMILIES)}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed {seed} is out of range - give 0 to 2^63 - 1")
    family = CHAIN_FAMILIES[name]
    for key, value in parameters.items():
        if key not in family.parameters:
            raise ValueError(f"{name} has no parameter {key!r} - {_nearest(key, family.parameters)}")
        least, most = family.parameters[key].least, family.parameters[key].most
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{name}: {key} is {value!r} - give an integer from {least} to {most}")
    values = {key: parameters.get(key, parameter.default) for key, parameter in family.parameters.items()}
    source = (np.random.default_rng(seed),) if family.seeded else ()
    return family.function(*source, **values)


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1)
    return (f"did you mean {close[0]}? " if close else "") + f"known: {', '.join(names)}"
