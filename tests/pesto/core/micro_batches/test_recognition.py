"""Steps that loop over micro-batches themselves: each op's micro-batch, and the step of one."""

import json
from dataclasses import replace
from pathlib import Path

import forked
import numpy as np
import pytest
from training_steps import BACKWARD, FORWARD, SOURCE, training_step

from pesto.core.errors import InputError
from pesto.core.micro_batches import recognise_micro_batches
from pesto.core.source import Source
from pesto.inputs.load import load_graph

MANY = (SOURCE, FORWARD, BACKWARD)


def looping(make_graph, step, batches):
    """The step as a program would write it: the batch is sliced, gradients and losses are added up."""
    many = {name for name, kind in step.kind.items() if kind in MANY}
    ops = [op for op in step.ops if step.kind[op["name"]] == "held"] + [{"name": "fed", "inputs": [], "bytes": 1920}]
    for b in range(batches):
        for op in step.ops:
            if op["name"] in many:
                inputs = [f"{name}/{b}" if name in many else name for name in op["inputs"]] or ["fed"]
                ops.append({**op, "name": f"{op['name']}/{b}", "inputs": inputs})
    added = [op for op in step.ops if op["name"] == "loss" or op["name"].startswith("dw")]
    for name, size in [(op["name"], op["bytes"]) for op in added]:
        for b in range(1, batches):
            before = f"{name}/0" if b == 1 else f"{name}+{b - 1}"
            ops.append({"name": f"{name}+{b}", "inputs": [before, f"{name}/{b}"], "bytes": size})
    for op in step.ops:
        if step.kind[op["name"]] == "update":
            inputs = [f"{name}+{batches - 1}" if name in many else name for name in op["inputs"]]
            ops.append({**op, "inputs": inputs})
    graph = make_graph(ops)
    sliced = np.array([name.startswith("x/") for name in graph.names])
    return replace(graph, types=("Op", "StridedSlice"), type_of=sliced.astype(np.int64))


