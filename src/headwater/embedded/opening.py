"""`headwater.open`: open a directory as a log, in async and in blocking code."""

from __future__ import annotations

from pathlib import Path

from headwater.client.sync.client import Headwater
from headwater.client.sync.portal import Portal
from headwater.core.limits import Limits
from headwater.embedded.log import EmbeddedLog
from headwater.embedded.parts import Parts
from headwater.store.engine import Engine
from headwater.store.memory.engine import MemoryEngine
from headwater.store.sqlite.engine import SqliteEngine


class Opening:
    """Opens a log in an `async with` block, or a blocking client in a `with` block."""

    def __init__(
        self, path: str | Path, *, memory: bool, limits: Limits | None, linger_ms: int
    ) -> None:
        self._path = Path(path)
        self._memory = memory
        self._limits = limits
        self._linger_ms = linger_ms
        self._log: EmbeddedLog | None = None
        self._blocking: BlockingLog | None = None

    async def start(self) -> EmbeddedLog:
        """Open it; `aclose` of the log closes it again."""
        engine: Engine = MemoryEngine() if self._memory else SqliteEngine(self._path)
        try:
            return EmbeddedLog(await Parts.start(engine, self._limits, linger_ms=self._linger_ms))
        except BaseException:
            engine.close()
            raise

    async def __aenter__(self) -> EmbeddedLog:
        self._refuse_twice()
        self._log = await self.start()
        return self._log

    async def __aexit__(self, *_: object) -> None:
        log, self._log = self._log, None
        if log is not None:
            await log.aclose()

    def __enter__(self) -> Headwater:
        self._refuse_twice()
        self._blocking = BlockingLog(self)
        return self._blocking

    def __exit__(self, *_: object) -> None:
        log, self._blocking = self._blocking, None
        if log is not None:
            log.close()

    def _refuse_twice(self) -> None:
        if self._log is not None or self._blocking is not None:
            raise RuntimeError("this log is open already; call headwater.open for another")


class BlockingLog(Headwater):
    """The log on its own event loop and thread."""

    def __init__(self, opening: Opening) -> None:
        self._portal = Portal()
        try:
            self._async = self._portal.call(opening.start())
        except BaseException:
            self._portal.finish(_nothing())
            raise


async def _nothing() -> None:
    """Only the loop has to end."""


def open(
    path: str | Path = "data",
    *,
    memory: bool = False,
    limits: Limits | None = None,
    linger_ms: int = 0,
) -> Opening:
    """The streams of a data directory, or in memory only.

    `async with` gives an `EmbeddedLog`; `with` gives the same as a blocking client, for code that
    is not async.

    Args:
        path: the data directory; it is made if it is not there. One process uses it at a time.
        memory: keep everything in memory, and nothing after the end.
        limits: how large things may get; those of a server by default.
        linger_ms: how long a commit may wait for others to join it.
    """
    return Opening(path, memory=memory, limits=limits, linger_ms=linger_ms)
