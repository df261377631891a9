"""Chains as JSON that other programs can read and write, with devices and links (docs/reference/chain-file.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import msgspec
import numpy as np

from solvers.arrays import ints
from solvers.files.json_text import DocumentKind, Outline, check_label, decode_document
from solvers.pipelining.chain import Chain, Machines
from solvers.problem import MOST

MOST_MACHINES = 64
"""Devices of a file at most."""
_SPEED = r"^[1-9][0-9]{0,8}(/[1-9][0-9]{0,8})?(?!\n)$"
_ONE = "1"

_Speed = Annotated[str, msgspec.Meta(pattern=_SPEED)]


class DeviceEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A device: a layer of u ticks takes u / speed there, rounded up."""

    speed: _Speed = _ONE
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST)] | None = None


class LinkEntry(msgspec.Struct, kw_only=True):
    """The link between two devices, in both directions; a transfer of u ticks takes u / speed there, rounded up."""

    between: tuple[int, int]
    speed: _Speed


def entries_of(machines: Machines | None) -> tuple[list[DeviceEntry], list[LinkEntry]]:
    """Return the file entries of devices and links; links of speed 1 are omitted."""
    if machines is None:
        return [], []
    memory = [MOST] * machines.devices if machines.memory is None else machines.memory.tolist()
    devices = [
        DeviceEntry(speed=_ONE if speed == 1 else str(speed), memory_bytes=None if held == MOST else held)
        for speed, held in zip(machines.speed, memory, strict=True)
    ]
    links = sorted((pair, speed) for pair, speed in machines.links.items() if speed != 1)
    return devices, [LinkEntry(between=pair, speed=str(speed)) for pair, speed in links]


def machines_of(
    devices: Sequence[DeviceEntry], links: Sequence[LinkEntry], chain: Chain, where: str = "$"
) -> Machines | None:
    """Return the devices that a file names; None where it names none.

    ValueError, one line with the place below `where` and a remedy, for more than MOST_MACHINES, links of devices that
    there are not or that are named twice, and ticks of the slowest that cannot be summed.
    """
    if len(devices) > MOST_MACHINES:
        raise ValueError(f"{where}.devices: {len(devices)} devices, expected at most {MOST_MACHINES} - leave some out")
    known = dict[tuple[int, int], Fraction]()
    for at, link in enumerate(links):
        d, e = sorted(link.between)
        if not 0 <= d < e < len(devices):
            raise ValueError(f"{where}.links[{at}].between: no two of {len(devices)} devices - correct one of them")
        if (d, e) in known:
            raise ValueError(f"{where}.links[{at}].between: a link of {d} and {e} is there already - leave one out")
        known[d, e] = Fraction(link.speed)
    if not devices:
        return None
    memory = [MOST if each.memory_bytes is None else each.memory_bytes for each in devices]
    result = Machines(
        speed=tuple(Fraction(each.speed) for each in devices), links=known,
        memory=None if min(memory) == MOST else ints(memory),
    )  # fmt: skip
    if result.most_ticks(chain) > MOST:
        raise ValueError(f"{where}.devices: ticks of the slowest sum to more than {MOST} - give them higher speeds")
    return result


LARGEST = 1 << 23
"""Bytes of text that are read at most."""
MOST_LAYERS = 1 << 14

_Amount = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
KIND = DocumentKind(format="pesto-chain", version=1, help="give a file of that format")
"""Format name and version of chain files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainInstance:
    """A chain with what else its file says of it. ValueError for a name that does not fit on a line."""

    chain: Chain
    name: str = ""
    """A name for people, one line."""
    ticks_per_second: int | None = None
    """Ticks in a second, if ticks are times."""
    machines: Machines | None = None
    """The devices that it is to be laid on, where its file names them; None: equal ones, as many as one likes."""

    def __post_init__(self) -> None:
        """Validate what is not the chain's own."""
        check_label(self.name, "$.name")


class _Layer(msgspec.Struct, kw_only=True, omit_defaults=True):
    forward: _Amount
    backward: _Amount
    weights_bytes: _Amount
    activation_bytes: _Amount
    output_bytes: _Amount | None = None
    weight_gradient: _Amount | None = None


