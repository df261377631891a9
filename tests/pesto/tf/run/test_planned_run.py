"""pesto run: the loop from profile to run, what a wrong run looks like, and wrong inputs."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked
import numpy as np
import pytest

from pesto.cli.main import main
from pesto.cli.printed import finite_facts
from pesto.cli.verbs.plans.run import alike
from pesto.core.errors import Exit, InputError, MismatchError, UsageError, VerificationError
from pesto.core.plans.plan import Plan
from pesto.core.source import GraphOrigin, Source
from pesto.inputs import load as inputs
from pesto.inputs.load import plan_source
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import named_sources  # noqa: E402
from pesto.tf.apply_placement.targets import ApplyOptions  # noqa: E402
from pesto.tf.importer.shapes import resolve_shapes  # noqa: E402
from pesto.tf.run import planned_run  # noqa: E402
from pesto.tf.run.run_options import RunOptions  # noqa: E402
from pesto.tf.run.runnable import make_runnable  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

KEYS = {
    "moves", "inversions", "losses_equal", "variables_equal", "finite", "single_equal", "unordered_equal", "step_s",
    "unplaced_step_s", "single_step_s", "unordered_step_s", "steps", "traced_steps", "devices", "ops", "chain_edges",
    "predicted_step_s", "costs", "inject_s", "verify_s", "note", "reference", "reference_is", "losses_distance",
    "variables_distance", "furthest", "feeds",
}  # fmt: skip


def program(*, ref: bool, seed: int | None = None) -> Any:
    """Two branches with a variable each, dropout in one, an optimizer with slots; the batch is open."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(seed)
        x = v1.placeholder(tf.float32, [None, 8], name="x")
        w, u = (v1.get_variable(name, [8, 8], use_resource=not ref) for name in ("w", "u"))
        difference = tf.nn.dropout(tf.tanh(x @ w), rate=0.3) - tf.nn.relu(x @ u)
        loss = tf.reduce_mean(difference**2, name="loss")
        v1.train.AdamOptimizer(0.1).minimize(loss, name="train")
    return graph


def pieces(tmp_path: Path, *, ref: bool = False) -> tuple[Source, Plan]:
    """A GraphDef file of the program, and a plan that uses both of 2 logical CPUs."""
    path = tmp_path / "step.pb"
    path.write_bytes(program(ref=ref).as_graph_def(add_shapes=True).SerializeToString())
    source = Source(file=path, fetch=("train", "loss"), batch=4)
    plan = api.solve(inputs.load_graph(source), cluster="cpux2", time_limit_s=0, solver="list")
    return source, spread(plan, source)


def spread(plan: Plan, source: Source) -> Plan:
    """The plan with every second group or lonely op on the second device, in the same order."""
    group = inputs.load_graph(source).group
    lonely = np.arange(len(group)) % 2
    return replace(plan, schedule=replace(plan.schedule, device=np.where(group >= 0, group % 2, lonely)))


def run(plan: Plan, source: Source, steps: int = 3, reference: str = "unplaced") -> Any:
    return inputs.run_plan(plan, source, RunOptions(steps=steps, devices="cpu", reference=reference))


@pytest.mark.parametrize("ref", [False, True])
def test_a_graphdef_runs_by_its_plan_and_computes_the_same(tmp_path: Path, ref: bool) -> None:
    """Nothing moved, all in order, losses and variables equal; the unseeded dropout of the file got a seed."""
    source, plan = pieces(tmp_path, ref=ref)
    ran = run(plan, source)
    assert ran.as_planned and ran.losses_equal and ran.variables_equal and ran.single_equal and ran.finite
    assert ran.devices == {"cpu:0": "/device:CPU:0", "cpu:1": "/device:CPU:1"}
    assert ran.chain_edges > 0 and ran.traced_steps == planned_run.WARMUP
    assert min(ran.step_s, ran.unplaced_step_s, ran.single_step_s, ran.unordered_step_s, ran.verify_s) > 0
    assert ran.predicted_step_s == plan.makespan_s and ran.note == planned_run.CPU_NOTE


