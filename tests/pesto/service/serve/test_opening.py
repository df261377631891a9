"""What a service is not begun with: a folder or port of another, data that is not its own, bounds that are none."""

import sqlite3

import pytest
from click.testing import CliRunner
from fake_jobs import FakeJobs

from pesto.cli.main import pesto as command
from pesto.core.errors import FileError, UsageError
from pesto.service.serve.serve_config import JobBounds, ServeConfig, configured
from pesto.service.serve.server import listening, opened
from pesto.service.serve.store.sqlite_file import FILE


def test_one_server_a_folder_and_one_a_port(tmp_path):
    config = ServeConfig(port=0)
    again = opened(tmp_path, config, FakeJobs)
    with opened(tmp_path, config, FakeJobs), pytest.raises(UsageError, match="another server"), again:
        pass
    with listening(config, tmp_path) as bound, pytest.raises(FileError, match=r"in use - give another --port"):
        listening(ServeConfig(port=bound.getsockname()[1]), tmp_path)
    with pytest.raises(UsageError, match="token add"):
        listening(ServeConfig(host="0.0.0.0"), tmp_path)  # noqa: S104


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("PRAGMA user_version = 99", "version 99, .* use the newer pesto"),
        ("CREATE TABLE mine (x)", "no data of this service"),
    ],
)
def test_data_of_another_version_or_program_is_left_as_it_is(tmp_path, made, why):
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute(made)
    other.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(UsageError, match=f"{why}.* give another --data"), opened(tmp_path, ServeConfig(), FakeJobs):
        pass
    assert (tmp_path / FILE).read_bytes() == before


def test_bounds_of_a_configuration():
    with pytest.raises(UsageError, match="workers is 0"):
        ServeConfig(workers=0)
    with pytest.raises(UsageError, match="rss_gib is -1"):
        ServeConfig(job=JobBounds(rss_gib=-1.0))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[job]\nnodes = 3000000000", "nodes is 3000000000 - give 2147483647 at most"),
        ("workers = 1000000000", "workers is 1000000000 - give 4096 at most"),
        ("[job]\nrss_gib = 1e300", "rss_gib is 1e"),
    ],
)
def test_numbers_that_no_server_can_use_are_refused(tmp_path, text, why):
    """More ops than a job can say would fail each job, and so would more bytes than a message can."""
    (tmp_path / "serve.toml").write_text(text)
    with pytest.raises(UsageError, match=why):
        configured(tmp_path / "serve.toml")


def test_a_folder_that_a_server_makes_is_its_users_alone(tmp_path):
    """It has uploads and jobs of everybody, whom tokens keep apart; one that is there keeps its permissions."""
    for name in ("server", "token", "above/token"):
        if name == "server":
            with opened(tmp_path / name, ServeConfig(), FakeJobs):
                pass
        else:
            words = ["serve", "token", "add", "ann", "--data", str(tmp_path / name)]
            assert CliRunner().invoke(command, words, standalone_mode=False).exception is None
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o750)
    with opened(tmp_path / "shared", ServeConfig(), FakeJobs):
        pass
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o750
