"""Editors converge, whatever happens to the server, their connections and the snapshots.

Each edits at random, sends what it wrote with a producer until that is acknowledged, and reads what
the others wrote. Meanwhile the server is killed, requests are cut, documents are compacted, and
editors reload. In the end all have the same state, and so has whoever joins.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pycrdt import Doc, Map, Text

from headwater.core.documents.framing import frame
from headwater.core.documents.pending import parse_state
from tests.documents.editing import Documents, frames
from tests.support.server import ServerProcess

EDITS = {2: 120, 50: 8}
KILLS = 3
PATIENCE_S = 120
_producers = itertools.count()


class Editor:
    def __init__(self, http: httpx.AsyncClient, url: str, rng: random.Random) -> None:
        self._http = http
        self._url = url
        self._rng = rng
        self.typed = 0
        self.written: dict[int, int] = {}
        """How much was written before it reloaded, by the number that it had then."""
        self._begin()

    def _begin(self) -> None:
        self.doc: Doc[Any] = Doc()
        self._text, self._map = self.doc.get("text", type=Text), self.doc.get("map", type=Map)
        self._unsent: list[bytes] = []
        self._applying = False
        self._kept = self.doc.observe(self._changed)
        self._producer, self._seq = f"p-{next(_producers)}", 0
        self._offset = "-1"

    def _changed(self, event: Any) -> None:
        if not self._applying:
            self._unsent.append(event.update)

    @property
    def shown(self) -> tuple[str, str]:
        return str(self._text), str(sorted((self._map.to_py() or {}).items()))

    def edit(self) -> None:
        rng, text = self._rng, self._text
        length = len(str(text))
        kind = rng.random()
        if kind < 0.25 and length > 8:
            at = rng.randrange(length - 4)
            del text[at : at + rng.randint(1, 4)]
        elif kind < 0.4:
            self._map[f"k{rng.randrange(5)}"] = f"v{rng.randrange(100)}"
        else:
            text.insert(rng.randint(0, length), rng.choice(["lorem ", "ipsum ", "dolor "]))
        self.typed += 1

    async def send(self) -> None:
        """Until it is acknowledged: the same request is stored once, however often it is sent."""
        if not self._unsent:
            return
        body, self._unsent = b"".join(map(frame, self._unsent)), []
        stamp = {
            "Content-Type": "application/octet-stream",
            "Producer-Id": self._producer,
            "Producer-Epoch": "0",
            "Producer-Seq": str(self._seq),
        }
        answer = await self._request("POST", "", body, stamp)
        assert answer.status_code in (200, 204), answer.text
        self._seq += 1

    async def receive(self) -> bool:
        """One more chunk; says whether there is no more."""
        answer = await self._request("GET", f"?offset={self._offset}")
        assert answer.status_code == 200, answer.text
        self._apply(frames(answer.content))
        self._offset = answer.headers["Stream-Next-Offset"]
        return "Stream-Up-To-Date" in answer.headers

    async def reload(self) -> None:
        """Forget everything, and begin with the snapshot."""
        await self.send()
        self.written |= {
            client: clock
            for client, clock in parse_state(self.doc.get_state()).items()
            if client == self.doc.client_id
        }
        self._begin()
        while True:
            found = await self._request("GET", "?offset=snapshot")
            offset = found.headers["Location"].partition("offset=")[2]
            if offset == "-1":
                return
            answer = await self._request("GET", f"?offset={offset}")
            if answer.status_code == 200:
                self._apply([answer.content])
                self._offset = answer.headers["Stream-Next-Offset"]
                return
            assert answer.status_code == 404

    def _apply(self, updates: list[bytes]) -> None:
        self._applying = True
        for update in updates:
            self.doc.apply_update(update)
        self._applying = False

    async def _request(
        self, method: str, query: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> httpx.Response:
        while True:
            # Some are given up so soon that nobody knows whether they arrived.
            patience_s = self._rng.choice([0.001, 0.005, 30, 30, 30, 30])
            try:
                async with asyncio.timeout(patience_s):
                    answer = await self._http.request(
                        method, f"{self._url}{query}", content=body, headers=headers
                    )
                if answer.status_code < 429:
                    return answer
            except (httpx.TransportError, TimeoutError):
                pass
            await asyncio.sleep(0.02)


@asynccontextmanager
async def killing(server: ServerProcess, editors: list[Editor], edits: int) -> AsyncIterator[None]:
    """Kill the server each time that a share of all edits was made."""

    async def kill() -> None:
        for number in range(1, KILLS + 1):
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


async def live(editor: Editor, edits: int, rng: random.Random) -> None:
    for _ in range(edits):
        for _ in range(rng.randint(1, 3)):
            editor.edit()
        await editor.send()
        if rng.random() < 0.6:
            await editor.receive()
        if rng.random() < 0.05:
            await editor.reload()


# httpx leaves a connection to the collector if a request is given up while it connects.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.crash
@pytest.mark.parametrize("count", sorted(EDITS))
async def test_editors_converge(count: int, tmp_path: Path) -> None:
    rng = random.Random(count)
    with ServerProcess(
        *("--data", str(tmp_path / "data"), "--documents", "--documents-compact-bytes", "2000")
    ) as server:
        documents = Documents(server)
        path = documents.create()
        url = f"{server.url}/v1/yjs/notes/docs/{path}"
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=60)) as http:
            editors = [Editor(http, url, random.Random(rng.random())) for _ in range(count)]
            seeds = [random.Random(rng.random()) for _ in editors]
            async with (
                asyncio.timeout(PATIENCE_S),
                killing(server, editors, 2 * count * EDITS[count]),
            ):
                await asyncio.gather(
                    *(
                        live(one, EDITS[count], seed)
                        for one, seed in zip(editors, seeds, strict=True)
                    )
                )
            # Everything is acknowledged; now everyone reads to the end.
            for editor in editors:
                await editor.send()
            for editor in editors:
                while not await editor.receive():
                    pass
        # Here and now, not in some other test.
        gc.collect()
        states = [parse_state(editor.doc.get_state()) for editor in editors]
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
        assert "Traceback" not in server.stderr
        assert "document_not_compacted" not in server.stderr