class ChainDocument(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A chain's file as JSON has it; `instance_of` says whether it is one."""

    format: str
    format_version: int
    name: str = ""
    ticks_per_second: Annotated[int, msgspec.Meta(ge=1, le=10**18)] | None = None
    input_bytes: _Amount = 0
    layers: list[_Layer]
    transfers: list[_Amount]
    devices: list[DeviceEntry] = []
    links: list[LinkEntry] = []


def dumps_chain(instance: ChainInstance) -> bytes:
    """Return a chain's file: equal instances give equal bytes, a layer a line. ValueError for one that is too long."""
    return lines_of(msgspec.to_builtins(document_of(instance)))


def document_of(instance: ChainInstance) -> ChainDocument:
    """Return the document of a chain's file; ValueError if the chain is too long."""
    c = instance.chain
    _check_length(c.layers)
    columns = (c.forward, c.backward, c.weights, c.activation, c.output[1:], c.weight_gradient)
    layers = [  # without what a reader takes for granted
        _Layer(
            forward=forward, backward=backward, weights_bytes=weights, activation_bytes=activation,
            output_bytes=None if output == activation else output,
            weight_gradient=None if gradient == backward // 2 else gradient,
        )
        for forward, backward, weights, activation, output, gradient in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]  # fmt: skip
    devices, links = entries_of(instance.machines)
    return ChainDocument(
        format=KIND.format, format_version=KIND.version, name=instance.name, layers=layers,
        ticks_per_second=instance.ticks_per_second, input_bytes=int(c.output[0]), transfers=c.transfers.tolist(),
        devices=devices, links=links,
    )  # fmt: skip


def loads_chain(data: bytes) -> ChainInstance:
    """Return the chain of a file; ValueError, one line with the place and a remedy, when it is refused.

    Refused are other formats and versions, missing keys, numbers that are not whole, negative or beyond MOST, no layer
    and more than MOST_LAYERS, another number of transfers than of cuts, and devices as of `machines_of`.
    """
    if len(data) > LARGEST:
        raise ValueError(f"{len(data)} bytes are more than {LARGEST} - fold layers together")

    def check_outline(outline: Outline) -> None:
        _check_length(max(1, outline.items.get("layers", 1)))

    return instance_of(decode_document(data, ChainDocument, KIND, check_outline))


def instance_of(document: ChainDocument, where: str = "$") -> ChainInstance:
    """Return the chain of what a file has; ValueError, with the place below `where`, as of `loads_chain`."""
    _check_length(len(document.layers), where)
    if len(document.transfers) != len(document.layers) - 1:
        raise ValueError(
            f"{where}.transfers: {len(document.transfers)} entries, expected {len(document.layers) - 1}, one between "
            f"each two of {len(document.layers)} layers - correct one of them"
        )
    try:
        layers = document.layers
        out = [x.activation_bytes if x.output_bytes is None else x.output_bytes for x in layers]
        gradient = [x.backward // 2 if x.weight_gradient is None else x.weight_gradient for x in layers]
        chain = Chain(
            forward=_column([x.forward for x in layers]), backward=_column([x.backward for x in layers]),
            weights=_column([x.weights_bytes for x in layers]),
            activation=_column([x.activation_bytes for x in layers]),
            output=_column([document.input_bytes, *out]), transfers=_column(document.transfers),
            weight_gradient=_column(gradient),
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(f"{where}: {error} - correct the chain") from error
    check_label(document.name, f"{where}.name")
    machines = machines_of(document.devices, document.links, chain, where)
    return ChainInstance(chain=chain, name=document.name, ticks_per_second=document.ticks_per_second, machines=machines)


def _column(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


def lines_of(document: dict[str, Any]) -> bytes:
    """Return JSON of an object: a key a line, and an object of a list a line; keys in the order given."""
    encode, lines = msgspec.json.Encoder().encode, list[bytes]()
    for key, value in document.items():
        rows = isinstance(value, list) and value and isinstance(value[0], dict)
        text = b"[\n" + b",\n".join(map(encode, value)) + b"\n]" if rows else encode(value)
        lines.append(b'"%s":%s' % (key.encode(), text))
    return b"{\n" + b",\n".join(lines) + b"\n}\n"


def _check_length(layers: int, where: str = "$") -> None:
    if not 1 <= layers <= MOST_LAYERS:
        remedy = "give one" if not layers else "fold layers together"
        raise ValueError(f"{where}.layers: {layers} layers, expected 1 to {MOST_LAYERS} - {remedy}")
