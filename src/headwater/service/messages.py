"""Single messages of a stream, for those who work on them one by one."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core import json_mode
from headwater.core.groups.state import MessageRef
from headwater.core.stream import StreamConfig
from headwater.service.entries import Entry, View
from headwater.service.reading import ReadingLog


def split(config: StreamConfig, body: bytes) -> list[bytes]:
    """The messages of one append: JSON values, or the append as a whole."""
    return json_mode.decode(body) if config.is_json else [body]


class MessageReader:
    def __init__(self, log: ReadingLog) -> None:
        self._log = log

    async def following(
        self, entry: Entry, view: View, cursor: MessageRef, most: int
    ) -> tuple[list[tuple[MessageRef, bytes]], MessageRef]:
        """Messages from a cursor on, and the cursor behind them."""
        found: list[tuple[MessageRef, bytes]] = []
        while len(found) < most and cursor.start < view.tail:
            bodies = await self._bodies(entry, view, cursor.start)
            for body in bodies:
                messages = split(view.config, body)
                for message in messages[cursor.place :]:
                    if len(found) == most:
                        return found, cursor
                    found.append((cursor, message))
                    cursor = cursor._replace(number=cursor.number + 1, place=cursor.place + 1)
                cursor = MessageRef(cursor.number, cursor.start + len(body), 0)
        return found, cursor

    async def at(self, entry: Entry, view: View, refs: Sequence[MessageRef]) -> dict[int, bytes]:
        """The messages at given places, by number."""
        found: dict[int, bytes] = {}
        appends: dict[int, list[bytes]] = {}
        for ref in refs:
            if ref.start not in appends:
                bodies = await self._bodies(entry, view, ref.start)
                appends[ref.start] = split(view.config, bodies[0])
            found[ref.number] = appends[ref.start][ref.place]
        return found

    async def _bodies(self, entry: Entry, view: View, position: int) -> list[bytes]:
        chunk = self._log.chunk_at(view, position)
        if chunk is None:
            chunk = await self._log.read_cold(entry, view.config.lineage.offset_at(position))
        return chunk.bodies