def test_a_step_that_is_not_finite_itself_asks_for_other_feeds() -> None:
    """NaN where the reference has NaN is equal; where the two differ, nothing excuses it."""
    ran = SimpleNamespace(losses_equal=True, variables_equal=True, losses_distance=None, variables_distance=None)
    assert alike(ran)
    assert not alike(SimpleNamespace(**{**vars(ran), "losses_equal": False}))
    assert not alike(SimpleNamespace(**{**vars(ran), "losses_distance": math.inf, "variables_distance": 0.0}))
    facts = finite_facts("the reference", finite=False, alike=True)
    assert "the reference itself gives NaN" in facts["not finite"] and "give --feeds" in facts["not finite"]
    assert not finite_facts("the reference", finite=False, alike=False)
    assert not finite_facts("the reference", finite=True, alike=True)


def drive_of(source: Source) -> planned_run.StepDriver:
    _, step = named_sources.load_runnable(source)
    return planned_run.StepDriver.of(step, steps=2, threads=2, gpu=False)


def test_every_step_and_every_variable_is_compared(tmp_path: Path) -> None:
    """Two runs agree; a longer one has other variables; one bit of one step's loss is enough to be seen."""
    source, _ = pieces(tmp_path)
    drive = drive_of(source)
    one, two = drive.run(), drive.run()
    assert planned_run.differing_names(one, two) == ((), ())
    assert len(one.losses) == planned_run.WARMUP + 2 and set(one.losses[0]) == {"loss:0"}
    assert len({losses["loss:0"] for losses in one.losses}) == len(one.losses)  # it trains, on other batches
    assert {"w", "u"} < set(one.variables) and len(one.variables) == 8  # two, two slots each, two powers of Adam
    longer = replace(drive, steps=3).run()
    assert set(longer.variables) == set(one.variables)
    assert all(longer.variables[name] != one.variables[name] for name in one.variables)
    changed = replace(one, losses=(*one.losses[:-1], {"loss:0": b""}))
    assert planned_run.differing_names(changed, two) == (("loss:0",), ())


def test_bits_count() -> None:
    """NaN is NaN, minus zero is not zero, one is not one in another type."""

    def digest(value: Any) -> bytes:
        return planned_run._hash_values({"": value})[""]

    assert digest(np.array([np.nan])) == digest(np.array([np.nan])) == digest(np.array([-np.nan]))
    assert digest(np.array(0.0)) != digest(np.array(-0.0))
    assert digest(np.array(1, np.int32)) != digest(np.array(1, np.float32))
    assert digest(np.zeros(2)) != digest(np.zeros((1, 2)))
    assert digest(np.array([b"a"], object)) != digest(np.array([b"b"], object))


def test_how_far_apart_is_said_relative_to_the_largest_number() -> None:
    """By hand: 2 of 10, 1 of 4 where all else is larger in neither, nothing of equal NaNs and texts."""
    distance = planned_run.relative_distance
    assert distance(np.array([10.0, 1.0]), np.array([8.0, 1.0])) == 0.2
    assert distance(np.array([3, 4]), np.array([4, 4])) == 0.25
    assert distance(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])) == distance(np.array(0.0), np.array(-0.0)) == 0
    assert distance(np.array([np.nan, 1.0]), np.array([1.0, 1.0])) == distance(np.array([np.inf]), np.ones(1)) == np.inf
    assert distance(np.array([b"a"], object), np.array([b"b"], object)) == np.inf
    assert distance(np.array(1j), np.array(0)) == distance(np.zeros(2), np.array([0.0, 3.0])) == 1


