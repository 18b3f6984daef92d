"""Engines by name, and servers with them, for tests that run over several.

- `memory` and `sqlite`;
- `history`, which is SQLite with everything sealed almost at once and read from there;
- `postgresql`, on a database that is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headwater.store.engine import Engine
from headwater.store.memory.engine import MemoryEngine
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.postgresql import databases, postgresql_engine
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import ServerProcess


@contextmanager
def running(kind: str, directory: Path) -> Iterator[Engine]:
    """An engine that holds nothing. To close it before the end does no harm."""
    with ExitStack() as stack:
        if kind == "postgresql":
            yield stack.enter_context(postgresql_engine())
        else:
            yield MemoryEngine() if kind == "memory" else SqliteEngine(directory)


@contextmanager
def serving(kind: str, directory: Path, *arguments: str) -> Iterator[ServerProcess]:
    """A server that holds nothing."""
    with ExitStack() as stack:
        if kind == "memory":
            place = ["--memory"]
        elif kind == "postgresql":
            place = ["--engine", stack.enter_context(databases()).url]
        else:
            place = ["--data", str(directory / "data")]
        if kind == "history":
            place += [*SEALING_AT_ONCE, "--hot-bytes-per-stream-max", "0"]
        yield stack.enter_context(ServerProcess(*place, *arguments))
