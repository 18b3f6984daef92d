"""Engines by name, and servers with them, for tests that run over several.

- `memory` and `sqlite`;
- `files`: SQLite with every append in a file from the beginning, as if it were large;
- `history`: SQLite with everything sealed almost at once and read from there;
- `postgresql`, on an empty database;
- `cluster`: three nodes on such a database, and a random one of them for every request.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

import pytest

from headwater.store.engine import Engine
from headwater.store.history import large_appends
from headwater.store.memory.engine import MemoryEngine
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.cluster import Cluster, Gateway
from tests.support.postgresql import databases, postgresql_engine
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import ServerProcess

SERVED: Final = ("memory", "sqlite", "postgresql", *(["cluster"] * ("ANY_NODE" in os.environ)))
"""The engines for suites over HTTP. `cluster` only on request: it takes minutes."""


@contextmanager
def running(kind: str, directory: Path) -> Iterator[Engine]:
    """An empty engine. Closing it early does no harm."""
    with ExitStack() as stack:
        if kind == "postgresql":
            yield stack.enter_context(postgresql_engine())
        elif kind == "files":
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(large_appends, "LARGE_BYTES", 1)
            yield SqliteEngine(directory)
        else:
            yield MemoryEngine() if kind == "memory" else SqliteEngine(directory)


class Fronted(ServerProcess):
    """A cluster that looks like one server."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        super().__init__()
        self._gateway = Gateway([node.port for node in cluster.nodes])

    def __enter__(self) -> Self:
        self._gateway.__enter__()
        self.port = self._gateway.port
        return self

    def __exit__(self, *error: object) -> None:
        self._gateway.__exit__()

    @property
    def is_running(self) -> bool:
        return all(node.is_running for node in self._cluster.nodes)

    @property
    def stderr(self) -> str:
        return "".join(node.stderr for node in self._cluster.nodes)


@contextmanager
def serving(kind: str, directory: Path, *arguments: str) -> Iterator[ServerProcess]:
    """A server without data."""
    with ExitStack() as stack:
        if kind == "cluster":
            secret = ("--signing-secret-file", str(directory / "secret"))
            cluster = stack.enter_context(
                Cluster(stack.enter_context(databases()), *arguments, *secret)
            )
            yield stack.enter_context(Fronted(cluster))
            return
        if kind == "memory":
            place = ["--memory"]
        elif kind == "postgresql":
            place = ["--engine", stack.enter_context(databases()).url]
        else:
            place = ["--data", str(directory / "data")]
        if kind == "history":
            place += [*SEALING_AT_ONCE, "--hot-bytes-per-stream-max", "0"]
        yield stack.enter_context(ServerProcess(*place, *arguments))
