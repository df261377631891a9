import errno
import gzip
import os
import stat
import tempfile
from pathlib import Path

import pytest

from pesto.core.errors import Exit, FileError, InputError
from pesto.core.files.disk import MAX_RATIO, check_writable, gzipped, read_bytes, write_atomic

STEPS = ["open", "fchmod", "write", "fsync", "close", "replace"]
CODES = [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT]
NEW = b"new" * (1 << 20)  # three chunks, so that a write in the middle can fail


def fail_at(monkeypatch, step: str, code: int, nth: int = 1) -> list[int]:
    """Let the nth call of os.<step> raise OSError; returns a list that counts the calls."""
    real, calls = getattr(os, step), []

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == nth:
            if step == "close":
                real(*args, **kwargs)  # as on Linux: the descriptor is gone even when close fails
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, step, failing)
    return calls


@pytest.fixture
def protected():
    """A folder that the process may read but not write, also when the tests run as root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "there").write_bytes(b"old")
        folder.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        yield folder
        os.seteuid(user)
        folder.chmod(0o755)


def one_line(error: pytest.ExceptionInfo) -> str:
    """The message, which must be one line with a remedy after a dash."""
    text = str(error.value)
    assert "\n" not in text
    assert " - " in text
    return text


def test_writes_and_replaces(tmp_path):
    """A new file and an old one both end with the new content, and nothing else is left in the folder."""
    target = tmp_path / "plan.json"
    write_atomic(target, b"one")
    assert target.read_bytes() == b"one"
    write_atomic(target, b"")
    assert target.read_bytes() == b""
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_modes(tmp_path):
    """A new file gets the usual mode (0666 less the umask), an old one keeps its own."""
    old = os.umask(0o027)
    try:
        write_atomic(tmp_path / "new", b"x")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640  # 0666 & ~027
        (tmp_path / "new").chmod(0o604)
        write_atomic(tmp_path / "new", b"y")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604
    finally:
        os.umask(old)


def test_symbolic_link_is_followed(tmp_path):
    """The link stays a link, and what it points to is replaced; a dangling one creates its target."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/file")
    for content in (b"one", b"two"):
        write_atomic(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real" / "file").read_bytes() == content


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("existing", [True, False])
def test_failure_of_every_step_leaves_the_old_file(tmp_path, monkeypatch, step, code, existing):
    """Whichever call fails, the file is as before, no temporary file is left and the error says what to do."""
    target = tmp_path / "plan.json"
    if existing:
        target.write_bytes(b"old")
    elif step == "fchmod":
        pytest.skip("a new file is given no mode")
    with monkeypatch.context() as m:
        calls = fail_at(m, step, code)
        if step == "fchmod" and code == errno.EACCES:
            write_atomic(target, NEW)  # a mode that cannot be kept is no reason to lose a plan
        else:
            with pytest.raises(FileError) as error:
                write_atomic(target, NEW)
            assert one_line(error).startswith(f"cannot write {target}: {os.strerror(code).lower()} - ")
            assert error.value.exit_code == Exit.IO
            assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"] * existing
    assert calls


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_disk_fills_up_between_chunks(tmp_path, monkeypatch, nth):
    """Three MiB are written in three calls; a disk that is full at any of them leaves the old file alone."""
    target = tmp_path / "plan.json"
    target.write_bytes(b"old")
    with monkeypatch.context() as m:
        fail_at(m, "write", errno.ENOSPC, nth)
        with pytest.raises(FileError, match="no space left on device - free some space"):
            write_atomic(target, NEW)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_short_writes_are_completed(tmp_path, monkeypatch):
    """The system may write less than asked: the rest follows."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    write_atomic(tmp_path / "f", b"0123456789" * 10)
    assert (tmp_path / "f").read_bytes() == b"0123456789" * 10


@pytest.mark.parametrize(("code", "fails"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)])
def test_sync_of_the_folder(tmp_path, monkeypatch, code, fails):
    """A file system that cannot sync folders is no failure, a disk fault is; the new content is there either way."""
    fail_at(monkeypatch, "fsync", code, nth=2)
    if fails:
        with pytest.raises(FileError, match="the disk reports a fault"):
            write_atomic(tmp_path / "f", b"new")
    else:
        write_atomic(tmp_path / "f", b"new")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"new"]


def test_interrupt_cleans_up(tmp_path, monkeypatch):
    """Ctrl-C in the middle of a save leaves the old file and no temporary one."""
    (tmp_path / "f").write_bytes(b"old")

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "f", b"new")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def bad_targets(folder: Path) -> dict[str, str]:
    (folder / "loop").symlink_to("loop")
    (folder / "file").write_bytes(b"old")
    return {
        str(folder): "is a directory - name a file",
        str(folder / "no" / "f"): "no such file or directory - check the name",
        str(folder / "file" / "f"): "not a directory - a part of the name is a file",
        str(folder / ("n" * 256)): "file name too long - choose a shorter name",
        str(folder / "loop"): "too many levels of symbolic links - the symbolic links lead in a circle",
        str(folder / "a\0b"): "null byte - choose another name",
        str(folder / "no\nsuch\x1b[31m" / "f"): r"no\\nsuch\\x1b\[31m/f: no such file",
        "": "is a directory - name a file",
        "/proc/nothing-can-be-made-here": " - ",
    }


@pytest.mark.parametrize("act", [check_writable, lambda path: write_atomic(path, b"x")])
def test_bad_targets(tmp_path, act):
    """Both the early check and the save refuse every bad target with one line, and leave nothing."""
    for target, why in bad_targets(tmp_path).items():
        with pytest.raises(FileError, match=why) as error:
            act(target)
        one_line(error)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.parametrize("act", [check_writable, lambda path: write_atomic(path, b"x")])
@pytest.mark.parametrize("name", ["new", "there"])
def test_folder_that_may_not_be_written(protected, act, name):
    """Neither a new nor an old file in a read-only folder is written, and the check says so early."""
    with pytest.raises(FileError, match="permission denied - change the permissions"):
        act(protected / name)
    assert (protected / "there").read_bytes() == b"old"


def test_check_writable_leaves_no_trace(tmp_path):
    """The check makes nothing and changes nothing where it succeeds."""
    (tmp_path / "old").write_bytes(b"old")
    check_writable(tmp_path / "old")
    check_writable(tmp_path / "new")
    check_writable("/dev/null")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_check_writable_meets_a_full_disk(tmp_path, monkeypatch):
    """A disk without room for one block is found before the solve, and the probe is removed."""
    fail_at(monkeypatch, "write", errno.ENOSPC)
    with pytest.raises(FileError, match="no space left"):
        check_writable(tmp_path / "plan.json")
    assert not list(tmp_path.iterdir())


def test_devices_and_pipes():
    """/dev/full is an error, /dev/null is written to and survives, a pipe gets the bytes."""
    with pytest.raises(FileError, match="no space left on device"):
        write_atomic("/dev/full", b"x")
    write_atomic("/dev/null", b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    reader, writer = os.pipe()
    write_atomic(f"/dev/fd/{writer}", b"through")
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"through"


def test_reads_what_was_written(tmp_path):
    """Plain and packed bytes come back; gzip is known by its content, not its name."""
    data = bytes(range(256)) * 4000
    for content in (data, gzipped(data), gzip.compress(data), gzipped(data) + bytes(512)):
        write_atomic(tmp_path / "f", content)
        assert read_bytes(tmp_path / "f") == data
    assert gzipped(data) == gzipped(data)


def test_reads_a_pipe(tmp_path):
    """A pipe has no size in advance; all of it is read."""
    reader, writer = os.pipe()
    os.write(writer, b"x" * 5000)
    os.close(writer)
    assert read_bytes(f"/dev/fd/{reader}") == b"x" * 5000
    os.close(reader)


@pytest.mark.parametrize(("name", "why"), [("", "is a directory"), ("none", "no such file"), ("/dev/zero", "a device")])
def test_cannot_read(tmp_path, name, why):
    """What cannot be read at all is a FileError (exit 8)."""
    with pytest.raises(FileError, match=why) as error:
        read_bytes(tmp_path / name)
    one_line(error)


def test_size_limit(tmp_path):
    """Exactly the limit is read and one byte more is refused, for plain and for packed bytes."""
    for pack in (bytes, gzipped):
        (tmp_path / "f").write_bytes(pack(b"ab" * 50))
        assert read_bytes(tmp_path / "f", limit=100) == b"ab" * 50
        (tmp_path / "f").write_bytes(pack(b"ab" * 50 + b"c"))
        with pytest.raises(InputError, match="larger than 100 bytes - "):
            read_bytes(tmp_path / "f", limit=100)


def test_gzip_bomb(tmp_path):
    """16 MiB of zeros pack to about 16 KiB, a ratio near 1000; they are refused beyond 200."""
    bomb = gzipped(bytes(16 << 20))
    assert len(bomb) * MAX_RATIO < 16 << 20
    (tmp_path / "f").write_bytes(bomb)
    with pytest.raises(InputError, match="more than 200 times") as error:
        read_bytes(tmp_path / "f")
    one_line(error)


def test_damaged_gzip(tmp_path):
    """Every prefix of gzip data, a flipped bit and something appended are refused, never read in part."""
    packed = gzipped(b"hello, graph" * 20)
    flipped = packed[:15] + bytes([packed[15] ^ 4]) + packed[16:]
    for bad in (*[packed[:k] for k in range(2, len(packed))], flipped, packed + b"x", packed + packed):
        (tmp_path / "f").write_bytes(bad)
        with pytest.raises(InputError, match=" - ") as error:
            read_bytes(tmp_path / "f")
        assert error.value.exit_code == Exit.INPUT
