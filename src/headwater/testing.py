"""A server for your tests, in your own process.

With pytest there is nothing to set up; the package brings these fixtures along:

    def test_orders(headwater_client):
        orders = headwater_client.stream("orders")
        orders.ensure(content_type="application/json")
        orders.append({"id": 1})
        assert orders.read_json() == [{"id": 1}]

* `headwater_server`: a running server that is empty when the test begins;
* `headwater_url`: its address;
* `headwater_client`: a blocking client for it.

For anything else (another scope, another test framework) there is a context manager:

    with running_server() as server:
        print(server.url)

The server keeps everything in memory, listens on a free port of 127.0.0.1 and runs on a thread of
its own, so both blocking and async tests can use it. Starting one takes a few milliseconds.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

# Everything else is loaded when a server starts: pytest imports this module in every run, also
# where no test has any use for it.
if TYPE_CHECKING:
    from headwater.client import Headwater

_START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Where a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address to give to a client."""
        return f"http://{self.host}:{self.port}"

    def stream_url(self, path: str) -> str:
        """The address of a stream."""
        return f"{self.url}/v1/stream/{path}"


@contextmanager
def running_server(**settings: Any) -> Iterator[RunningServer]:
    """Run a server until the block ends.

    Settings are those of `headwater serve`, as in `running_server(long_poll_timeout_ms=100)`.
    Unless they say otherwise it keeps everything in memory, picks a free port, and does not wait
    for requests that are under way when it ends.
    """
    ready: Future[RunningServer] = Future()
    stop: list[Any] = []
    chosen = {"memory": True, "port": 0, "shutdown_grace_ms": 0, **settings}
    thread = threading.Thread(
        target=_run, args=(chosen, ready, stop), name="headwater-server", daemon=True
    )
    thread.start()
    try:
        yield ready.result(_START_TIMEOUT_S)
    finally:
        for end in stop:
            end()
        thread.join()


@pytest.fixture
def headwater_server() -> Iterator[RunningServer]:
    """A running Headwater server without any streams."""
    with running_server() as server:
        yield server


@pytest.fixture
def headwater_url(headwater_server: RunningServer) -> str:
    """The address of a running Headwater server."""
    return headwater_server.url


@pytest.fixture
def headwater_client(headwater_url: str) -> Iterator[Headwater]:
    """A blocking client for a running Headwater server."""
    from headwater.client import Headwater

    with Headwater(headwater_url) as client:
        yield client


def _run(settings: dict[str, Any], ready: Future[RunningServer], stop: list[Any]) -> None:
    """The body of the server's thread."""
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, ready, stop))
    except BaseException as error:
        if ready.done():
            raise
        ready.set_exception(error)


async def _serve(settings: dict[str, Any], ready: Future[RunningServer], stop: list[Any]) -> None:
    from headwater.cli.serving.server import listening, open_engine
    from headwater.settings import Settings

    class OnlyThese(Settings):
        """What the environment of the tests says about servers is not meant for this one."""

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: Any, init_settings: Any, *_: Any, **__: Any
        ) -> tuple[Any, ...]:
            return (init_settings,)

    chosen = OnlyThese(**settings)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with listening(chosen, open_engine(chosen)) as (_, port):
        stop.append(lambda: loop.call_soon_threadsafe(ended.set))
        ready.set_result(RunningServer(chosen.host, port))
        await ended.wait()
