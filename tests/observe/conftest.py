"""A server for all tests of how a server is watched and looked after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import ServerProcess


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with ServerProcess("--memory", "--documents") as process:
        yield process
