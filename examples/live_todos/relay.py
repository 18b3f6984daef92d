"""Sends the outbox to the stream: every transaction once, in the order of the commits.

The number of a transaction in the outbox is its sequence number as a producer, so the server knows
what it has already. A relay that was killed between an append and the note that it is done appends
it again, and the server stores nothing twice. Even two relays at once would do no harm.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from examples.live_todos.database import Database
from headwater.client import AsyncHeadwater, HeadwaterError

# Other processes may write as well, and cannot ring the bell.
POLL_S: Final = 0.5
RETRY_S: Final = 0.2


class Relay:
    def __init__(self, client: AsyncHeadwater, path: str, database: Database) -> None:
        self._client = client
        self._path = path
        self._database = database
        self._name = database.name()
        self._bell = asyncio.Event()

    def ring(self) -> None:
        """Something was committed."""
        self._bell.set()

    async def run(self) -> None:
        while True:
            self._bell.clear()
            while await self.send_some():
                pass
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._bell.wait()

    async def send_some(self) -> int:
        """Send what waits, one transaction after the other; returns how many."""
        unsent = await asyncio.to_thread(self._database.unsent)
        for number, records in unsent:
            await self._append(number, records)
            await asyncio.to_thread(self._database.sent, number)
        return len(unsent)

    async def _append(self, number: int, records: list[dict[str, Any]]) -> None:
        """The records of one transaction in one append: all of them are there, or none."""
        producer = {
            "Producer-Id": self._name,
            "Producer-Epoch": "0",
            "Producer-Seq": str(number - 1),
        }
        while True:
            try:
                await self._client.request(
                    "POST", f"/v1/stream/{self._path}", json=records, headers=producer
                )
                return
            except HeadwaterError as error:
                # The server is away, or the answer was lost. A refusal would be a bug of ours.
                if getattr(error, "status", 503) < 500:
                    raise
                await asyncio.sleep(RETRY_S)
