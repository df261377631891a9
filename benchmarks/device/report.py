"""Predicted against measured, of what `benchmarks.device.measure` wrote."""

import gzip
import json
import zlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.device.torch_steps import OTHERS, class_of, step_graph
from benchmarks.kernels import errors, print_errors
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.kernel_times import gpu_op_times
from pesto.core.costs.network import link_model
from pesto.core.costs.presets import Preset, preset, preset_named_in
from pesto.core.files.graph_file import OpRecord, to_graph
from pesto.core.graph import CONV, CONV_FILTER, CONV_INPUT, MATMUL, Graph
from pesto.core.memory import measure
from pesto.core.problem import build_problem
from pesto.core.simulator import Timeline, simulate
from pesto.inputs.cluster_file import parse
from solvers.arrays import Floats

LINK = "pcie5"
"""Kind of link between host and GPU."""
_CLUSTER = """format_version = 1
name = "measured"
[[hosts]]
cpu = "xeon-core"
cores = 1
memory_gib = 1024
[[devices]]
preset = "{}"
memory_gib = 1024
[[links]]
pairs = [["cpu", "gpu"]]
model = "{}"
"""
FORMS = {"matmul": MATMUL, "batched matmul": MATMUL, "conv forward": CONV, "conv input gradient": CONV_INPUT,
         "conv filter gradient": CONV_FILTER}  # fmt: skip
"""Forms of the kinds of kernels whose constants are fitted."""
_LISTS = ("rows", "steps", "copies", "plans", "launches", "faults")


def read(path: Path) -> dict[str, Any]:
    """The measurements of a file; ValueError, in one line, where it holds none."""
    try:
        text = path.read_bytes()
        data = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: {error} - give a file that benchmarks.device.measure wrote") from error
    if not isinstance(data, dict) or data.get("format_version") != 1:
        raise ValueError(f"{path}: no measurements of format 1 - give a file that benchmarks.device.measure wrote")
    missing = [key for key in ("machine", *_LISTS) if key not in data]
    if missing:
        raise ValueError(f"{path}: {missing[0]} is missing - give a file that benchmarks.device.measure wrote")
    return data


def report(
    data: dict[str, Any], named: str | None = None, *, fitted_to: str | None = None, held_out: bool = False
) -> dict[str, Any]:
    """All tables. ValueError where no preset fits.

    named: the preset in place of the one that the GPU's name names.
    fitted_to: the GPU whose kernels' constants are used in place of the preset's.
    held_out: only the kernels whose shapes no constant was fitted to.
    """
    gpu = data["machine"]["gpu"]
    able = preset(named) if named else preset_named_in(gpu)
    if able is None or not able.sms:
        raise ValueError(f"no preset of a GPU fits {gpu!r} - name one with --preset")
    able = replace(able, fitted_to=fitted_to or able.fitted_to)
    replay = replayed(able, data)
    rows = data["rows"]
    if held_out:
        rows = [row for row, fitted in zip(rows, fitted_rows(rows), strict=True) if not fitted]
    return {
        "machine": data["machine"], "preset": able.name, "faults": data["faults"],
        "kernels": kernel_errors(rows, able, replay), "steps": [step_row(step, replay) for step in data["steps"]],
        "copies": [copy_row(row, able) for row in data["copies"]],
        "plans": [plan_row(p, replay if p["plan"] == "towers" else able) for p in data["plans"]],
        "launches": [{k: row[k] for k in ("kind", "how", "seconds")} for row in data["launches"]],
    }  # fmt: skip


def replayed(able: Preset, data: dict[str, Any]) -> Preset:
    """The GPU with the launch that its replayed graphs had, in place of that of frameworks; as it is if none was."""
    result = [row["seconds"] for row in data["launches"] if (row["kind"], row["how"]) == ("add, dependent", "graph")]
    return replace(able, launch_s=result[0]) if result else able


def predicted(graph: Graph, able: Preset, *, tf32: bool) -> Floats:
    """[n] seconds of each op; float32 is computed as such where `tf32` is not allowed."""
    if not tf32:
        peaks = tuple((name, rate) for name, rate in able.peaks if name != "tf32")
        able = replace(able, peaks=peaks, tensor=tuple(name for name in able.tensor if name != "tf32"))
    return gpu_op_times(graph, able).seconds


def described(name: str, op: dict[str, Any], **more: Any) -> OpRecord:
    """One op of a graph from a row's description of it."""
    dtype = "float32" if op["dtype"] == "tf32" else op["dtype"]
    return OpRecord(name=name, kernel=op["kernel"], sizes=op["sizes"], flops=op["flops"], moved_bytes=op["bytes"],
              dtype=dtype, runs_on=["gpu"], **more)  # fmt: skip


