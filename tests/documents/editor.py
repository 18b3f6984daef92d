"""Someone who edits a document at random, and never gives up."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import httpx
from pycrdt import Doc, Map, Text

from headwater.core.documents.framing import frame
from headwater.core.documents.pending import parse_state
from tests.documents.editing import frames

_producers = itertools.count()


class Editor:
    """Has a document at one address, or at several: then each request goes to any of them."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str], rng: random.Random) -> None:
        self._http = http
        self._urls = urls
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
    def state(self) -> dict[int, int]:
        """How much it has of what everybody wrote, by their numbers."""
        return parse_state(self.doc.get_state())

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
        answer = await self.request("POST", "", body, stamp)
        assert answer.status_code in (200, 204), answer.text
        self._seq += 1

    async def receive(self) -> bool:
        """One more chunk; says whether there is no more."""
        answer = await self.request("GET", f"?offset={self._offset}")
        assert answer.status_code == 200, answer.text
        self._apply(frames(answer.content))
        self._offset = answer.headers["Stream-Next-Offset"]
        return "Stream-Up-To-Date" in answer.headers

    async def reload(self) -> None:
        """Forget everything, and begin with the snapshot."""
        await self.send()
        self.written |= {
            client: clock for client, clock in self.state.items() if client == self.doc.client_id
        }
        self._begin()
        while True:
            found = await self.request("GET", "?offset=snapshot")
            offset = found.headers["Location"].partition("offset=")[2]
            if offset == "-1":
                return
            answer = await self.request("GET", f"?offset={offset}")
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

    async def request(
        self, method: str, query: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> httpx.Response:
        while True:
            # Some are given up so soon that nobody knows whether they arrived.
            patience_s = self._rng.choice([0.001, 0.005, 30, 30, 30, 30])
            try:
                async with asyncio.timeout(patience_s):
                    answer = await self._http.request(
                        *(method, f"{self._rng.choice(self._urls)}{query}"),
                        content=body,
                        headers=headers,
                    )
                if answer.status_code < 429:
                    return answer
            except (httpx.TransportError, TimeoutError):
                pass
            await asyncio.sleep(0.02)

    async def step(self) -> None:
        """Change something, send it, and at times read on or begin anew."""
        for _ in range(self._rng.randint(1, 3)):
            self.edit()
        await self.send()
        if self._rng.random() < 0.6:
            await self.receive()
        if self._rng.random() < 0.05:
            await self.reload()

    async def catch_up(self) -> None:
        """Send all, and read to the end."""
        await self.send()
        while not await self.receive():
            pass
