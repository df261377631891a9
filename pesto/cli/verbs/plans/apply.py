"""pesto apply: write a plan's devices and order, or the parts of a split, into a GraphDef."""

import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pesto.cli.options import Existing, json_option, refuse, source_options
from pesto.cli.printed import check_outputs, to_json
from pesto.core.errors import UsageError
from pesto.core.files.disk import check_writable, write_atomic
from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.core.quantities import percent, plural, shorten, size
from pesto.core.source import EVERYTHING, Source, file_source
from pesto.inputs.load import partition_split, precheck, split_source
from pesto.reporting.show.lines import fact, paragraph
from pesto.split.files.split_file import SplitFile
from pesto.verbs.artifacts import load_artifact, refusal

if TYPE_CHECKING:
    pass


HOST, WORKER = "host", "worker:"


def apply_split(
    found: SplitFile, source: Source, out: Path, devices: dict[str, str] | str | None, *, as_json: bool
) -> None:
    """Write the partitioned graph of a split; UsageError for devices that are not its workers'."""
    workers, host = _split_devices(devices, found.devices)
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
    click.echo(to_json(said) if as_json else _split_page(said, found))


def _split_devices(given: dict[str, str] | str | None, workers: int) -> tuple[tuple[str, ...], str]:
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


def _split_page(said: dict[str, Any], found: SplitFile) -> str:
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


SUFFIXES = (".pb", ".pbtxt")
SETTINGS = (
    "config.graph_options.rewrite_options.disable_meta_optimizer = True",
    "config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0",
    "config.allow_soft_placement = False",
)
"""What the program that runs the graph has to set in its ConfigProto."""


