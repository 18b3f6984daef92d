"""A server that may fetch from this machine, and an upstream there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.responses.reader import Proxy
from tests.support.engines import serving
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

ALLOW = ("--proxy-allow", "http://127.0.0.1:*, http://localhost:*/v1/*")
SMALL = ("--proxy-response-bytes-max", "300000", "--proxy-requests-per-caller-max", "3")


@pytest.fixture(scope="session", params=["memory", "sqlite", "postgresql", "cluster"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def server(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(engine, tmp_path_factory.mktemp("responses"), *ALLOW) as process:
        yield process
        assert "Traceback" not in process.stderr, process.stderr


@contextmanager
def at(*arguments: str) -> Iterator[Proxy]:
    """The proxy of a server of its own."""
    with ServerProcess("--memory", *ALLOW, *arguments) as process:
        with httpx.Client(base_url=process.url, timeout=60) as http:
            yield Proxy(http)
        assert "Traceback" not in process.stderr, process.stderr


@pytest.fixture(scope="session")
def small() -> Iterator[Proxy]:
    """A server that takes little."""
    with at(*SMALL) as proxy:
        yield proxy


# Only for those who wait for it to be over: on a busy machine all others would be too late as well.
@pytest.fixture(scope="session")
def hasty() -> Iterator[Proxy]:
    """A server that does not wait for heads."""
    with at("--proxy-head-timeout-ms", "300") as proxy:
        yield proxy


@pytest.fixture(scope="session")
def restless() -> Iterator[Proxy]:
    """A server that does not wait for more of a body."""
    with at("--proxy-idle-timeout-ms", "300") as proxy:
        yield proxy


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Proxy]:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        yield Proxy(http)