@pytest.mark.slow
def test_against_stock_a_difference_is_a_number_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """Another rate of dropout in the reference: no verdict, but how far; moves and order are verified all the same."""
    source, plan = pieces(tmp_path)
    same = run(plan, source, reference="stock")
    assert same.as_planned and (same.reference, same.losses_equal, same.single_equal) == ("stock", None, None)
    assert same.losses_distance is not None and same.losses_distance < 1e-5 and "Grappler on" in same.reference_is
    original = planned_run._run_reference

    def elsewhere(drive: Any) -> Any:
        monkeypatch.setattr(planned_run, "SEED", 1)
        record = original(drive)
        monkeypatch.setattr(planned_run, "SEED", 0)
        return record

    monkeypatch.setattr(planned_run, "_run_reference", elsewhere)
    api.save_plan(plan, tmp_path / "plan.json")
    options = ["--graph", str(source.file), "--fetch", "train", "--fetch", "loss", "--batch", "4", "--steps", "2"]
    command = ["pesto", "run", str(tmp_path / "plan.json"), *options, "--devices", "cpu", "--reference", "stock"]
    for flags in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", [*command, *flags])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert ended.value.code in (None, Exit.OK), err
        assert flags or ("differ from the reference's by at most" in out and "bit for bit" not in out)
    said = json.loads(out)
    assert set(said) == KEYS and (said["reference"], said["losses_equal"], said["moves"]) == ("stock", None, 0)
    assert said["losses_distance"] > 1e-3 and said["variables_distance"] > 1e-3 and said["furthest"]


def test_a_trace_with_other_names_is_refused(tmp_path: Path) -> None:
    """The same graph, its ops called otherwise: MismatchError, no raw KeyError."""
    source, plan = pieces(tmp_path)
    other = replace(plan, names=tuple(f"{name}_1" for name in plan.names))
    with pytest.raises(MismatchError, match="other names than the plan's"):
        run(other, source)


def test_an_op_that_onednn_replaced_has_its_remedy(tmp_path: Path) -> None:
    """An op is gone, and kernels of oneDNN are in the graph: the environment variable; else a report is asked for."""
    source, plan = pieces(tmp_path)
    record, expected, _ = planned_run._run_by_plan(
        plan, drive_of(source), ApplyOptions(devices={"cpu:0": "/device:CPU:0", "cpu:1": "/device:CPU:1"})
    )
    parts = [type(part).FromString(part.SerializeToString()) for part in record.traced[0].partition_graphs]
    part = next(p for p in parts if any(n.op == "MatMul" for n in p.node))
    gone = next(n for n in part.node if n.op == "MatMul")
    gone.name = "merged"
    with pytest.raises(VerificationError, match=r"1 missing.* - report it"):
        planned_run.partitions.examine(parts, expected).checked()
    gone.op = "_MklMatMul"
    with pytest.raises(VerificationError, match=r"1 missing.* - oneDNN .* TF_ENABLE_ONEDNN_OPTS=0"):
        planned_run.partitions.examine(parts, expected).checked()


def test_what_a_gpu_adds_to_a_trace_is_no_device_of_it(tmp_path: Path) -> None:
    """Streams, copies and waits, as TensorFlow calls them: they are neither strays nor times of ops."""
    source, plan = pieces(tmp_path)
    devices = {"cpu:0": "/device:CPU:0", "cpu:1": "/device:CPU:1"}
    record, expected, _ = planned_run._run_by_plan(plan, drive_of(source), ApplyOptions(devices=devices))
    stats, name = record.traced[0].step_stats, plan.names[0]
    assert planned_run._find_misplaced_ops(stats, expected) == []
    for part in ("sync", "memcpy", "stream:", "stream:all", "stream:14", "stream:14<MemcpyD2H>"):
        stats.dev_stats.add(device=f"/device:GPU:0/{part}").node_stats.add(node_name=name, op_end_rel_micros=7)
    assert planned_run._find_misplaced_ops(stats, expected) == []
    assert not planned_run.partitions.examine_times(stats, expected).inversions