@click.command("apply")
@click.argument("plan", metavar="PLAN|SPLIT", type=Existing())
@source_options
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="GraphDef to write (.pb, .pbtxt).")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME=DEVICE",
    help="TensorFlow's device for one of the plan's; repeatable, all of them or none. The word cpu takes logical CPUs.",
)
@click.option("--no-order", is_flag=True, help="Write the devices only.")
@click.option(
    "--keep",
    multiple=True,
    metavar="NAME",
    help="A small constant that the program feeds, maps or fetches; repeatable. It stays one op and is sent.",
)
@json_option()
def apply_command(
    *,
    plan: Path,
    source: Source,
    out: Path,
    devices: tuple[str, ...],
    no_order: bool,
    keep: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write PLAN into the GraphDef that it was made for: each op's device, and control edges for the order.

    A SPLIT is written as the graph of its parts: op i of worker k is wk/i, on /device:GPU:k or as --device worker:k=...
    says; what is fed comes from --device host=..., by default CPU 0. A split of a built-in model names its step itself.

    The whole program stays, initializers and savers too, with its names; function calls are inlined. The result is
    verified without running it. Without --device, gpu:1 is /device:GPU:1.

    Constants of up to 128 bytes have a copy on each device that reads them. What is fed under one's name would reach
    one copy alone, so the names of those that several devices read are gone: feeding, mapping or fetching one is
    TensorFlow's error. --keep NAME leaves a constant one op, and sends it, which the plan does not count.

    \b
    pesto solve --graph step.pb --fetch train --out plan.json
    pesto apply plan.json --graph step.pb --fetch train --out placed.pb
    pesto apply split.json --out parts.pb --device cpu
    pesto apply plan.json --graph step.pb --out placed.pb \\
        --device cpu:0=/job:worker/task:0/device:CPU:0 --device gpu:0=...
    """
    if out.suffix not in SUFFIXES:
        raise UsageError.build("the result is a GraphDef", where=out, remedy="give a name that ends in .pb or .pbtxt")
    wanted, artifact = _devices(devices), load_artifact(plan)
    if isinstance(artifact, SplitFile):
        refuse("a split has no order, and constants of each worker's own", "no_order", "keep")
        named = split_source(artifact, source)
        check_outputs([out], [source.file] if source.file else [], as_json=as_json)
        apply_split(artifact, named, out, wanted, as_json=as_json)
        return
    if not isinstance(artifact, Plan):
        raise refusal(artifact, "apply", str(plan), "a plan or a split")
    refuse("a plan is written into a GraphDef", but=("file", "fetch", "out", "devices", "no_order", "keep", "as_json"))
    file = _checked_file(source.file, out)
    check_writable(out)
    step = Source(file=file, fetch=source.fetch)
    said = _apply_plan(artifact, step, out, Wanted(devices=wanted, order=not no_order, keep=keep))
    click.echo(to_json(said) if as_json else _page(said, file, out))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How a plan is to be written."""

    devices: dict[str, str] | str | None
    order: bool
    keep: tuple[str, ...]


def _apply_plan(found: Plan, step: Source, out: Path, wanted: Wanted) -> dict[str, Any]:
    """Write a plan into its GraphDef; the keys of `pesto apply --json`.

    UsageError for fetches that are not ops of the plan, which knows its own.
    """
    file = Path(str(step.file))
    if isinstance(wanted.devices, dict):
        _check_known(wanted.devices, found.lane_device)
    precheck(step)
    fetched = () if step.fetch == EVERYTHING else step.fetch
    unplanned = [name for name in fetched if name.removeprefix("^").split(":")[0] not in found.names]
    if unplanned:
        raise UsageError.build(
            f"the plan has no op {shown(unplanned[0])}: it is of another step of {file}",
            remedy=("leave --fetch out to write the step that was planned, or plan with it: pesto solve --fetch"),
        )
    from pesto.tf.tensorflow_start import load_tensorflow

    load_tensorflow()
    from pesto.tf.apply_placement.targets import ApplyOptions
    from pesto.tf.enforce.rewrite import rewrite_with_report, serialized
    from pesto.tf.sources.sources import read_graph_def

    options = ApplyOptions(devices=wanted.devices, order=wanted.order)
    done = rewrite_with_report(read_graph_def(file), found, options, source=file_source(file.name), keep=wanted.keep)
    write_atomic(out, serialized(done.graph_def, text=out.suffix == ".pbtxt"))
    placement, changes = done.placement, done.edits
    count = Counter(changes.device[name] for name in placement.graph.names if name in changes.device)
    return {
        "out": str(out),
        "nodes": len(done.graph_def.node),
        "ops": done.findings.ops,
        "ops_per_device": {name: count[name] for name in placement.devices},
        "control_edges": sum(len(before) for before in changes.waits.values()),
        "class_removed": len(changes.unbound),
        "verified": {
            "ops": done.findings.ops,
            "moves": len(done.findings.moves),
            "inversions": len(done.findings.inversions),
            "absent": len(done.findings.absent),
        },
        "behind_the_order": list(done.behind),
        "gone": list(done.gone),
        "kept": list(done.kept),
        "kept_sent": done.kept_sent,
        "session_settings": list(SETTINGS),
    }


def _checked_file(file: Path | None, out: Path) -> Path:
    """The GraphDef that was planned."""
    if file is None:
        raise UsageError.build("a plan is written into the graph that was planned", remedy="give it with --graph")
    if file.suffix not in SUFFIXES:
        raise UsageError.build(
            "a plan is written into TensorFlow's graphs", where=file, remedy="give a GraphDef, .pb or .pbtxt"
        )
    if out.resolve() == file.resolve():
        raise UsageError.build(f"{out} is the graph itself", remedy="give the result a file of its own")
    return file


def _devices(given: tuple[str, ...]) -> dict[str, str] | str | None:
    """`pesto.tf.apply_placement.targets.ApplyOptions.devices` from the options."""
    if not given:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    found: dict[str, str] = {}
    for text in given:
        name, equals, target = text.partition("=")
        if not (name and equals and target):
            raise UsageError.build(f"--device {text}: it is no pair", remedy="write gpu:0=/device:GPU:0")
        if name in found:
            raise UsageError.build(f"--device {text}: {name} has a device already", remedy="give each one once")
        found[name] = target
    return found


def _check_known(wanted: dict[str, str], names: tuple[str, ...]) -> None:
    for name in wanted:
        if name not in names:
            raise UsageError.build(
                f"--device {name}: the plan has no such device", remedy=f"it has {', '.join(dict.fromkeys(names))}"
            )


def _page(said: dict[str, Any], file: Path, out: Path) -> str:
    ops, nodes = plural(said["ops"], "op"), plural(said["nodes"], "node")
    rows = [paragraph(f"{file}: {ops} of the step placed, {nodes} written -> {out}", 2)]
    rows += [fact("on", f"{name}: {plural(n, 'op')}") for name, n in said["ops_per_device"].items()]
    how = "TensorFlow places and orders them as planned (on stand-in CPUs, none run)"
    rows += [
        fact("order", f"{plural(said['control_edges'], 'control edge')} added"),
        fact("_class", f"removed from {plural(said['class_removed'], 'op')}"),
        fact("verified", f"{ops}: {how}"),
    ]
    if said["gone"]:
        first, count = said["gone"][0], len(said["gone"])
        some = f"such as {shorten(first)}: feeding or fetching one is an error; --keep NAME keeps a constant's"
        rows.append(fact("gone", f"{plural(count, 'name')} of what has copies or was led around, {some}"))
    if said["kept"]:
        names = ", ".join(map(shorten, said["kept"]))
        rows.append(
            fact("kept", f"{names}: sent {plural(said['kept_sent'], 'time')} a step, which the plan does not count")
        )
    if said["behind_the_order"]:
        first, count = said["behind_the_order"][0], len(said["behind_the_order"])
        text = f"{shorten(first)} and {count - 1} more need ops of the step: fetch them with the whole step"
        rows.append(fact("careful", text))
    remedy = "Grappler drops the order, so turn it off (pesto optimize can run it before the solve):"
    return "\n".join([*rows, fact("to run it", remedy), *SETTINGS])
