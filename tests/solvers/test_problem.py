"""A problem or schedule that contradicts itself cannot be made, and what is made cannot change."""

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from solvers.instances.plain import chain, fork, layered
from solvers.instances.random import EVERYTHING, Features, generate
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule


def pair(**changes) -> Problem:
    """Two tasks on two GPUs, task 0 sending payload 0 to task 1 over link 0; fields replaced by `changes`."""
    given = {
        "duration": [[3, 4], [5, FORBIDDEN]], "location": [0, 1], "memory": [1, 2], "capacity": [9, 9],
        "src": [0], "dst": [1], "payload": [0], "producer": [0], "transfer": [[7]],
        "path_class": [[-1, 0], [0, -1]], "path_links": [[[-1], [0]], [[0], [-1]]], "group": [-1, -1],
    }  # fmt: skip
    return Problem(**(given | changes))


def test_sizes_are_those_of_the_arrays():
    """2 tasks, 2 devices, 2 locations, 1 edge, 1 payload, and links 0..0."""
    p = pair()
    assert (p.tasks, p.devices, p.locations, p.edges, p.payloads, p.links) == (2, 2, 2, 1, 1, 1)


def test_allowed_follows_the_durations():
    """Only task 1 on device 1 is forbidden."""
    assert pair().allowed.tolist() == [[True, True], [True, False]]


def test_a_problem_of_nothing_has_no_links():
    """Without locations there is no path, so no link."""
    p = chain(0, gpus=0)
    assert (p.tasks, p.devices, p.locations, p.links) == (0, 0, 0, 0)


