"""Editors converge, whatever happens to the server, their connections and the snapshots.

Each edits at random, sends what it wrote with a producer until that is acknowledged, and reads what
the others wrote. Meanwhile the server, or one of three nodes after the other, is killed, requests
are cut, documents are compacted, and editors reload. In the end all have the same state, and so has
whoever joins.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
from pycrdt import Text

from headwater.core.documents.pending import parse_state
from tests.documents.editing import ROOT, Documents
from tests.documents.editor import Editor
from tests.support.cluster import SHORT_LEASE_MS, Cluster
from tests.support.postgresql import databases
from tests.support.server import ServerProcess

EDITS = {2: 120, 50: 8}
KILLS = 3
PATIENCE_S = 300
SETTINGS = ("--documents", "--documents-compact-bytes", "2000")


@contextmanager
def started(kind: str, directory: Path) -> Iterator[list[ServerProcess]]:
    """One server, or three nodes."""
    if kind == "sqlite":
        with ServerProcess("--data", str(directory / "data"), *SETTINGS) as server:
            yield [server]
    else:
        with (
            databases() as database,
            Cluster(database, *SETTINGS, lease_ms=SHORT_LEASE_MS) as cluster,
        ):
            yield cluster.nodes


@asynccontextmanager
async def killing(
    servers: Sequence[ServerProcess], editors: list[Editor], edits: int
) -> AsyncIterator[None]:
    """Kill a server each time that a share of all edits was made."""

    async def kill() -> None:
        for number, server in zip(range(1, KILLS + 1), itertools.cycle(servers), strict=False):
            due = number * edits // (KILLS + 1)
            while sum(one.typed for one in editors) < due:  # noqa: ASYNC110 - a figure, no event
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

    task = asyncio.create_task(kill())
    try:
        yield
        await task
    finally:
        task.cancel()


async def live(editor: Editor, edits: int) -> None:
    for _ in range(edits):
        await editor.step()


# httpx leaves a connection to the collector if a request is given up while it connects.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.crash
@pytest.mark.parametrize("kind, count", [("sqlite", 2), ("sqlite", 50), ("cluster", 2)])
async def test_editors_converge(kind: str, count: int, tmp_path: Path) -> None:
    rng = random.Random(count)
    with started(kind, tmp_path) as servers:
        documents = Documents(servers[0])
        path = documents.create()
        urls = [f"{server.url}{ROOT}/{path}" for server in servers]
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=60)) as http:
            editors = [Editor(http, urls, random.Random(rng.random())) for _ in range(count)]
            async with (
                asyncio.timeout(PATIENCE_S),
                killing(servers, editors, 2 * count * EDITS[count]),
            ):
                await asyncio.gather(*(live(one, EDITS[count]) for one in editors))
            # Everything is acknowledged; now everyone reads to the end.
            for editor in editors:
                await editor.send()
            for editor in editors:
                await editor.catch_up()
        # Here and now, not in some other test.
        gc.collect()
        states = [editor.state for editor in editors]
        assert all(state == states[0] for state in states)
        assert len({editor.shown for editor in editors}) == 1
        written = {k: v for editor in editors for k, v in editor.written.items()}
        assert written
        assert written.items() <= states[0].items()
        joined = await asyncio.to_thread(documents.load, path)
        assert parse_state(joined.get_state()) == states[0]
        assert str(joined.get("text", type=Text)) == editors[0].shown[0]
        async with asyncio.timeout(PATIENCE_S):
            # Compaction is never waited for, so it may still be at work.
            while "_snapshot" not in await asyncio.to_thread(documents.location, path):  # noqa: ASYNC110 - a figure, no event
                await asyncio.sleep(0.05)
        for server in servers:
            assert "Traceback" not in server.stderr
            assert "document_not_compacted" not in server.stderr