def row_seconds(rows: list[dict[str, Any]], able: Preset, replay: Preset) -> Floats:
    """[n] predicted seconds of single kernels: of those in a CUDA graph by `replay`, of others by `able`."""
    graph = to_graph([described(str(k), row["op"]) for k, row in enumerate(rows)], ["gpu"], "rows")
    tf32 = np.array([row["op"]["dtype"] == "tf32" for row in rows])
    each = [np.where(tf32, *(predicted(graph, gpu, tf32=way) for way in (True, False))) for gpu in (replay, able)]
    return np.where([row.get("how") == "graph" for row in rows], *each)


def fitted_rows(rows: list[dict[str, Any]]) -> list[bool]:
    """Which rows constants are fitted to: those of every second shape of their form."""
    seen: dict[int, dict[tuple[int, ...], int]] = {}
    result = []
    for row in rows:
        form = FORMS.get(row["kind"], 0)
        own = seen.setdefault(form, {})
        result.append(form > 0 and own.setdefault(tuple(_shape(row)), len(own)) % 2 == 0)
    return result


def _shape(row: dict[str, Any]) -> list[int]:
    """The sizes of a kernel; of a convolution without the batch, so that a layer's batches are not on both sides."""
    return row["op"]["sizes"] if "matmul" in row["kind"] else row["op"]["sizes"][1:]


def kernel_errors(rows: list[dict[str, Any]], able: Preset, replay: Preset) -> list[dict[str, Any]]:
    """Errors of single kernels by precision and kind."""
    if not rows:
        return []
    said, measured = row_seconds(rows, able, replay), np.array([row["seconds"] for row in rows])
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for k, row in enumerate(rows):
        layout = f", {row['layout']}" if "layout" in row else ""
        groups[row["op"]["dtype"], row["kind"] + layout].append(k)
    return [
        {"device": able.name, "dtype": dtype, "kind": kind} | errors(said[own], measured[own])
        for (dtype, kind), own in sorted(groups.items(), key=lambda item: (item[0][1], item[0][0]))
    ]


def _simulated(graph: Graph, seconds: Floats, able: Preset, device: list[str]) -> tuple[Timeline, Cluster]:
    """The step in the order of its ops, each on the device that is named."""
    cluster = parse(_CLUSTER.format(able.name, LINK).encode(), "cluster", "cluster")
    names = [d.name for d in cluster.devices]
    at = np.array([names.index(name) for name in device])
    compute_s = np.full((graph.ops, len(names)), np.nan)
    compute_s[np.arange(graph.ops), at] = seconds
    costs = Costs(compute_s=compute_s, origin=np.zeros(graph.ops, dtype=np.int64), source=able.name)
    problem = build_problem(graph, costs, cluster, memory=graph.param_bytes)
    return simulate(problem, at, np.arange(graph.ops)), cluster


def step_row(step: dict[str, Any], able: Preset) -> dict[str, Any]:
    """One whole step: times, memory, and where the time goes; None for what was not measured."""
    size = step.get("length") or step.get("layout")
    result: dict[str, Any] = {"step": f"{step['model']} {size}", "dtype": step["dtype"], "faults": step["faults"]}
    for way in ("eager", "graph"):
        result[f"{way}_s"] = step[way]["seconds"] if way in step else None
        result |= {f"{way}_{key}": value for key, value in _gaps(step.get(f"{way}_profile")).items()}
    memory = step.get("memory", {})
    result |= {key: memory.get(key) for key in ("peak_bytes", "requested_peak_bytes")}
    # Beyond what was held before: parameters, the optimizer's states, the batch, and workspaces of libraries.
    result["own_peak_bytes"] = memory["peak_bytes"] - memory["before_bytes"] if "before_bytes" in memory else None
    if "ops" not in step:
        return result
    graph = step_graph(step["ops"], step["model"])
    # torch computes attention in float32 as such, whatever is allowed.
    strict = np.array([class_of(name) == "attention" for name in graph.types])[graph.type_of]
    with_tf32, without = (predicted(graph, able, tf32=way) for way in (step["dtype"] == "tf32", False))
    seconds = np.where(strict, without, with_tf32)
    timeline, cluster = _simulated(graph, seconds, able, ["gpu:0"] * graph.ops)
    gpu = [d.name for d in cluster.devices].index("gpu:0")
    peak, held = int(measure(graph, timeline).peak[gpu]), int(graph.param_bytes.sum())
    result |= {"predicted_s": timeline.makespan_s, "predicted_kernels": int(graph.launches.sum()),
              "predicted_peak_bytes": peak, "predicted_own_peak_bytes": peak - held}  # fmt: skip
    classes: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for k in np.flatnonzero(graph.launches).tolist():
        own = classes[class_of(graph.types[graph.type_of[k]])]
        own[0], own[1] = own[0] + 1, own[1] + seconds[k]
    profile = step.get("eager_profile", {"names": [], "kernels": []})
    for kernel, op, _, micros, _ in profile["kernels"]:
        label = class_of(profile["names"][op])
        own = classes[class_of(profile["names"][kernel]) if label == OTHERS else label]
        own[2], own[3] = own[2] + 1, own[3] + micros / 1e6
    keys = ("predicted_kernels", "predicted_s", "measured_kernels", "measured_s")
    result["classes"] = {label: dict(zip(keys, own, strict=True)) for label, own in classes.items()}
    return result


