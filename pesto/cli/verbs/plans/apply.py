"""pesto apply: write a plan's devices and order, or the parts of a split, into a GraphDef."""

import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

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

HOST, WORKER = "host", "worker:"
SUFFIXES = (".pb", ".pbtxt")
SETTINGS = (
    "config.graph_options.rewrite_options.disable_meta_optimizer = True",
    "config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0",
    "config.allow_soft_placement = False",
)
"""Fields that the program which runs the graph has to set in its ConfigProto."""


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
    *, plan: Path, source: Source, out: Path, devices: tuple[str, ...], no_order: bool, keep: tuple[str, ...],
    as_json: bool,
) -> None:  # fmt: skip
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
    targets, artifact = _read_devices(devices), load_artifact(plan)
    if isinstance(artifact, SplitFile):
        refuse("a split has no order, and constants of each worker's own", "no_order", "keep")
        step = split_source(artifact, source)
        check_outputs([out], [source.file] if source.file else [], as_json=as_json)
        written = apply_split(artifact, step, out, targets)
        click.echo(to_json(written) if as_json else _split_page(written, artifact.what))
        return
    if not isinstance(artifact, Plan):
        raise refusal(artifact, "apply", str(plan), "a plan or a split")
    refuse("a plan is written into a GraphDef", but=("file", "fetch", "out", "devices", "no_order", "keep", "as_json"))
    file = source.file
    if file is None:
        raise UsageError.build("a plan is written into the graph that was planned", remedy="give it with --graph")
    if file.suffix not in SUFFIXES:
        raise UsageError.build(
            "a plan is written into TensorFlow's graphs", where=file, remedy="give a GraphDef, .pb or .pbtxt"
        )
    if out.resolve() == file.resolve():
        raise UsageError.build(f"{out} is the graph itself", remedy="give the result a file of its own")
    check_writable(out)
    for name in targets if isinstance(targets, dict) else ():
        if name not in artifact.lane_device:
            known = ", ".join(dict.fromkeys(artifact.lane_device))
            raise UsageError.build(f"--device {name}: the plan has no such device", remedy=f"it has {known}")
    written = apply_plan(artifact, Source(file=file, fetch=source.fetch), out, targets, order=not no_order, keep=keep)
    click.echo(to_json(written) if as_json else _plan_page(written, file))