REFUSED = {
    "a table of durations in one dimension": ({"duration": [1, 2]}, "duration must be"),
    "transfers in one dimension": ({"transfer": [7]}, "duration must be"),
    "a location for each device but one": ({"location": [0]}, "location has shape"),
    "a location that does not exist": ({"location": [0, 2]}, "location: 2 is out of range"),
    "a negative location": ({"location": [0, -1]}, "location: -1 is out of range"),
    "memory of one task only": ({"memory": [1]}, "memory has shape"),
    "negative memory": ({"memory": [1, -2]}, "memory: -2 is out of range"),
    "negative capacity": ({"capacity": [9, -1]}, "capacity: -1 is out of range"),
    "capacities in two dimensions": ({"capacity": [[9], [9]]}, "capacity must have one dimension"),
    "fewer heads than tails": ({"dst": []}, "dst has shape"),
    "fewer payloads than edges": ({"payload": []}, "payload has shape"),
    "a tail that does not exist": ({"src": [2]}, "src: 2 is out of range"),
    "a head that does not exist": ({"dst": [-1]}, "dst: -1 is out of range"),
    "a payload that does not exist": ({"payload": [1]}, "payload: 1 is out of range"),
    "a payload below none": ({"payload": [-2]}, "payload: -2 is out of range"),
    "a producer that does not exist": ({"producer": [2]}, "producer: 2 is out of range"),
    "producers in two dimensions": ({"producer": [[0]]}, "producer must have one dimension"),
    "ticks beyond 64 bits": ({"duration": [[2**62, 3], [2**62, 5]]}, "beyond what 64 bits"),
    "bytes beyond 64 bits": ({"memory": [2**62, 2**62]}, "beyond what 64 bits"),
    "a duration below FORBIDDEN": ({"duration": [[3, -2], [5, 5]]}, "duration: -2 is out of range"),
    "a negative transfer": ({"transfer": [[-7]]}, "transfer: -7 is out of range"),
    "a transfer too many": ({"transfer": [[7], [7]]}, "transfer has shape"),
    "a path class too high": ({"path_class": [[-1, 1], [0, -1]]}, "path_class off the diagonal: 1 is"),
    "no path class off the diagonal": ({"path_class": [[-1, -1], [0, -1]]}, "path_class off the diagonal: -1 is"),
    "a path class on the diagonal": ({"path_class": [[0, 0], [0, -1]]}, "path_class on the diagonal: 0 is"),
    "path classes of one location": ({"path_class": [[-1]]}, "path_class has shape"),
    "links in two dimensions": ({"path_links": [[-1, 0], [0, -1]]}, "path_links has shape"),
    "a link below none": ({"path_links": [[[-1], [-2]], [[0], [-1]]]}, "path_links: -2 is out of range"),
    "groups of one task": ({"group": [0]}, "group has shape"),
    "a group below none": ({"group": [0, -2]}, "group: -2 is out of range"),
    "a task that runs nowhere": ({"duration": [[3, 4], [FORBIDDEN, FORBIDDEN]]}, "task 1 can run on no device"),
    "tasks without devices": ({"duration": np.zeros((2, 0), dtype=int), "location": []}, "task 0 can run on no device"),
    "a payload of another task": ({"producer": [1]}, "edge 0 from task 0 carries payload 0 of another task"),
    "an edge to itself": ({"dst": [0]}, "cycle"),
    "a cycle": ({"src": [0, 1], "dst": [1, 0], "payload": [0, -1]}, "cycle"),
    "fractions": ({"memory": [1.5, 2]}, "integers expected"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_contradiction_is_refused(name):
    """Each wrong field is a ValueError that names it."""
    changes, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        pair(**changes)


def test_arrays_are_copies_that_cannot_change():
    """Neither the caller's array nor the problem's lets the problem change after validation."""
    memory = np.array([1, 2])
    p = pair(memory=memory)
    memory[0] = 100
    assert p.memory.tolist() == [1, 2]
    for array in (p.memory, p.duration, p.allowed):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(FrozenInstanceError):
        p.memory = memory  # type: ignore[misc]


def test_replacing_a_field_validates_again():
    """`replace` derives `allowed` anew and refuses what the constructor refuses."""
    assert replace(pair(), duration=[[1, 1], [1, 1]]).allowed.all()
    with pytest.raises(ValueError, match="shape"):
        replace(pair(), memory=[1])


def times(**changes) -> Schedule:
    given = {"device": [0, 1], "start": [0, 3], "finish": [3, 8]}
    sent = {name: [] for name in ("sent_payload", "sent_to", "sent_start", "sent_finish")}
    return Schedule(**(given | sent | changes))


def test_makespan_is_the_last_finish():
    """Finishes 3 and 8 make 8; no task makes 0."""
    assert times().makespan == 8
    assert times(device=[], start=[], finish=[]).makespan == 0


def test_schedules_of_unequal_columns_are_refused():
    """Tasks and transfers each have columns of one length."""
    with pytest.raises(ValueError, match="one entry a task"):
        times(start=[0])
    with pytest.raises(ValueError, match="four columns"):
        times(sent_to=[0])


def test_generated_problems_hold_to_their_features():
    """With every feature off: GPUs only, all alike, each edge its own payload, a link for each pair, no zero."""
    plain = Features(**dict.fromkeys(Features.__dataclass_fields__, False))
    for seed in range(50):
        p = generate(np.random.default_rng(seed), tasks=9, gpus=3, features=plain)
        assert p.devices == p.locations == 3
        assert (p.duration == p.duration[:, :1]).all() and p.duration.min() > 0 and p.transfer.min(initial=1) > 0
        assert p.payload.tolist() == list(range(p.edges))
        assert (p.group < 0).all() and not p.memory.any()
        assert p.links == 6 and p.path_links[:, :, 1:].max() == -1


def test_generated_problems_show_every_feature():
    """Over 200 seeds each feature appears somewhere, and no task index order is forced."""
    seen = dict.fromkeys(["several cores", "lanes", "groups", "precedence", "shared", "long", "zero", "backward"], 0)
    for seed in range(200):
        p = generate(np.random.default_rng(seed), tasks=10, features=EVERYTHING)
        cores = np.bincount(p.location)[0]
        seen["several cores"] += cores > 1
        seen["lanes"] += p.devices > cores + p.locations - 1
        seen["groups"] += (p.group >= 0).any()
        seen["precedence"] += (p.payload < 0).any()
        seen["shared"] += len(np.unique(p.payload)) < p.edges
        seen["long"] += (p.path_links[:, :, 1] >= 0).any()
        seen["zero"] += (p.duration == 0).any()
        seen["backward"] += (p.src > p.dst).any()
    assert min(seen.values()) >= 20, seen


def test_generation_depends_on_the_seed_alone():
    """The same seed gives the same problem, another seed another one."""
    one, same, other = (generate(np.random.default_rng(seed)) for seed in (4, 4, 5))
    assert all((getattr(one, f.name) == getattr(same, f.name)).all() for f in fields(one) if f.name != "lives")
    assert one.duration.tolist() != other.duration.tolist()


def test_generation_refuses_what_it_cannot_make():
    """No GPU, a negative number of tasks, and a fork of one task have no meaning."""
    with pytest.raises(ValueError, match="at least 1 GPU"):
        generate(np.random.default_rng(0), gpus=0)
    with pytest.raises(ValueError, match="at least 1 GPU"):
        generate(np.random.default_rng(0), tasks=-1)
    with pytest.raises(ValueError, match="at least 2 tasks"):
        fork(1)


def test_plain_structures_have_their_edges():
    """A chain of n has n - 1 edges, a fork 2 (n - 2), layers two for each task after the first layer."""
    assert chain(5).edges == 4
    assert fork(5).edges == 6
    assert layered(np.random.default_rng(0), 3, 4).edges == 2 * 2 * 4


def test_other_bytes_are_validated_and_nothing_else_changes():
    """`holding` is `replace` for bytes, without the cost: the rest is shared."""
    p = generate(np.random.default_rng(4))
    more, room = p.memory + 1, p.capacity + 5
    found, slow = p.holding(memory=more, capacity=room), replace(p, memory=more, capacity=room)
    assert all((getattr(found, f.name) == getattr(slow, f.name)).all() for f in fields(p) if f.name != "lives")
    assert found.duration is p.duration and p.memory.tolist() == (more - 1).tolist()
    with pytest.raises(ValueError, match="memory: -1 is out of range"):
        p.holding(memory=more - more - 1)
    with pytest.raises(ValueError, match="path_class has shape"):
        p.holding(capacity=np.append(room, 1))
    with pytest.raises(ValueError, match="bytes sum to more"):
        p.holding(memory=np.full(p.tasks, 2**62))
