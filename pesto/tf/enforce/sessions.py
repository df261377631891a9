"""v1 sessions under a plan: the steps in a graph are placed before a session opens, and its runs are verified."""

import contextlib
import functools
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, MismatchError, PestoError, UsageError
from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.tf import private
from pesto.tf.apply_placement.placement import FED, StepTrace, find_unchained_ops, place_with_relays, trace_step
from pesto.tf.apply_placement.targets import ApplyOptions, check_devices_exist, device_targets
from pesto.tf.enforce.edits import GraphEdits, apply_edits, compute_edits, merge_edits
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings, verify_run
from pesto.tf.enforce.plan_matching import larger_batch_error
from pesto.tf.nodes.captured import use_planned_shapes
from pesto.tf.nodes.inline import CALLS
from pesto.tf.session_config import disable_optimizers
from pesto.tf.sources.sources import capture_v1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedPlan:
    """One step of a v1 graph under its plan."""

    source: str
    """Name of the plan's graph, for messages."""
    trace: StepTrace
    """The step in the graph."""
    expected: ExpectedPlacement
    edits: GraphEdits
    targets: Mapping[str, str]
    """Plan's device -> TensorFlow's."""
    limits: Mapping[str, int]
    """Placeholder whose batch is open -> largest number of examples that was planned."""

    @property
    def chained(self) -> frozenset[str]:
        """Names of the ops that have a place in a chain."""
        placement = self.expected.placement
        return frozenset(placement.graph.names[i] for i in placement.chained.nonzero()[0].tolist())


def place_graph(
    graph: Any, plans: Sequence[Plan], options: ApplyOptions
) -> tuple[tuple[PlacedPlan, ...], Callable[[], None]]:
    """Edit the v1 graph that some of `plans` are for by their ops' names; return the placed steps and an undo function.

    Nothing is placed when the graph is of no plan. Raise what `place_with_relays` raises when the names are a plan's
    and the ops are not; UsageError when two plans order one op, or have it on different devices.
    """
    # Names alone do not identify a plan: two plans may be for one model at two batch sizes. The fingerprint decides
    # among those whose ops exist.
    traces: list[tuple[Plan, StepTrace]] = []
    why: InputError | None = None
    for plan in find_plans_for_graph(graph, plans):
        try:
            captured = use_planned_shapes(capture_v1(graph, plan.names, source="the session's graph"), plan)
            traces.append((plan, trace_step(captured, plan.provenance.graph_batch)))
        except InputError as error:
            why = why or error
    if why and not traces:
        raise why
    fitting = [(plan, t) for plan, t in traces if plan.provenance.graph_fingerprint == t.graph.fingerprint()]
    # Where no fingerprint fits, placing by the first plan raises the error that names the differences.
    fitting = fitting or traces[:1]
    nodes = graph.as_graph_def().node if fitting else ()
    placed: list[PlacedPlan] = []
    for plan, traced in fitting:
        targets, outside = device_targets(plan, options.devices), find_unchained_ops(graph, traced)
        placement = place_with_relays(plan, traced, targets, outside, order=options.order)
        batch, ops = traced.graph.batch, (graph.get_operation_by_name(node.name) for node in traced.nodes.defs)
        feeds = [op.outputs[0] for op in ops if op.type in FED] if batch is not None else []
        step = PlacedPlan(
            source=plan.provenance.graph_source,
            trace=traced,
            expected=ExpectedPlacement(placement=placement, loops=traced.loops),
            edits=compute_edits(placement, traced, nodes),
            targets=targets,
            limits={t.op.name: batch or 0 for t in feeds if t.shape.rank and t.shape[0] is None},
        )
        placed.append(step)
    for k, step in enumerate(placed):
        for other in placed[:k]:
            _refuse_overlap(step, other)
    return tuple(placed), apply_edits(graph, merge_edits([step.edits for step in placed]))