def _read_devices(texts: tuple[str, ...]) -> dict[str, str] | str | None:
    """Return `pesto.tf.apply_placement.targets.ApplyOptions.devices` from the options."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    targets: dict[str, str] = {}
    for text in texts:
        name, equals, target = text.partition("=")
        if not (name and equals and target):
            raise UsageError.build(f"--device {text}: it is no pair", remedy="write gpu:0=/device:GPU:0")
        if name in targets:
            raise UsageError.build(f"--device {text}: {name} has a device already", remedy="give each one once")
        targets[name] = target
    return targets


def apply_plan(
    plan: Plan, step: Source, out: Path, devices: dict[str, str] | str | None, *, order: bool, keep: tuple[str, ...]
) -> dict[str, Any]:
    """Write a plan into the GraphDef of `step`, and return the keys of `pesto apply --json`.

    UsageError for fetches that are not ops of the plan, which knows its own; InputError for a graph whose sizes are
    open where the plan has none.
    """
    file = Path(str(step.file))
    precheck(step)
    fetched = () if step.fetch == EVERYTHING else step.fetch
    unplanned = [name for name in fetched if name.removeprefix("^").split(":")[0] not in plan.names]
    if unplanned:
        raise UsageError.build(
            f"the plan has no op {shown(unplanned[0])}: it is of another step of {file}",
            remedy="leave --fetch out to write the step that was planned, or plan with it: pesto solve --fetch",
        )
    from pesto.tf.tensorflow_start import load_tensorflow

    load_tensorflow()
    from pesto.tf.apply_placement.targets import ApplyOptions
    from pesto.tf.enforce.rewrite import rewrite_with_report, serialize_graph_def
    from pesto.tf.sources.sources import read_graph_def

    options, graph_def = ApplyOptions(devices=devices, order=order), read_graph_def(file)
    rewritten = rewrite_with_report(graph_def, plan, options, source=file_source(file.name), keep=keep)
    write_atomic(out, serialize_graph_def(rewritten.graph_def, text=out.suffix == ".pbtxt"))
    placement, edits, findings = rewritten.placement, rewritten.edits, rewritten.findings
    count = Counter(edits.device[name] for name in placement.graph.names if name in edits.device)
    return {
        "out": str(out),
        "nodes": len(rewritten.graph_def.node),
        "ops": findings.ops,
        "ops_per_device": {name: count[name] for name in placement.devices},
        "control_edges": sum(len(before) for before in edits.waits.values()),
        "class_removed": len(edits.unbound),
        "verified": {
            "ops": findings.ops,
            "moves": len(findings.moves),
            "inversions": len(findings.inversions),
            "absent": len(findings.absent),
        },
        "behind_the_order": list(rewritten.behind),
        "gone": list(rewritten.gone),
        "kept": list(rewritten.kept),
        "kept_sent": rewritten.kept_sent,
        "session_settings": list(SETTINGS),
    }


def _plan_page(written: dict[str, Any], file: Path) -> str:
    """Return a page of the keys of `apply_plan`."""
    ops, nodes = plural(written["ops"], "op"), plural(written["nodes"], "node")
    rows = [paragraph(f"{file}: {ops} of the step placed, {nodes} written -> {written['out']}", 2)]
    rows += [fact("on", f"{name}: {plural(n, 'op')}") for name, n in written["ops_per_device"].items()]
    how = "TensorFlow places and orders them as planned (on stand-in CPUs, none run)"
    rows += [
        fact("order", f"{plural(written['control_edges'], 'control edge')} added"),
        fact("_class", f"removed from {plural(written['class_removed'], 'op')}"),
        fact("verified", f"{ops}: {how}"),
    ]
    if gone := written["gone"]:
        some = f"such as {shorten(gone[0])}: feeding or fetching one is an error; --keep NAME keeps a constant's"
        rows.append(fact("gone", f"{plural(len(gone), 'name')} of what has copies or was led around, {some}"))
    if kept := written["kept"]:
        sent = f"sent {plural(written['kept_sent'], 'time')} a step, which the plan does not count"
        rows.append(fact("kept", f"{', '.join(map(shorten, kept))}: {sent}"))
    if behind := written["behind_the_order"]:
        text = f"{shorten(behind[0])} and {len(behind) - 1} more need ops of the step: fetch them with the whole step"
        rows.append(fact("careful", text))
    remedy = "Grappler drops the order, so turn it off (pesto optimize can run it before the solve):"
    return "\n".join([*rows, fact("to run it", remedy), *SETTINGS])


def apply_split(
    split: SplitFile, step: Source, out: Path, devices: dict[str, str] | str | None
) -> dict[str, Any]:  # fmt: skip
    """Write the partitioned graph of a split, and return the keys of `pesto apply --json`.

    UsageError for devices that are not its workers'.
    """
    workers, host = _split_devices(devices, split.devices)
    partition = partition_split(split, step, workers, host)
    from pesto.tf.enforce.rewrite import serialize_graph_def

    write_atomic(out, serialize_graph_def(partition.graph_def, text=out.suffix == ".pbtxt"))
    count = Counter(node.device for node in partition.graph_def.node)
    return {
        "out": str(out),
        "nodes": len(partition.graph_def.node),
        "fetches": list(partition.fetches),
        "workers": list(partition.devices),
        "nodes_per_device": dict(sorted(count.items())),
        "bytes": partition.parts.moved_bytes(),
        "late": partition.late,
        "checkpoints": asdict(partition.checkpoints),
        "variables_share": partition.share,
        "variables": [
            {"name": v.name, "dtype": v.dtype, "shape": list(v.shape),
             "parts": [{"name": name, "begin": list(begin), "shape": list(shape)}
                       for name, (begin, shape) in zip(v.parts, v.boxes, strict=True)]}
            for v in partition.variables
        ],
    }  # fmt: skip


def _split_devices(given: dict[str, str] | str | None, workers: int) -> tuple[tuple[str, ...], str]:
    """Return TensorFlow's device of each worker, and the host's."""
    if given is None or given in ("gpu", "cpu"):
        kind, first = ("CPU", 1) if given == "cpu" else ("GPU", 0)
        return tuple(f"/device:{kind}:{first + k}" for k in range(workers)), "/device:CPU:0"
    if isinstance(given, str):
        raise UsageError.build(
            f"--device {given}: it is no device of a split", remedy=f"write {WORKER}0=/device:GPU:0, cpu or gpu"
        )
    names = [f"{WORKER}{k}" for k in range(workers)]
    if strange := [name for name in given if name not in (HOST, *names)]:
        raise UsageError.build(
            f"--device {strange[0]}: the split has no such device",
            remedy=f"it has {names[0]} to {names[-1]}, and {HOST}",
        )
    if lacking := [name for name in names if name not in given]:
        raise UsageError.build(
            f"--device {lacking[0]}: it has no device", remedy=f"give one for each of {names[0]} to {names[-1]}"
        )
    targets = {HOST: "/device:CPU:0"} | given
    for name in (*names, HOST):
        if not re.fullmatch(r"(/(job|replica|task|device):[A-Za-z0-9_:]+)+", targets[name]):
            raise UsageError.build(
                f"--device {name}={targets[name]}: no device of TensorFlow", remedy=f"write {name}=/device:GPU:0"
            )
    return tuple(targets[name] for name in names), targets[HOST]


def _split_page(written: dict[str, Any], what: str) -> str:
    """Return a page of the keys of `apply_split`; `what` names the step that was split."""
    workers, checkpoints = plural(len(written["workers"]), "worker"), written["checkpoints"]
    rows = [paragraph(f"{what}: {plural(written['nodes'], 'node')} for {workers} -> {written['out']}", 2)]
    rows += [fact("on", f"{name}: {plural(n, 'node')}") for name, n in written["nodes_per_device"].items()]
    late = f"{plural(written['late'], 'tensor')} late, shortly before their use"
    share = percent(written["variables_share"])
    rows += [
        fact("sent", f"{size(written['bytes'])} a step; {late}"),
        fact("variables", f"{share} of all on the fullest worker; --json says which part is which"),
        fact("to run it", f"run {checkpoints['restore']}, then feed and fetch as before"),
        fact(
            "checkpoints",
            f"those of the whole step: feed {checkpoints['prefix']} a checkpoint's prefix, and run "
            f"{checkpoints['restore']} or {checkpoints['save']}",
        ),
    ]
    return "\n".join(rows)
