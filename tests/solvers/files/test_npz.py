"""Problems and schedules survive the way to bytes and back; any other bytes are a ValueError of one line."""

import io
import zipfile
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.files.npz import pack_problem, pack_schedule, unpack_problem, unpack_schedule
from solvers.instances.plain import chain
from solvers.instances.random import generate
from solvers.problem import Problem
from solvers.schedule import Schedule


def arrays(value: Problem | Schedule) -> dict[str, tuple[tuple[int, ...], bytes]]:
    given = {f.name: getattr(value, f.name) for f in fields(value) if f.name != "lives"}
    return {name: (array.shape, array.tobytes()) for name, array in given.items()}


def small() -> Schedule:
    columns = {"sent_payload": [0], "sent_to": [1], "sent_start": [1], "sent_finish": [2]}
    return Schedule(device=[0, 1], start=[0, 2], finish=[1, 3], **columns)


def refused(unpack: Callable[[bytes], object], data: bytes) -> str:
    with pytest.raises(ValueError, match=r"^not a (problem|schedule) file: ") as caught:
        unpack(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content, compression)
    return out.getvalue()


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def test_problems_come_back(cases):
    """Every array of every random problem comes back equal, and packs to the same bytes."""
    for problem, _ in cases:
        data = pack_problem(problem)
        assert arrays(unpack_problem(data)) == arrays(problem)
        assert pack_problem(unpack_problem(data)) == data


def test_schedules_come_back(cases):
    """Every array of every random schedule comes back equal, and packs to the same bytes."""
    for _, schedule in cases:
        data = pack_schedule(schedule)
        assert arrays(unpack_schedule(data)) == arrays(schedule)
        assert pack_schedule(unpack_schedule(data)) == data


def test_a_problem_of_nothing_comes_back():
    """Arrays without elements keep their shapes."""
    assert arrays(unpack_problem(pack_problem(chain(0)))) == arrays(chain(0))


def test_every_truncation_is_refused():
    """The end of the file holds its directory, so no proper prefix is a file."""
    problem, schedule = pack_problem(chain(2)), pack_schedule(small())
    for end in range(len(problem)):
        refused(unpack_problem, problem[:end])
    for end in range(len(schedule)):
        refused(unpack_schedule, schedule[:end])


@pytest.mark.slow
def test_a_flipped_bit_never_changes_the_content(seeds):
    """Each bit flip is refused, or hits what is not content (dates, attributes): checksums cover all of the content."""
    problem = generate(np.random.default_rng(1), tasks=3)
    data = pack_problem(problem)
    rng = np.random.default_rng(7)
    refusals = 0
    for bit in rng.choice(8 * len(data), len(seeds(500))):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert arrays(unpack_problem(bytes(flipped))) == arrays(problem)
        except ValueError as error:
            assert str(error).startswith("not a problem file: ") and "\n" not in str(error)
            refusals += 1
    # Content and its headers are most of the file.
    assert refusals > len(seeds(500)) / 2


@given(st.binary(max_size=200), st.integers(0, 3000), st.integers(0, 200))
def test_foreign_bytes_spliced_in_are_refused(foreign, at, cut):
    """A file with bytes replaced by others gives a problem or a ValueError of one line, nothing else."""
    data = pack_problem(chain(2))
    spliced = data[:at] + foreign + data[at + cut :]
    try:
        assert arrays(unpack_problem(spliced)) == arrays(chain(2))
    except ValueError as error:
        assert "\n" not in str(error)


@given(st.lists(st.tuples(st.integers(0, 13), st.lists(st.integers(-3, 9), max_size=4)), min_size=1, max_size=4))
def test_arrays_of_other_shapes_are_refused_or_make_a_problem(changes):
    """Members replaced by int64 arrays of any shape give a problem or a ValueError of one line, nothing else."""
    found = members(pack_problem(chain(2)))
    names = sorted(found)
    for which, shape in changes:
        array = np.resize(np.arange(9), [abs(size) for size in shape])
        found[names[which % len(names)]] = npy(array - 3 * (min(shape, default=0) < 0))
    try:
        assert isinstance(unpack_problem(archive(found)), Problem)
    except ValueError as error:
        assert "\n" not in str(error)


def test_a_scalar_where_a_column_belongs_is_refused():
    """An array without dimensions has no length; it must not surface as another kind of error."""
    refused(unpack_problem, archive(members(pack_problem(chain(2))) | {"capacity.npy": npy(np.array(3))}))
    refused(unpack_schedule, archive(members(pack_schedule(small())) | {"start.npy": npy(np.array(3))}))


def test_bombs_are_refused_before_they_unfold():
    """A compressed member, a header that claims 800 PB and a directory without end."""
    found = members(pack_schedule(small()))
    zeros = npy(np.zeros(10**6, dtype=np.int64))
    assert "compressed" in refused(unpack_schedule, archive(found | {"start.npy": zeros}, zipfile.ZIP_DEFLATED))
    huge = found["start.npy"].replace(b"(2,), }" + b" " * 17, b"(100000000000000000,), }")
    assert huge != found["start.npy"] and len(huge) == len(found["start.npy"])
    assert "not those of shape" in refused(unpack_schedule, archive(found | {"start.npy": huge}))
    many = archive(found | {f"{number}.npy": b"" for number in range(1000)})
    assert "directory" in refused(unpack_schedule, many)


def test_other_files_are_told_apart():
    """Each kind of wrong file is refused with its own reason."""
    problem, schedule = pack_problem(chain(2)), pack_schedule(small())
    found = members(schedule)
    assert "no member problem" in refused(unpack_problem, schedule)
    assert "no member schedule" in refused(unpack_schedule, problem)
    assert "truncated" in refused(unpack_schedule, b"")
    assert "version [2]" in refused(unpack_schedule, archive(found | {"schedule.npy": npy(np.array([2]))}))
    assert "members are" in refused(unpack_schedule, archive(found | {"more.npy": npy(np.array([2]))}))
    pickled = npy(np.array([{"a": 1}], dtype=object))
    assert "int64" in refused(unpack_schedule, archive(found | {"start.npy": pickled}))
    assert "int64" in refused(unpack_schedule, archive(found | {"start.npy": npy(np.zeros(2))}))
    assert ".npy file" in refused(unpack_schedule, archive(found | {"start.npy": b"?"}))
    assert "one entry a task" in refused(unpack_schedule, archive(found | {"start.npy": npy(np.array([2]))}))


def test_an_invalid_problem_is_refused_with_its_reason():
    """What the constructor refuses is refused here: an edge to a task that does not exist."""
    found = members(pack_problem(chain(2))) | {"dst.npy": npy(np.array([5]))}
    assert refused(unpack_problem, archive(found)) == "not a problem file: dst: 5 is out of range"