def test_an_op_that_ran_elsewhere_alone_is_a_stray(tmp_path: Path) -> None:
    """An op of a function's body that ran elsewhere under the same name is none."""
    source, plan = pieces(tmp_path)
    devices = {"cpu:0": "/device:CPU:0", "cpu:1": "/device:CPU:1"}
    record, expected, _ = planned_run._run_by_plan(plan, drive_of(source), ApplyOptions(devices=devices))
    stats = record.traced[0].step_stats
    name = next(n for n in plan.names if any(e.node_name == n for d in stats.dev_stats for e in d.node_stats))
    stats.dev_stats.add(device="/job:localhost/replica:0/task:0/device:GPU:0").node_stats.add(node_name=name)
    assert planned_run._find_misplaced_ops(stats, expected) == []
    for device in stats.dev_stats[:-1]:
        kept = [entry for entry in device.node_stats if entry.node_name != name]
        del device.node_stats[:]
        device.node_stats.extend(kept)
    (line,) = planned_run._find_misplaced_ops(stats, expected)
    assert line.startswith(f"op {name} ran on") and "GPU:0" in line


def test_a_session_has_the_threads_that_it_asks_for() -> None:
    """Also where eager ops made the process's first device, with as many threads as there are cores."""
    float(tf.constant(1.0) + 1.0)
    before = len(list(Path("/proc/self/task").iterdir()))
    with v1.Session(graph=tf.Graph(), config=v1.ConfigProto(intra_op_parallelism_threads=37)):
        assert len(list(Path("/proc/self/task").iterdir())) >= before + 37


def test_other_results_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the run by the plan sees other batches, its losses and variables differ from the unplaced run's."""
    source, plan = pieces(tmp_path)
    original = planned_run.StepDriver.run

    def other_batches(self: Any, *, traced: bool = False) -> Any:
        monkeypatch.setattr(planned_run, "SEED", 1 if traced else 0)
        return original(self, traced=traced)

    monkeypatch.setattr(planned_run.StepDriver, "run", other_batches)
    ran = run(plan, source)
    assert not ran.as_planned and not ran.losses_equal and not ran.variables_equal
    assert {"loss:0", "w", "u"} <= set(ran.different)
    assert ran.single_equal is False and ran.unordered_equal is False  # they are traced, too


