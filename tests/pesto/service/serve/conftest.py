"""A client of a service with jobs that take no time, and a tab of a browser."""

import browser
import pytest
from serving import serving


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path / "data") as (found, _):
        yield found


@pytest.fixture(scope="module")
def tab():
    with browser.browser() as found:
        yield found
