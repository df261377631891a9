"""pesto apply of a split: its partitioned GraphDef, for people and as JSON."""

import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pesto.cli.printed import to_json
from pesto.core.errors import UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.quantities import percent, plural, size
from pesto.core.source import Source
from pesto.inputs.load import partition_split
from pesto.reporting.show.lines import fact, paragraph
from pesto.split.files.split_file import SplitFile

if TYPE_CHECKING:
    pass

HOST, WORKER = "host", "worker:"


def apply_split(
    found: SplitFile, source: Source, out: Path, devices: dict[str, str] | str | None, *, as_json: bool
) -> None:
    """Write the partitioned graph of a split; UsageError for devices that are not its workers'."""
    workers, host = _devices(devices, found.devices)
    made = partition_split(found, source, workers, host)
    from pesto.tf.enforce.rewrite import serialized

    write_atomic(out, serialized(made.graph_def, text=out.suffix == ".pbtxt"))
    count = Counter(node.device for node in made.graph_def.node)
    said = {
        "out": str(out),
        "nodes": len(made.graph_def.node),
        "fetches": list(made.fetches),
        "workers": list(made.devices),
        "nodes_per_device": dict(sorted(count.items())),
        "bytes": made.parts.moved_bytes(),
        "late": made.late,
        "checkpoints": asdict(made.checkpoints),
        "variables_share": made.share,
        "variables": [
            {"name": v.name, "dtype": v.dtype, "shape": list(v.shape),
             "parts": [{"name": name, "begin": list(begin), "shape": list(shape)}
                       for name, (begin, shape) in zip(v.parts, v.boxes, strict=True)]}
            for v in made.variables
        ],
    }  # fmt: skip
    click.echo(to_json(said) if as_json else _page(said, found))


def _devices(given: dict[str, str] | str | None, workers: int) -> tuple[tuple[str, ...], str]:
    """TensorFlow's device of each worker, and the host's."""
    if given is None or given in ("gpu", "cpu"):
        kind, first = ("CPU", 1) if given == "cpu" else ("GPU", 0)
        return tuple(f"/device:{kind}:{first + k}" for k in range(workers)), "/device:CPU:0"
    if isinstance(given, str):
        raise UsageError.build(
            f"--device {given}: it is no device of a split", remedy=f"write {WORKER}0=/device:GPU:0, cpu or gpu"
        )
    names = [f"{WORKER}{k}" for k in range(workers)]
    strange = [name for name in given if name not in (HOST, *names)]
    lacking = [name for name in names if name not in given]
    if strange:
        raise UsageError(f"--device {strange[0]}: the split has {names[0]} to {names[-1]}, and {HOST}")
    if lacking:
        raise UsageError.build(
            f"--device {lacking[0]}: it has no device", remedy=f"give one for each of {names[0]} to {names[-1]}"
        )
    return tuple(_target(name, given[name]) for name in names), _target(HOST, given.get(HOST, "/device:CPU:0"))


def _target(name: str, device: str) -> str:
    """A device as TensorFlow spells it."""
    if not re.fullmatch(r"(/(job|replica|task|device):[A-Za-z0-9_:]+)+", device):
        raise UsageError.build(
            f"--device {name}={device}: no device of TensorFlow", remedy=f"write {name}=/device:GPU:0"
        )
    return device


def _page(said: dict[str, Any], found: SplitFile) -> str:
    workers = plural(len(said["workers"]), "worker")
    rows = [paragraph(f"{found.what}: {plural(said['nodes'], 'node')} for {workers} -> {said['out']}", 2)]
    rows += [fact("on", f"{name}: {plural(n, 'node')}") for name, n in said["nodes_per_device"].items()]
    rows += [
        fact("sent", f"{size(said['bytes'])} a step; {plural(said['late'], 'tensor')} late, shortly before their use"),
        fact(
            "variables",
            f"{percent(said['variables_share'])} of all on the fullest worker; --json says which part is which",
        ),
        fact("to run it", f"run {said['checkpoints']['restore']}, then feed and fetch as before"),
        fact(
            "checkpoints",
            f"those of the whole step: feed {said['checkpoints']['prefix']} a checkpoint's prefix, and run "
            f"{said['checkpoints']['restore']} or {said['checkpoints']['save']}",
        ),
    ]
    return "\n".join(rows)