def test_a_step_that_never_repeats_is_not_blamed_on_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other batches in every run: InputError, as two runs without a plan differ too."""
    source, plan = pieces(tmp_path)
    original = planned_run.StepDriver.run

    def ever_other(self: Any, *, traced: bool = False) -> Any:
        monkeypatch.setattr(planned_run, "SEED", planned_run.SEED + 1)
        return original(self, traced=traced)

    monkeypatch.setattr(planned_run.StepDriver, "run", ever_other)
    with pytest.raises(InputError, match="gives other results each time it runs"):
        run(plan, source)


def test_moves_and_inversions_are_seen(tmp_path: Path) -> None:
    """A run without order has pairs out of order, one with the devices exchanged has every op elsewhere."""
    source, plan = pieces(tmp_path)
    graph, step = named_sources.load_runnable(source)
    drive = planned_run.StepDriver.of(step, steps=1, threads=2, gpu=False)
    wanted = {"cpu:0": "/device:CPU:0", "cpu:1": "/device:CPU:1"}
    exchanged = dict(zip(wanted, reversed(wanted.values()), strict=True))
    record, expected, findings = planned_run._run_by_plan(plan, drive, ApplyOptions(devices=wanted))
    seen = planned_run.check_traces(record, expected, findings)
    assert findings and not seen["moves"] and not seen["inversions"]
    unordered, free, _ = planned_run._run_by_plan(plan, drive, ApplyOptions(devices=wanted, order=False))
    assert len(free.placement.before) == 0
    found = planned_run.check_traces(unordered, expected, [])
    assert found["inversions"] and not found["moves"] and found["chain_edges"] == len(expected.placement.before)
    backwards = replace(expected.placement, rank=graph.ops - 1 - expected.placement.rank)
    found = planned_run.check_traces(record, replace(expected, placement=backwards), [])
    assert any(" ran before " in line for line in found["inversions"])  # by the trace
    _, other, _ = planned_run._run_by_plan(plan, drive, ApplyOptions(devices=exchanged))
    found = planned_run.check_traces(record, other, [])
    # Small constants are copied to where they are read, so they may be on both devices.
    kinds = {n: graph.types[k] for n, k in zip(graph.names, graph.type_of, strict=True)}
    placed = {n for n, kind in kinds.items() if kind not in ("Placeholder", "Const")}
    assert placed <= {line.split()[1] for line in found["moves"] if " is on " in line}
    assert placed <= {line.split()[1] for line in found["moves"] if " ran on " in line}


def test_the_single_device_keeps_host_ops_on_the_host(tmp_path: Path) -> None:
    """With GPUs all of them become the first and CPUs stay; on logical CPUs everything is on the first device."""
    _, plan = pieces(tmp_path)
    lanes = ("cpu:0", "gpu:0", "gpu:1")
    mixed = np.arange(len(plan.names)) % 3
    three = replace(plan, lanes=lanes, lane_device=lanes, schedule=replace(plan.schedule, device=mixed))
    real = dict(zip(lanes, ("/device:CPU:0", "/device:GPU:0", "/device:GPU:1"), strict=True))
    assert planned_run.move_to_single_device(three, real).schedule.device.tolist() == np.minimum(mixed, 1).tolist()
    logical = {name: f"/device:CPU:{k}" for k, name in enumerate(lanes)}
    assert not planned_run.move_to_single_device(three, logical).schedule.device.any()


def test_too_little_memory_leaves_a_gap_and_other_errors_do_not() -> None:
    """What did not fit has no time; what failed otherwise is not hidden."""

    def fail(kind: Any) -> Any:
        raise kind(None, None, "no")

    assert planned_run._run_unless_too_large(lambda: fail(tf.errors.ResourceExhaustedError)) is None
    assert planned_run._median(None) is None and planned_run._is_equal(None, None) is None
    with pytest.raises(tf.errors.InvalidArgumentError):
        planned_run._run_unless_too_large(lambda: fail(tf.errors.InvalidArgumentError))


def test_wrong_inputs_are_refused_before_anything_runs(tmp_path: Path) -> None:
    """Another graph, torn groups, missing GPUs, files without kernels, no steps."""
    source, plan = pieces(tmp_path)
    with pytest.raises(MismatchError, match="give a batch of 4"):
        run(plan, replace(source, batch=5))
    torn = replace(plan, schedule=replace(plan.schedule, device=np.arange(len(plan.names)) % 2))
    with pytest.raises(VerificationError, match="keep groups whole"):
        run(torn, source)
    for_gpus = api.solve(inputs.load_graph(source), cluster="v100x2-nvlink", time_limit_s=0, solver="list")
    if not tf.config.list_physical_devices("GPU"):
        assert planned_run.choose_devices(for_gpus) == planned_run.CPU
        with pytest.raises(InputError, match="this program does not have"):
            inputs.run_plan(for_gpus, source, RunOptions(steps=1, devices="gpu"))
    with pytest.raises(UsageError, match="no kernels to run"):
        run(plan, Source(file=Path("graph.json")))
    with pytest.raises(UsageError, match="no kernels to run"):
        inputs.profile_source(Source(file=Path("graph.json")), 2)
    with pytest.raises(UsageError, match="at least 1"):
        run(plan, source, steps=0)
    with pytest.raises(UsageError, match="unplaced or stock"):
        run(plan, source, reference="fit")


def test_random_ops_without_a_seed_get_one_and_the_graph_stays_the_planned_one() -> None:
    """Seeds that a program set are kept; fingerprints are those of the program, reference variables included."""
    for ref in (False, True):
        captured = sources.capture_v1(program(ref=ref), ["train", "loss"])
        made = make_runnable(captured, resolve_shapes(captured, 4))
        drawn = [op for op in made.graph.get_operations() if op.type == "RandomUniform"]
        assert drawn and all(op.get_attr("seed2") > 0 for op in drawn)
        again = sources.from_v1(made.graph, made.fetches)
        assert again.fingerprint() == sources.from_v1(program(ref=ref), ["train", "loss"], batch=4).fingerprint()
    captured = sources.capture_v1(program(ref=False, seed=7), ["train", "loss"])
    made = make_runnable(captured, resolve_shapes(captured, 4))
    assert {op.get_attr("seed") for op in made.graph.get_operations() if op.type == "RandomUniform"} == {7}


def test_a_plan_of_a_function_says_with_which_option_it_is_given(tmp_path: Path) -> None:
    _, plan = pieces(tmp_path)
    of_function = replace(
        plan,
        provenance=replace(
            plan.provenance,
            graph_source="function my.train:step",
            graph_origin=GraphOrigin(kind="function", name="my.train:step"),
        ),
    )
    with pytest.raises(UsageError, match=r"give it with --function my\.train:step, as when"):
        plan_source(of_function, Source())


def test_from_profile_to_run(tmp_path: Path) -> None:
    """profile, solve, check, run of a built-in model: all of it measured, one JSON object, everything as planned."""
    model = ("--model", "rnnlm", "--variant", "tiny")
    for arguments in (
        ("profile", *model, "--iterations", 3, "--keep-disturbed", "-o", "p.json"),
        ("solve", *model, "--cluster", "cpux2", "--costs", "p.json", "--time-limit", 0, "-q", "-o", "plan.json"),
        ("check", "plan.json", "--costs", "p.json"),
    ):
        done = forked.run("pesto", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    done = forked.run("pesto", "run", "plan.json", "--steps", 2, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said) == KEYS
    assert (said["moves"], said["inversions"], said["steps"], said["ops"]) == (0, 0, 2, 758)
    assert said["losses_equal"] is said["variables_equal"] is True
    assert said["costs"] == "measured" and "check the order" in said["note"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nowhere.json",), Exit.IO, "nowhere.json"),
        (("plan.json", "--steps", "0"), Exit.USAGE, "--steps"),
        (("plan.json", "--devices", "tpu"), Exit.USAGE, "tpu"),
        (("plan.json",), Exit.USAGE, "give it with --graph"),
        (("plan.json", "--graph", "step.json"), Exit.USAGE, "no kernels"),
        (("plan.json", "--graph", "step.pb", "--fetch", "loss", "--batch", "4"), Exit.MISMATCH, "made for"),
    ],
)
def test_command_line_refuses(
    arguments: tuple[str, ...], code: int, says: str, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    """One line and the documented exit code; nothing on stdout."""
    _, plan = pieces(tmp_path)
    (tmp_path / "step.json").write_text("{}")
    api.save_plan(plan, tmp_path / "plan.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pesto", "run", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert ended.value.code == code and says in err and out == "", err


@pytest.mark.parametrize("as_json", [False, True])
def test_a_run_that_is_not_as_planned_is_shown_and_ends_with_6(
    as_json: bool, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    """The numbers are printed all the same."""
    source, plan = pieces(tmp_path)
    api.save_plan(plan, tmp_path / "plan.json")
    wrong = replace(run(plan, source, 1), moves=("op a is on b",), losses_equal=False, different=("loss:0",))
    monkeypatch.setattr("pesto.cli.verbs.plans.run.run_plan", lambda *_, **__: wrong)
    flags = ["--json"] if as_json else []
    options = ["--graph", str(source.file), "--fetch", "train", "--fetch", "loss", "--batch", "4"]
    monkeypatch.setattr(sys, "argv", ["pesto", "run", str(tmp_path / "plan.json"), *options, *flags])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert ended.value.code == Exit.VERIFICATION and "op a is on b; loss:0 differs" in err
    assert json.loads(out)["moves"] == 1 if as_json else "losses DIFFERENT" in out
