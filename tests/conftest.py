"""Fixtures for every test: servers that are stopped when the test ends."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings

from tests.support import imports, java, seeds, turns
from tests.support.browser import Browser
from tests.support.postgresql import EngineDatabase, databases, stop_server
from tests.support.server import ServerProcess

# Before they are imported, so that a failed assertion in them shows its values.
pytest.register_assert_rewrite(
    "tests.http.client", "tests.http.contract", "tests.http.events", "tests.access.guests"
)

# No test asserts a time, and a busy machine is no reason to fail. See `tests.support.seeds` for the
# rest.
settings.register_profile(
    "patient",
    derandomize=not seeds.EXPLORED,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")

# Nor is a server at fault that does not get its turn for some seconds. httpx waits for five.
patience = DEFAULT_TIMEOUT_CONFIG
patience.connect = patience.read = patience.write = patience.pool = 60.0


def pytest_configure(config: pytest.Config) -> None:
    # In the background of a shell interrupts are ignored, and the processes that tests start and
    # interrupt would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Workers inherit it.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        place = Path(tempfile.mkdtemp(prefix="headwater-tests-java-"))
        config.add_cleanup(lambda: shutil.rmtree(place))
        if java.make_home(place / "home"):
            os.environ["JAVA_HOME"] = str(place / "home")


def pytest_report_header() -> str | None:
    if not seeds.EXPLORED:
        return None
    return f"to repeat the choices of this run: make explore SEED={seeds.EXPLORED}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return turns.workers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from tests.support.schedule import Schedule

    return Schedule(config, log) if config.getoption("dist") == "load" else None


def pytest_sessionstart(session: pytest.Session) -> None:
    imports.import_share(session.config)


# Last, so that other plugins have made their choice of the tests and of their order.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = turns.in_order(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with turns.turn(item):
        return (yield)


def pytest_unconfigure() -> None:
    stop_server()


class StartServer(Protocol):
    def __call__(self, *args: str, env: dict[str, str] | None = None) -> ServerProcess: ...


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Start as many servers as the test likes: ``start_server("--data", str(tmp_path))``."""
    with ExitStack() as stack:

        def start(*args: str, env: dict[str, str] | None = None) -> ServerProcess:
            return stack.enter_context(ServerProcess(*args, env=env))

        yield start


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    """A running server that keeps its streams in memory."""
    return start_server("--memory")


@pytest.fixture
def database() -> Iterator[EngineDatabase]:
    """A PostgreSQL database that holds nothing, for an engine."""
    with databases() as database:
        yield database


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real browser; skips where there is none."""
    with Browser() as browser:
        yield browser