def _refuse_overlap(one: PlacedPlan, other: PlacedPlan) -> None:
    """Raise UsageError when two steps share an op that either orders, or that they have on different devices."""
    a, b = one.edits, other.edits
    # Two steps may share variables and input ops if they agree on the device. An op that either orders cannot be
    # shared, since its chain would run with both steps.
    ordered = one.chained | other.chained | a.waits.keys() | b.waits.keys()
    for name, device in a.device.items():
        if name in b.device and (name in ordered or b.device[name] != device):
            raise UsageError.build(
                f"two plans ({shown(one.source)} and {shown(other.source)}) hold op {shown(name)} of one graph and "
                "would place or order it twice",
                remedy="fetch both training ops in one step and plan that, or give each a graph of its own",
            )


def find_plans_for_graph(graph: Any, plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans all of whose ops `graph` has."""
    names = {op.name for op in graph.get_operations()}
    return [plan for plan in plans if names.issuperset(plan.names)]


def refuse_fed(placed: PlacedPlan, fed: Collection[str]) -> None:
    """Raise UsageError when a chained op computes one of the tensors `fed`, or a bypassed barrier passes it on."""
    # A fed op does not run, and TensorFlow removes its control edges, so everything before it in the chain would no
    # longer be waited for.
    members = placed.chained | placed.edits.passed.keys()
    for tensor in fed:
        if tensor.partition(":")[0] in members:
            raise UsageError.build(
                f"feeding {shown(tensor.partition(':')[0])}, which the ordered step computes, would break its order",
                remedy="feed placeholders, or run outside pesto.apply",
            )


def refuse_unplanned(
    graph: Any, fetched: Sequence[Any], fed: Collection[str], plans: Sequence[Plan], placed: Sequence[PlacedPlan]
) -> None:
    """Refuse a run that would train without a plan; `placed` are the steps for which the session's graph was edited.

    Raise UsageError when the graph is a plan's, but the session came first; MismatchError when no plan has the update.
    """
    variables = {v.op.name for v in graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)}
    planned = {node for p in placed for node in p.edits.device}
    update = find_update(fetched, fed, variables, planned) if variables else None
    if update is None:
        return
    if placed:
        raise MismatchError.build(
            f"{shown(update.name)} trains a variable, but is in no plan for this graph "
            f"({', '.join(dict.fromkeys(step.source for step in placed))})",
            remedy="give a plan for each training op to one pesto.apply, or plan a step that fetches all of them",
        )
    if find_plans_for_graph(graph, plans):
        raise UsageError.build(
            "this session was opened before pesto.apply, or before its graph was complete, and TensorFlow ignores "
            "edits of a graph that a session has run",
            remedy="open it inside the context, behind the model",
        )
    names = {op.name for op in graph.get_operations()}
    plan = max(plans, key=lambda p: sum(n in names for n in p.names))
    lacking = [n for n in plan.names if n not in names]
    message = (
        f"{shown(update.name)} trains a variable, but the graph lacks {len(lacking)} of the {len(plan.names)} ops of "
        f"the plan ({plan.provenance.graph_source}), such as {shown(lacking[0])}"
    )
    if any(op.type in CALLS for op in graph.get_operations()):
        raise MismatchError.build(
            f"{message}: ops inside tf.functions that a v1 graph calls cannot be placed in a session",
            remedy="use pesto.rewrite or pesto apply on its GraphDef",
        )
    raise MismatchError.build(
        f"{message}: it is another graph, or an older trace whose ops had other names",
        remedy="plan this one, or train it outside pesto.apply",
    )


# Ops that a run executes.

_HARMLESS = frozenset((
    "ReadVariableOp", "VarHandleOp", "Variable", "VariableV2", "VarIsInitializedOp",
))  # fmt: skip
"""Op types that are stateful by their definition, but change nothing."""
_FEEDS = ("Placeholder", "PlaceholderV2")
_UPDATES = re.compile(r"Apply|^Assign(Add|Sub)|^(Resource)?Scatter")
_ASSIGNS = ("Assign", "AssignVariableOp")
_PASSED = ("Switch", "RefSwitch", "Enter", "RefEnter")
"""Op types that pass a variable's reference into a branch or loop."""
_NO_VALUE = frozenset((
    "IsVariableInitialized", "OnesLike", "Rank", "Shape", "ShapeN", "Size", "VarIsInitializedOp", "VariableShape",
    "ZerosLike",
))  # fmt: skip
"""Op types that read metadata of a variable, but not its value."""


def find_needed_ops(
    fetched: Iterable[Any], fed: Collection[str], added: Mapping[str, tuple[str, ...]]
) -> frozenset[str]:
    """Return the names of the ops that a run needs without the chains' edges `added` (node -> nodes it waits for).

    fed: names of tensors. Raise UsageError for a fetch of a part of the step, where the chains would make the run
    change state that it leaves alone, or need a feed that it does not give.
    """
    first = list(fetched)
    # The run without the chains' edges is what the program asked for; everything else that the full closure contains is
    # there only because of the order.
    own = _compute_closure(first, fed, added)
    dragged = []
    for name, op in _compute_closure(first, fed, {}).items():
        if name in own or op.type in _HARMLESS:
            continue
        if op.type in _FEEDS or op.op_def.is_stateful or any(a.is_ref for a in op.op_def.input_arg):
            dragged.append(op)
    if dragged:
        raise UsageError.build(
            f"fetching {shown(first[0].name)} runs a part of the ordered step, and its order would run "
            f"{shown(dragged[0].name)} ({dragged[0].type}) and {len(dragged) - 1} more ops with state or feeds too",
            remedy="fetch it together with the training op, or evaluate in a graph or session of its own outside "
            "pesto.apply",
        )
    return frozenset(own)


def _compute_closure(first: list[Any], fed: Collection[str], skipped: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    closure = {op.name: op for op in first}
    stack = list(first)
    while stack:
        op = stack.pop()
        without = skipped.get(op.name, ())
        # TensorFlow prunes data edges into fed tensors, but keeps control edges from the ops that make them.
        before = [t.op for t in op.inputs if t.name not in fed]
        before += [
            c
            for c in op.control_inputs
            if c.name not in without and not (c.type in _FEEDS and c.outputs[0].name in fed)
        ]
        for other in before:
            if other.name not in closure:
                closure[other.name] = other
                stack.append(other)
    return closure


def find_update(
    fetched: Iterable[Any], fed: Collection[str], variables: Collection[str], planned: Collection[str] = ()
) -> Any | None:
    """Return an op of a run, not of `planned`, that updates one of `variables` by its own value; None without one.

    variables, planned: names of ops.
    """
    for op in _compute_closure(list(fetched), fed, {}).values():
        if op.name in planned or not (_UPDATES.search(op.type) or op.type in _ASSIGNS) or not len(op.inputs):
            continue
        # Initialisers and restores assign values that do not depend on the variable; training updates read what they
        # write.
        reference = op.inputs[0]
        while reference.op.type in _PASSED:
            reference = reference.op.inputs[0]
        variable = reference.op
        if variable.name in variables and (op.type not in _ASSIGNS or _depends_on(op.inputs[1], variable, fed)):
            return op
    return None


def _depends_on(tensor: Any, variable: Any, fed: Collection[str]) -> bool:
    """Return True if a value is computed from the value of a variable."""
    visited: set[str] = set()
    stack = [tensor]
    while stack:
        current = stack.pop()
        if current.op.name == variable.name:
            return True
        if current.name not in fed and current.op.name not in visited and current.op.type not in _NO_VALUE:
            visited.add(current.op.name)
            stack += current.op.inputs
    return False


def configure_session(config: Any, wanted: Mapping[str, str]) -> Any:
    """Return a session's ConfigProto for a plan: Grappler off, as many logical CPUs as the targets `wanted` need.

    Raise InputError for soft placement and XLA's automatic clustering, which would undo a plan.
    """
    changed = v1.ConfigProto()
    if config is not None:
        changed.CopyFrom(config)
    if changed.allow_soft_placement:
        raise InputError.build(
            "the session's config has allow_soft_placement=True, by which TensorFlow moves ops unasked",
            remedy="leave it out",
        )
    if changed.graph_options.optimizer_options.global_jit_level > 0:
        raise InputError.build(
            "the session's config turns XLA's automatic clustering on, which fuses ops over a plan",
            remedy="leave it out",
        )
    disable_optimizers(changed)
    specs = [tf.DeviceSpec.from_string(target) for target in wanted.values()]
    cpus = [s.device_index for s in specs if s.device_type == "CPU" and s.job is None]
    if cpus:
        # Logical CPUs of a session are separate devices with a thread pool each; the count has to cover the largest
        # number in the plan.
        changed.device_count["CPU"] = max(max(cpus) + 1, changed.device_count.get("CPU", 1))
    return changed


v1 = tf.compat.v1


@dataclass(frozen=True, slots=True, eq=False)
class SessionEnforcement:
    """Hooks by which v1 sessions run by plans, and what they learned while one application lasts."""

    plans: tuple[Plan, ...]
    options: ApplyOptions
    placed: dict[Any, tuple[PlacedPlan, ...]] = field(default_factory=dict)
    """Graph -> its placed steps."""
    undone: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks that undo the edits of each graph."""
    opened: "weakref.WeakSet[Any]" = field(default_factory=weakref.WeakSet)
    """Sessions of this application."""
    verified: "weakref.WeakKeyDictionary[Any, set[frozenset[str]]]" = field(default_factory=weakref.WeakKeyDictionary)
    """Session -> sets of fetched and fed names whose runs were verified, or that no plan concerns."""
    findings: list[Findings] = field(default_factory=list)

    @contextlib.contextmanager
    def hooks(self, *, keep: bool) -> Iterator[None]:
        """Install the hooks; on leaving, all edits of graphs are undone unless `keep`."""
        with private.intercept_sessions(self.open, self.run, self.make_session_callable):
            try:
                yield
            finally:
                if not keep:
                    self.undo()

    def open(
        self, original: Callable[..., None], session: Any, target: Any = "", graph: Any = None, config: Any = None
    ) -> None:
        """Construct a session after its graph is edited; raise as `place_graph` and `configure_session`."""
        graph = graph if graph is not None else v1.get_default_graph()
        try:
            # A session hands its graph to the C++ runtime at the first run and ignores edits of ops that it has seen,
            # so the graph is edited before the session exists.
            placed = self.placed.get(graph, ())
            if graph not in self.placed:
                placed, undo = place_graph(graph, self.plans, self.options)
                if placed:
                    self.undone.append(undo)
                    self.placed[graph] = placed
            for one in placed:
                config = configure_session(config, one.targets)
        except PestoError:
            # The destructor of a session that was never opened would fail.
            original(session, "", tf.Graph(), v1.ConfigProto(device_count={"GPU": 0}))
            session.close()
            raise
        original(session, target, graph, config)
        if placed:
            try:
                available = [d.name for d in session.list_devices()]
                for one in placed:
                    check_devices_exist(one.targets, available)
            except InputError:
                session.close()
                raise
            # A callable without feeds bypasses `run` and runs in C++.
            session.make_callable = functools.partial(self.make_unplanned_callable, session)
        self.opened.add(session)

    def run(self, original: Callable[..., Any], session: Any, *args: Any) -> Any:
        """Run a session whose fetches are resolved, and verify a run of new fetches and feeds.

        args: handle, ops, tensors, feeds, options, metadata as in `BaseSession`. Raise UsageError for a run that cannot
        be verified or that changes more than its fetches say, MismatchError for training without a plan or a batch
        larger than planned, VerificationError for a run that differs from the plan.
        """
        handle, ops, tensors, feeds, options, metadata = args
        graph = private.session_graph(session)
        fetched = [*ops, *(t.op for t in tensors)]
        placed = self.placed.get(graph, ()) if session in self.opened else ()
        fed_values = {key.deref().op.name: value for key, value in feeds.items()}
        copies = [copy for one in placed for copy in one.edits.copies if copy.constant in fed_values]
        feeds = feeds | {graph.get_tensor_by_name(f"{copy.name}:0").ref(): fed_values[copy.constant] for copy in copies}
        args = (handle, ops, tensors, feeds, options, metadata)
        fed = {key.deref().name for key in feeds}
        # TensorFlow prunes a graph by what is fetched and fed and caches the result under the same key, so each
        # combination is checked once.
        key = frozenset([*(op.name for op in fetched), *(f"<{name}" for name in fed)])
        for one in placed:
            for tensor, value in ((key.deref(), value) for key, value in feeds.items()):
                limit = one.limits.get(tensor.op.name)
                if limit is not None and len(value) > limit:
                    raise larger_batch_error(len(value), limit, f"feeding {shown(tensor.op.name)}")
        if key in self.verified.get(session, ()):
            return original(session, *args)
        refuse_unplanned(graph, fetched, fed, self.plans, placed)
        if placed and handle is not None:
            raise UsageError.build("partial_run cannot be verified under a plan", remedy="use session.run")
        # A run may fetch a part of the step, such as the loss alone. Control edges of the chains would pull in the
        # rest; that is refused where it would change state.
        for one in placed:
            refuse_fed(one, fed)
        waits = merge_edits([one.edits for one in placed]).waits
        needs = find_needed_ops(fetched, fed, waits) if placed else frozenset()
        concerned = [p for p in placed if not needs.isdisjoint(p.expected.placement.graph.names)]
        if concerned:
            result, record = _run_recording_graphs(
                lambda o, m: original(session, handle, ops, tensors, feeds, o, m), options, metadata, self.options
            )
            for one in concerned:
                expected = ExpectedPlacement(placement=one.expected.placement, loops=one.expected.loops, ran=needs)
                stats = record.step_stats if self.options.trace else None
                self.findings.append(verify_run(record.partition_graphs, expected, stats=stats))
        else:
            result = original(session, *args)
        self.verified.setdefault(session, set()).add(key)
        return result

    def make_unplanned_callable(
        self, session: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Any:
        """Make a callable of a placed session; raise UsageError for one with feeds, options or ops in the chains."""
        graph = private.session_graph(session)
        elements = [graph.as_graph_element(f) for f in tf.nest.flatten(fetches)]
        ops = [getattr(e, "op", e) for e in elements]
        runs = _compute_closure(ops, (), {})
        if feed_list or accept_options or any(not one.chained.isdisjoint(runs) for one in self.placed.get(graph, ())):
            _make_callable_error()
        return type(session).make_callable(session, fetches)

    def make_session_callable(self, original: Callable[..., Any], session: Any, *args: Any) -> Any:
        """Make a callable of a session; raise UsageError for one with a placed graph."""
        if private.session_graph(session) in self.placed:
            _make_callable_error()
        return original(session, *args)

    def undo(self) -> None:
        """Take all edits back."""
        while self.undone:
            self.undone.pop()()
        self.placed.clear()
        for session in self.opened:
            vars(session).pop("make_callable", None)


def _make_callable_error(*_: Any, **__: Any) -> None:
    raise UsageError.build("make_callable cannot be verified under a plan", remedy="use session.run")


def _run_recording_graphs(
    run: Callable[[Any, Any], Any], options: Any, metadata: Any, how: ApplyOptions
) -> tuple[Any, Any]:
    """Return (result, RunMetadata) of a run that records its partition graphs; the caller's own options are kept."""
    wanted = private.read_buffer(options, v1.RunOptions())
    wanted.output_partition_graphs = True
    if how.trace:
        wanted.trace_level = v1.RunOptions.FULL_TRACE
    with private.buffer_of(wanted) as options_buffer:
        if metadata is not None:
            result = run(options_buffer, metadata)
            return result, private.read_buffer(metadata, v1.RunMetadata())
        with private.empty_buffer() as written:
            result = run(options_buffer, written)
            return result, private.read_buffer(written, v1.RunMetadata())
