"""v1 sessions under a plan: their graph edited before they open, their runs watched."""

import functools
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, PestoError, UsageError
from pesto.core.plans.plan import Plan
from pesto.tf import private
from pesto.tf.apply_placement.fetch_closure import closure, ops_needed
from pesto.tf.apply_placement.targets import check_devices_exist
from pesto.tf.enforce import partitions, steps
from pesto.tf.enforce.apply_options import ApplyOptions
from pesto.tf.enforce.edits import merge_edits
from pesto.tf.enforce.partitions import ExpectedPlacement, Findings, examine

v1 = tf.compat.v1


@dataclass(frozen=True, slots=True, eq=False)
class SessionEnforcement:
    """The v1 side of one application of plans."""

    plans: tuple[Plan, ...]
    options: ApplyOptions
    placed: dict[Any, tuple[steps.PlacedStep, ...]] = field(default_factory=dict)
    """Graph -> its placed steps."""
    undone: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks that undo the edits of each graph."""
    opened: "weakref.WeakSet[Any]" = field(default_factory=weakref.WeakSet)
    """Sessions of this application."""
    verified: "weakref.WeakKeyDictionary[Any, set[frozenset[str]]]" = field(default_factory=weakref.WeakKeyDictionary)
    """Session -> sets of fetched and fed names whose runs were verified, or that no plan concerns."""
    findings: list[Findings] = field(default_factory=list)

    def open(
        self, original: Callable[..., None], session: Any, target: Any = "", graph: Any = None, config: Any = None
    ) -> None:
        """Replace a session's constructor: edit and check its graph first."""
        graph = graph if graph is not None else v1.get_default_graph()
        try:
            # A session hands its graph to the C++ runtime at the first run and ignores edits of ops that it has seen,
            # so the graph is edited before the session exists.
            placed = self._placed(graph)
            for one in placed:
                config = steps.configure_session(config, one.targets)
        except PestoError:
            # Its destructor would stumble over a session that was never opened.
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
            # Without feeds it runs past `run`, straight in C++.
            session.make_callable = functools.partial(self.callable_apart, session)
        self.opened.add(session)

    def run(self, original: Callable[..., Any], session: Any, *args: Any) -> Any:
        """Replace a session's run, once its fetches are resolved: verify runs of a new kind.

        args: handle, ops, tensors, feeds, options, metadata as `BaseSession` has them.
        """
        handle, ops, tensors, feeds, options, metadata = args
        graph = private.session_graph(session)
        fetched = [*ops, *(t.op for t in tensors)]
        placed = self.placed.get(graph, ()) if session in self.opened else ()
        feeds = feeds | {copy.ref(): value for one in placed for copy, value in steps.fed_copies(graph, one, feeds)}
        args = (handle, ops, tensors, feeds, options, metadata)
        fed = {key.deref().name for key in feeds}
        # TensorFlow prunes a graph by what is fetched and fed and caches the result under the same key, so each
        # combination is checked once.
        key = frozenset([*(op.name for op in fetched), *(f"<{name}" for name in fed)])
        for one in placed:
            steps.refuse_larger_batch(one, [(name.deref(), value) for name, value in feeds.items()])
        if key in self.verified.get(session, ()):
            return original(session, *args)
        steps.refuse_unplanned(graph, fetched, fed, self.plans, placed)
        if placed and handle is not None:
            raise UsageError.build("partial_run cannot be verified under a plan", remedy="use session.run")
        # A run may fetch a part of the step, such as the loss alone. Control edges of the chains would pull in the
        # rest; that is refused where it would change state.
        needs = _ops_needed_by_run(placed, fetched, fed)
        concerned = [p for p in placed if not needs.isdisjoint(p.expected.placement.graph.names)]
        if concerned:
            result, record = _run_recording_graphs(
                lambda o, m: original(session, handle, ops, tensors, feeds, o, m), options, metadata, self.options
            )
            for one in concerned:
                self._check(one, needs, record)
        else:
            result = original(session, *args)
        self.verified.setdefault(session, set()).add(key)
        return result

    def callable_apart(self, session: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        """Replace a placed session's make_callable: allow it for ops outside the chains, such as queue runners."""
        graph = private.session_graph(session)
        elements = [graph.as_graph_element(f) for f in tf.nest.flatten(fetches)]
        ops = [getattr(e, "op", e) for e in elements]
        runs = closure(ops)
        if feed_list or accept_options or any(not one.chained.isdisjoint(runs) for one in self.placed.get(graph, ())):
            _no_callable()
        return type(session).make_callable(session, fetches)

    def callable_of(self, original: Callable[..., Any], session: Any, *args: Any) -> Any:
        """Replace the last step of a session's make_callable: refuse it for placed graphs."""
        if private.session_graph(session) in self.placed:
            _no_callable()
        return original(session, *args)

    def undo(self) -> None:
        """Take all edits back."""
        while self.undone:
            self.undone.pop()()
        self.placed.clear()
        for session in self.opened:
            vars(session).pop("make_callable", None)

    def _placed(self, graph: Any) -> tuple[steps.PlacedStep, ...]:
        if graph not in self.placed:
            placed, undo = steps.place_graph(graph, self.plans, self.options)
            if not placed:
                return ()
            self.undone.append(undo)
            self.placed[graph] = placed
        return self.placed[graph]

    def _check(self, placed: steps.PlacedStep, needs: frozenset[str], record: Any) -> None:
        expected = ExpectedPlacement(placement=placed.expected.placement, loops=placed.expected.loops, ran=needs)
        findings = examine(record.partition_graphs, expected)
        if self.options.trace:
            findings = partitions.merge_findings(findings, partitions.examine_times(record.step_stats, expected))
        self.findings.append(findings.checked())


def _ops_needed_by_run(
    placed: Sequence[steps.PlacedStep], fetched: Sequence[Any], fed: Collection[str]
) -> frozenset[str]:
    """Names of the ops that a run needs, where steps are placed; refuses what `refuse_fed` and `ops_needed` do."""
    if not placed:
        return frozenset()
    for one in placed:
        steps.refuse_fed(one, fed)
    return ops_needed(fetched, fed, merge_edits([one.edits for one in placed]).waits)


def _no_callable(*_: Any, **__: Any) -> None:
    raise UsageError.build("make_callable cannot be verified under a plan", remedy="use session.run")


def _run_recording_graphs(
    run: Callable[[Any, Any], Any], options: Any, metadata: Any, how: ApplyOptions
) -> tuple[Any, Any]:
    """(result, RunMetadata) of a run that writes down its partition graphs; what the caller asked for is kept."""
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
