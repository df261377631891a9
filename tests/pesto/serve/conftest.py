"""A client of a service with jobs that take no time."""

import pytest
from serving import serving


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path / "data") as (found, _):
        yield found
