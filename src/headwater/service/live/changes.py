"""The changes of a live stream that are not derived yet, read from the log chunk by chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from headwater.core.limits import KIB
from headwater.core.live.records import read_records
from headwater.core.state_protocol import RawRecord
from headwater.service.chunks import Chunk
from headwater.service.following import FollowedStream

_SLICE_CHANGES: Final = 64
_READ_BYTES: Final = 256 * KIB


class Changes:
    def __init__(
        self,
        stream: FollowedStream,
        position: int,
        fetched: Callable[[], None],
        unreadable: Callable[[Exception], None],
    ) -> None:
        """`fetched` is called when a fetch brought more, `unreadable` if there cannot be any."""
        self._stream = stream
        self._position = position
        self._fetched = fetched
        self._unreadable = unreadable
        self._records: Iterator[RawRecord | None] | None = None
        self._chunk_end = position
        self._fetching: asyncio.Task[None] | None = None

    @property
    def is_fetching(self) -> bool:
        """Whether the next changes are being fetched from the log."""
        return self._fetching is not None

    def are_at_hand(self) -> bool:
        """Load the next changes; False if there are none or they are being fetched."""
        return self._records is not None or self._open_chunk()

    def take(self) -> list[RawRecord | None]:
        """A slice of the loaded changes."""
        assert self._records is not None
        records = [*islice(self._records, _SLICE_CHANGES)]
        if len(records) < _SLICE_CHANGES:
            self._records, self._position = None, self._chunk_end
        return records

    def skip(self, position: int) -> None:
        """Continue from a position, whatever was before."""
        self._position, self._records = position, None

    def _open_chunk(self) -> bool:
        view = self._stream.view
        if view is None or view.tail == self._position:
            return False
        chunk = self._stream.chunk_at(self._position, _READ_BYTES)
        if chunk is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
            return False
        self._read(chunk)
        return True

    def _read(self, chunk: Chunk) -> None:
        self._chunk_end = chunk.end
        self._records = (record for body in chunk.bodies for record in read_records(body))

    async def _fetch(self) -> None:
        try:
            self._read(await self._stream.read(self._position, _READ_BYTES))
        except Exception as error:
            self._unreadable(error)
        finally:
            self._fetching = None
        self._fetched()