@pytest.mark.parametrize("batches", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_each_op_has_its_micro_batch(make_graph, seed, batches):
    """And stands for the first's; sums take in what they add; the step of one is that of a program without a loop."""
    step = training_step(seed, momentum=True)
    graph = looping(make_graph, step, batches)
    found = recognise_micro_batches(graph)
    assert found.step.batches == batches and found.step.graph is graph
    for at, name in enumerate(graph.names):
        stem, _, b = name.replace("+", "/").partition("/")
        assert found.step.sums[at] == ("+" in name)
        assert found.step.batch[at] == (int(b) if b else -1)
        assert found.one.names[found.step.op[at]] == (f"{stem}/0" if b else stem)
    assert found.one.ops == len(step.ops) + 1
    expected = {f"{name}/0" if step.kind[name] in MANY else name: step.kind[name] for name in step.kind}
    part = dict(zip(found.one.names, found.parts.part.tolist(), strict=True))
    truth = {SOURCE: 1, FORWARD: 1, BACKWARD: 2, "update": 3, "held": 0}
    assert {name: part[name] for name in expected} == {name: truth[kind] for name, kind in expected.items()}


@pytest.mark.parametrize("seed", range(2))
def test_many_micro_batches_are_recognised_without_a_loss(make_graph, seed):
    """Where only metrics read it, levels tell the halves of one apart, and say nothing of those of all together."""
    whole = training_step(seed, layers=12)
    step = whole._replace(
        ops=[op for op in whole.ops if op["name"] != "loss"], kind={k: v for k, v in whole.kind.items() if k != "loss"}
    )
    graph = looping(make_graph, step, 48)
    found = recognise_micro_batches(graph)
    part = dict(zip(found.one.names, found.parts.part.tolist(), strict=True))
    assert found.step.batches == 48 and found.one.ops == len(step.ops) + 1
    # At the turn itself either is right.
    assert {part[f"f{k}/0"] for k in range(11)} == {1} and {part[f"dw{k}/0"] for k in range(11)} == {2}


def updating(make_graph, step, batches, every):
    """The step with an update behind so many micro-batches, which reads its weights anew for them."""
    ops = [op for op in step.ops if "param" in op] + [{"name": "fed", "inputs": [], "bytes": 1920}]
    reads = {op["name"] for op in step.ops if step.kind[op["name"]] == "held" and "param" not in op}
    many = {name for name, kind in step.kind.items() if kind in MANY}
    for b in range(batches):
        turn, own = b // every, b % every

        def name(of, b=b, turn=turn):
            return f"{of}/{b}" if of in many else f"{of}@{turn}" if of in reads else of

        ops += [{**op, "name": f"{op['name']}@{turn}"} for op in step.ops if op["name"] in reads and not own]
        given = [op for op in step.ops if op["name"] in many]
        ops += [{**op, "name": name(op["name"]), "inputs": [*map(name, op["inputs"])] or ["fed"]} for op in given]
        for k in range(6 if own else 0):
            before = f"dw{k}/{b - 1}" if own == 1 else f"dw{k}+{b - 1}"
            ops.append({"name": f"dw{k}+{b}", "inputs": [before, f"dw{k}/{b}"], "bytes": 1000 + 8 * k})
        updates = [op for op in step.ops if step.kind[op["name"]] == "update"] * (own == every - 1)
        turned = {op["name"]: f"{op['name']}@{turn}" for op in updates} | {f"dw{k}": f"dw{k}+{b}" for k in range(6)}
        ops += [
            {**op, "name": turned[op["name"]], "inputs": [turned.get(of) or name(of) for of in op["inputs"]]}
            for op in updates
        ]
    ops.append({"name": "total", "inputs": [f"loss/{b}" for b in range(batches)], "bytes": 4})
    graph = make_graph(ops)
    sliced = np.array([name.startswith("x/") for name in graph.names])
    return replace(graph, types=("Op", "StridedSlice"), type_of=sliced.astype(np.int64))


@pytest.mark.parametrize(("batches", "every"), [(4, 2), (6, 3)])
@pytest.mark.parametrize("seed", range(2))
def test_each_update_has_its_micro_batches(make_graph, seed, batches, every):
    """What is of several of one update is of the last of them, and stands for what the first update has."""
    step = training_step(seed, momentum=True)
    graph = updating(make_graph, step, batches, every)
    found = recognise_micro_batches(graph, every=every)
    assert found.step.updates_each == every and found.step.graph is graph
    for at, name in enumerate(graph.names):
        stem, mark, number = (*name.partition("+"),) if "+" in name else (*name.partition("@"),)
        stem, mark, number = (*name.partition("/"),) if "/" in name else (stem, mark, number)
        batch = {"@": (int(number or 0) + 1) * every - 1, "": -1}.get(mark, int(number or 0))
        stands = {"@": f"{stem}@0", "": stem}.get(mark, f"{stem}/0")
        if name == "total":
            batch, stands = batches - 1, "loss/0"
        assert found.step.batch[at] == batch, name
        assert found.one.names[found.step.op[at]] == stands
        assert found.step.sums[at] == (mark == "+" or name == "total")
    assert found.one.ops == len(step.ops) + 1


def test_a_step_without_a_loop_is_none(make_graph):
    """It is repeated instead."""
    assert recognise_micro_batches(make_graph(training_step(0).ops)) is None


def test_micro_batches_that_differ_are_refused(make_graph):
    """One of them does more than the others."""
    step = training_step(1)
    graph = looping(make_graph, step, 3)
    wrong = graph.moved_bytes.copy()
    wrong[graph.names.index("f3/2")] += 8
    with pytest.raises(InputError, match="micro-batch 2 has other ops"):
        recognise_micro_batches(replace(graph, moved_bytes=wrong))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rnnlm", "nmt", "word-rnn", "tofu-rnn", "transformer"])
def test_time_steps_are_no_micro_batches(model):
    """Sequences that are cut into time steps, which depend on each other."""
    assert recognise_micro_batches(load_graph(Source(model=model, variant="tiny"), quiet=True)) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "schedule"),
    [("dense", "gpipe"), ("convolution", "1f1b"), ("attention", "zero-bubble"), ("recurrent", "1f1b*"), ("shared", "")],
)
def test_a_loop_runs_by_its_plan(tmp_path, program, schedule):
    """On stock TensorFlow: nothing moved, no order inverted, every loss and variable as without a plan, bit for bit."""
    source, plan = ("--function", f"looping_programs:{program}"), str(tmp_path / "plan.json")
    wanted = ("--schedule", schedule) if schedule else ()
    found = said("pipeline", *source, "--cluster", "cpux3", *wanted, "-o", plan)
    assert found["micro_batches"] == 4 and found["schedule"] == (schedule or found["schedule"])
    ran = said("run", plan, *source, "--steps", "3")
    assert not ran["moves"] and not ran["inversions"]
    assert ran["losses_equal"] and ran["variables_equal"] and ran["single_equal"]


def said(*words):
    """What a call of the command line prints as JSON, in a process of its own: traces name their ops alike."""
    done = forked.run("pesto", *words, "--json", cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
