"""tf.functions under a plan: each training step that is traced is edited before it compiles, its first run examined."""

import copy
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError, MismatchError, PestoError, UsageError
from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.core.source import SAVED_MODEL
from pesto.tf import placement_refusals, private
from pesto.tf.apply_placement.fetch_closure import closure
from pesto.tf.apply_placement.placement import StepPlacement, StepTrace, trace_step
from pesto.tf.apply_placement.relays import place_with_relays
from pesto.tf.apply_placement.targets import check_devices_exist, device_targets
from pesto.tf.enforce import training
from pesto.tf.enforce.apply_options import ApplyOptions, check_settings
from pesto.tf.enforce.edits import apply_edits, compute_edits, without_implied
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings, examine, name_prefixes
from pesto.tf.enforce.plan_matching import (
    add_batch_checks,
    batch_error,
    stand_in_batch,
    trace_for_plan,
    unmatched_step_error,
)
from pesto.tf.enforce.relocate import VariableMoves
from pesto.tf.nodes.captured import use_planned_shapes
from pesto.tf.nodes.inline import inline_keras_2
from pesto.tf.sources.sources import capture_func_graph


@dataclass(frozen=True, slots=True, eq=False)
class FunctionEnforcement:
    """Hooks by which tf.functions run by plans, and what they learned while one application lasts."""

    plans: tuple[Plan, ...]
    options: ApplyOptions
    moves: VariableMoves = field(default_factory=VariableMoves)
    placed: dict[int, tuple[Any, ExpectedPlacement, StepTrace]] = field(default_factory=dict)
    """FuncGraph's id -> (the graph, kept alive so that its id stays unique, its expected placement, its step)."""
    names: dict[str, ExpectedPlacement] = field(default_factory=dict)
    """Expectations of each function, by its name in TensorFlow's library."""
    known: "weakref.WeakSet[Any]" = field(default_factory=weakref.WeakSet)
    """Functions that were traced within this application, or need no watch."""
    seen: set[str] = field(default_factory=set)
    """Names of the functions that were traced within this application."""
    verified: "weakref.WeakSet[Any]" = field(default_factory=weakref.WeakSet)
    """Functions that ran as planned, or are of no plan's concern."""
    planned: "weakref.WeakSet[Any]" = field(default_factory=weakref.WeakSet)
    """The functions seen that a plan is for."""
    findings: list[Findings] = field(default_factory=list)
    refused: list[PestoError] = field(default_factory=list)
    """Warnings of functions that no plan is for, as they were given first."""

    def wanted(self, plan: Plan) -> dict[str, str]:
        """Return TensorFlow's name for each device of a plan; raise as `device_targets` and `check_devices_exist`."""
        targets = device_targets(plan, self.options.devices)
        check_devices_exist(targets, [d.name for d in tf.config.list_logical_devices()])
        return targets

    def on_graph(self, graph: Any) -> None:
        """Place and order a FuncGraph that was traced and compiles next, if it trains; raise for one without a plan."""
        if private.is_body(graph):  # the function around it answers for it
            return
        # This runs after tracing and before compilation, the last moment at which a FuncGraph can be edited: a compiled
        # function keeps a copy of its nodes.
        label = private.label_of(graph)
        training.refuse_gradients_only(graph, label)
        if not training.trains(graph, self.seen):
            return
        placement_refusals.check_graph(graph, label)
        if self.options.trace:
            raise InputError.build(
                "trace=True compares times, which TensorFlow gives of v1 sessions only",
                where=label,
                remedy="leave it out; the first run is verified all the same",
            )
        traced, plan = self._recognised(graph, label)
        wanted = self.wanted(plan)
        # Captured variables and small constants enter as arguments: the plan places them, but they do not run in this
        # function, so the partition check must not look for them and no chain may contain them.
        arguments = {t.op.name for t in graph.inputs}
        mine = frozenset(name for name in traced.graph.names if name not in arguments)
        made_outside = np.array([name not in mine for name in traced.graph.names], dtype=np.bool_)
        placement = order_all_neighbours(
            place_with_relays(plan, traced, wanted, made_outside, order=self.options.order)
        )
        # TensorFlow keeps a function's iterator on the first CPU, whatever a plan says of its reader.
        index = {name: i for i, name in enumerate(placement.graph.names)}
        for op in graph.get_operations():
            if op.type.startswith("IteratorGetNext") and op.name in index:
                where = placement.device_of(index[op.name])
                device = tf.DeviceSpec.from_string(where)
                if (device.device_type, device.device_index or 0) != ("CPU", 0):
                    raise InputError.build(
                        f"the plan has {shown(op.name)}, which reads the step's batch, on {where}, and iterators "
                        "are on /device:CPU:0",
                        where=label,
                        remedy=(
                            "map the plan's device of that op to it (devices={...}), or plan for a cluster with one CPU"
                        ),
                    )
        # Variables are moved before the graph is edited: a resource op runs where its handle is, so the placer of
        # TensorFlow would silently move ops of a graph that was placed first.
        self.moves.settle(graph, placement, plan.provenance.graph_source)
        apply_edits(graph, without_implied(compute_edits(placement, traced, traced.nodes.defs), placement, traced))
        if traced.graph.batch is not None:
            add_batch_checks(graph, traced.graph.batch)
        ran = mine | {relay.name for relay in placement.relays}
        expected = ExpectedPlacement(placement=placement, loops=traced.loops, ran=ran)
        # The graph is stored along with its id; otherwise the id could be reused by another FuncGraph after garbage
        # collection.
        self.placed[id(graph)] = (graph, expected, traced)

    def on_compile(self, graph: Any) -> Sequence[Any]:
        """Return the ops of a function to compile: all, but of a planned one those that something needs.

        Nothing prunes a function while Grappler is off: an op that nobody needs, such as a bypassed barrier, would run
        where TensorFlow likes, and its inputs would be sent there.
        """
        every: Sequence[Any] = graph.get_operations()
        if id(graph) not in self.placed:
            return every
        # Everything that a returned tensor, a control output or a stateful op needs is kept, except the whole branch
        # ops that their parts replaced.
        divided = self.placed[id(graph)][2].divisions
        effects = [op for op in every if op.op_def.is_stateful and op.name not in divided]
        needed = closure([*(tensor.op for tensor in graph.outputs), *graph.control_outputs, *effects])
        return [op for op in every if op.name in needed]

    def on_trace(self, tracing: private.TraceRequest) -> Any:
        """Return the ConcreteFunction of a trace that a plan is for; raise the first error about it, unwrapped."""
        try:
            with inline_keras_2(tracing):
                return trace_for_plan(tracing, self.plans)
        except PestoError as error:
            # AutoGraph catches the error, wraps it in a traceback of the user's code and raises it again, once for each
            # enclosing function. The first copy has the plain one-line message.
            first = next((said for said in self.refused if str(said) in str(error)), None)
            if first is None:
                self.refused.append(copy.copy(error))  # the error itself holds on to all that its frames hold
                raise
            raise copy.copy(first) from None

    def on_function(self, function: Any) -> None:
        """Note a compiled function; raise InputError for a step that XLA or a tf.data pipeline would run."""
        self.known.add(function)
        self.seen.add(private.name_of(function))
        # A tf.data pipeline runs its functions in its own threads: its runs show no partition graphs that could be
        # checked.
        if private.runs_in_data(function) and training.called_steps(function, self.names):
            raise InputError.build(
                f"function {shown(function.graph.name)} runs the step inside a tf.data pipeline, where nothing "
                "verifies it",
                remedy="loop over the dataset in Python",
            )
        placed = self.placed.get(id(function.graph))
        if placed is not None:
            if private.must_compile(function.function_def.attr):
                raise placement_refusals.xla_error(f"function {function.graph.name}")
            self.names[private.name_of(function)] = placed[1]

    def called(self, function: Any, call: Callable[[], Any]) -> Any:
        """Run a function called from eager code; check the settings and, the first time, the partition graphs.

        Raise UsageError for a training function that was not traced here, MismatchError for a batch larger than
        planned, VerificationError for a run that differs from the plan.
        """
        if function in self.verified:
            # Verified functions take the short way: only the process settings can still invalidate a plan after the
            # first run.
            if function not in self.planned:
                return call()
            check_settings()
            return _call_within_batch(call)
        if function not in self.known:
            name = shown(function.graph.name)
            if training.trains_unseen(function):
                raise UsageError.build(
                    f"function {name} was traced before pesto.apply, or loaded, and would run unplaced",
                    remedy="call the tf.function itself inside the context, so that it is traced there",
                )
            for plan in self.plans:
                if _is_exported_signature(function.graph, plan):
                    raise UsageError.build(
                        f"function {name} is the signature that the plan of {shown(plan.provenance.graph_source)} is "
                        "for, was traced when it was exported, and would run unplaced",
                        remedy="run that plan by pesto run, or plan the program's own tf.function and call that",
                    )
        inside = training.called_steps(function, self.names)
        if not inside:
            self.verified.add(function)
            return call()
        check_settings()
        # TensorFlow partitions a function at its first run and keeps the result, so the graphs of this run hold for all
        # later ones.
        with private.collect_partition_graphs() as graphs:
            result = _call_within_batch(call)
        for name in sorted(inside):
            expected = self.names[name]
            runs = [(parts, prefix) for parts in graphs for prefix in name_prefixes(parts, expected.placement)]
            if not runs:
                raise UsageError.build(
                    f"function {name}: TensorFlow showed no graph of its run", remedy="call it first inside pesto.apply"
                )
            for parts, prefix in runs:
                self.findings.append(examine(parts, expected, prefix).checked())
        self.verified.add(function)
        self.planned.add(function)
        return result

    def _recognised(self, graph: Any, label: str) -> tuple[StepTrace, Plan]:
        """Return the step of a training FuncGraph and its plan; raise UnmatchedStepError when there is none."""
        captured = capture_func_graph(graph, label)
        why: PestoError | None = None
        # Building the graph is the expensive part and depends only on the batch and the feed shapes, so plans with
        # equal ones share it.
        kinds = {(plan.provenance.graph_batch, plan.feed_shapes): plan for plan in self.plans}
        for (batch, _), like in kinds.items():
            try:
                traced = trace_step(use_planned_shapes(captured, like), batch or stand_in_batch(captured))
            except InputError as error:
                why = error
                continue
            for plan in self.plans:
                if plan.provenance.graph_fingerprint == traced.graph.fingerprint():
                    # Parts of divided branches are made by the plan and lie in no function of the program.
                    made = {node.name for division in traced.divisions.values() for node in division.nodes}
                    training.refuse_nested(graph, set(traced.graph.names) - made, label)
                    return traced, plan
            why = unmatched_step_error(traced.graph, self.plans, label, graph.structured_input_signature)
        raise why or MismatchError(f"{label}: no plan is given for it")


def _is_exported_signature(graph: Any, plan: Plan) -> bool:
    """Return True if a plan is for the signature of a SavedModel, and this is its graph."""
    made = plan.provenance
    if made.graph_origin.kind != SAVED_MODEL:
        return False
    try:
        traced = trace_step(use_planned_shapes(capture_func_graph(graph, made.graph_source), plan), made.graph_batch)
    except PestoError:  # no step can be made of it, so it is no planned one
        return False
    return traced.graph.fingerprint() == made.graph_fingerprint


def _call_within_batch(call: Callable[[], Any]) -> Any:
    """Return the results of a planned function; MismatchError when its batch is larger than planned."""
    try:
        return call()
    except tf.errors.InvalidArgumentError as error:
        why = batch_error(error)
        if why is None:
            raise
    raise why


def order_all_neighbours(placement: StepPlacement) -> StepPlacement:
    """Return the placement with a control edge between all neighbours of a chain, also where data joins them."""
    # TensorFlow optimises each partition once more before it runs. An op folded into a constant loses its data edges,
    # but a control edge between neighbours survives the fold.
    before, after = placement.neighbours()
    return replace(placement, before=before, after=after)
