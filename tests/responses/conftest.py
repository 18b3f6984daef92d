"""A server that may fetch from this machine, and an upstream there."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.responses.reader import Proxy
from tests.support.engines import serving
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

ALLOW = ("--proxy-allow", "http://127.0.0.1:*, http://localhost:*/v1/*")
# Long enough for a machine that is busy, short enough for tests that wait for it to be over.
HASTY = ("--proxy-head-timeout-ms", "1500", "--proxy-idle-timeout-ms", "1500")


@pytest.fixture(scope="session", params=["memory", "sqlite", "postgresql", "cluster"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def server(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(engine, tmp_path_factory.mktemp("responses"), *ALLOW) as process:
        yield process
        assert "Traceback" not in process.stderr, process.stderr


@pytest.fixture(scope="session")
def hasty_server() -> Iterator[ServerProcess]:
    """A server that loses patience soon, and takes little."""
    limits = ("--proxy-response-bytes-max", "300000", "--proxy-requests-per-caller-max", "3")
    with ServerProcess("--memory", *ALLOW, *HASTY, *limits) as process:
        yield process
        assert "Traceback" not in process.stderr, process.stderr


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Proxy]:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        yield Proxy(http)


@pytest.fixture
def hasty(hasty_server: ServerProcess) -> Iterator[Proxy]:
    with httpx.Client(base_url=hasty_server.url, timeout=60) as http:
        yield Proxy(http)