def _gaps(profile: dict[str, Any] | None) -> dict[str, Any]:
    """Kernels, seconds in which one runs, and seconds between them."""
    if not profile or not profile["kernels"]:
        return {}
    busy = end = 0.0
    for _, _, start, micros, _ in profile["kernels"]:
        busy += max(0.0, start + micros - max(start, end))
        end = max(end, start + micros)
    return {"kernels": len(profile["kernels"]), "busy_s": busy / 1e6, "gaps_s": (end - busy) / 1e6}


def copy_row(row: dict[str, Any], able: Preset) -> dict[str, Any]:
    """One copy against the link, or against the memory's bandwidth inside the GPU."""
    result = {key: row[key] for key in ("direction", "memory", "beside", "bytes", "seconds")}
    if row["direction"] == "d2d":
        said = able.launch_s + 2 * row["bytes"] / (able.bandwidth * able.bandwidth_efficiency)
    else:
        model = link_model(LINK)
        said = max(model.floor_s, model.latency_s + row["bytes"] * model.s_per_byte)
    slower = row["beside_seconds"] / row["beside_alone"] if row["beside"] else None
    return result | {"predicted_s": said, "ratio": said / row["seconds"], "other_slower": slower}


def plan_row(plan: dict[str, Any], able: Preset) -> dict[str, Any]:
    """One small plan as it is simulated, with all ops of a device one after the other, and as it ran."""
    ops = []
    for op in plan["ops"]:
        more = {"inputs": op["inputs"], "outputs": [op["out_bytes"]]}
        if op["op"] is None:
            ops.append(OpRecord(name=op["name"], runs_on=["cpu"], launches=False, **more))
        else:
            ops.append(described(op["name"], op["op"], **more))
    graph = to_graph(ops, ["cpu", "gpu"], plan["plan"])
    seconds = predicted(graph, able, tf32=False)
    timeline, _ = _simulated(graph, seconds, able, [op["device"] for op in plan["ops"]])
    result: dict[str, Any] = {"plan": plan["plan"], "size": plan["size"], "predicted_s": timeline.makespan_s}
    if plan["plan"] == "towers":
        tower = [sum(s for s, op in zip(seconds, ops, strict=True) if op.name.startswith(t)) for t in ("0/", "1/")]
        result["predicted_side_by_side_s"] = float(max(tower) + seconds[-1])
    return result | {f"{name}_s": value["seconds"] for name, value in plan.items() if isinstance(value, dict)}


def show(values: dict[str, Any]) -> None:
    """Print markdown tables."""
    print(f"{values['machine']['gpu']}, preset {values['preset']}, torch {values['machine']['torch']}, "
          f"{values['machine']['date']}; {len(values['faults'])} faults\n")  # fmt: skip
    if values["kernels"]:
        print_errors(values["kernels"])
    times_ = ("eager_s", "graph_s", "graph_busy_s", "graph_gaps_s", "predicted_s")
    sizes = ("peak_bytes", "predicted_peak_bytes", "own_peak_bytes", "predicted_own_peak_bytes")
    _table(values["steps"], ("step", "dtype", "eager_kernels", *times_, *sizes))
    for step in values["steps"]:
        rows = [{"class": label} | own for label, own in sorted(step.get("classes", {}).items())]
        print(f"\n{step['step']}, {step['dtype']}:" if rows else "", end="\n" if rows else "")
        _table(rows, ("class", "measured_kernels", "measured_s", "predicted_kernels", "predicted_s"))
    _table(
        values["copies"], ("direction", "memory", "beside", "bytes", "seconds", "predicted_s", "ratio", "other_slower")
    )
    _table(values["plans"], tuple(dict.fromkeys(key for plan in values["plans"] for key in plan)))
    _table(values["launches"], ("kind", "how", "seconds"))
    for fault in [*values["faults"], *({"row": s["step"], "error": e} for s in values["steps"] for e in s["faults"])]:
        print(f"fault in {fault['row']}: {fault['error']}")


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """A markdown table: seconds as ms, bytes of memory as MiB; nothing where there are no rows."""
    if not rows:
        return
    names = {c: c.removesuffix("_s") + ", ms" if c.endswith(("_s", "seconds")) else c for c in columns}
    names |= {c: c.removesuffix("_bytes") + ", MiB" for c in columns if c.endswith("_bytes")}
    print("\n| " + " | ".join(names.values()).replace("_", " ") + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(_cell(c, row.get(c)) for c in columns) + " |")


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "-"
    if column.endswith(("_s", "seconds")):
        return f"{1e3 * value:.4g}"
    if column.endswith("_bytes"):
        return f"{value / 2**20:.1f}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
