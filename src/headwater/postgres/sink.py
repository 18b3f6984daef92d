"""The stream that receives the changes: what it holds, and how to append exactly once.

The position to continue from is kept only in the stream's own last record. Everything after that
position is new, everything up to it is stored.

One uncertainty remains. An append of an earlier run, sent by a process that died or lost its
connection, may arrive after the last record was read. Two fences keep it from doing harm:

- Every run writes under its own producer epoch, higher than those before. Once the first append of
  a run is stored, the server refuses everything from earlier ones.
- The first append of a run holds only one unit, and its `Stream-Seq` is that unit's position. If
  something from an earlier run is stored after we read, it ends at this unit or after it, so the
  server refuses ours, and we read again. If ours is stored, nothing came in between.

Within a run, appends are numbered, sent one at a time, and may be retried.
"""

from __future__ import annotations

import time
from typing import Final

from headwater.client import (
    START,
    AsyncHeadwater,
    NotSupported,
    ProducerTag,
    SequenceConflict,
    StaleEpoch,
    StreamNotFound,
    TooLarge,
)
from headwater.client import Position as Place
from headwater.core.content_types import JSON, is_json, media_type
from headwater.postgres.buffer import Batch
from headwater.postgres.errors import StreamUnfit
from headwater.postgres.position import LastRecord, Position, format_lsn, read_record

# The default limit of a server. A body far beyond it would not even be answered.
RECORD_BYTES_MAX: Final = 64 << 20
# How many of the last messages to search for one of ours; then all of them.
_LOOKS: Final = (1, 100, 10_000)


class Overtaken(Exception):
    """Something that is not ours was stored: read the stream again before continuing."""


class Sink:
    """One stream, for one run."""

    def __init__(self, client: AsyncHeadwater, path: str, *, slot: str) -> None:
        self.path = path
        self._stream = client.stream(path)
        self._producer = f"postgres:{slot}"
        self._tag: ProducerTag | None = None
        self.last: LastRecord | None = None

    async def check(self, *, create: bool) -> None:
        """Make sure that the stream exists and can take changes."""
        try:
            info = await self._stream.head()
        except StreamNotFound:
            if not create:
                raise
            info = await self._stream.ensure(content_type=JSON)
        if not is_json(info.content_type):
            kind = media_type(info.content_type)
            raise StreamUnfit(
                f"the stream {self.path!r} holds {kind or 'something unknown'}, not JSON messages; "
                "choose another stream, or let --create make one"
            )
        if info.closed:
            raise StreamUnfit(f"the stream {self.path!r} is closed; choose another one")

    async def find_last(self) -> LastRecord | None:
        """Read from the stream how far it goes, and start a run there."""
        self._tag = None
        self.last = await self._look()
        return self.last

    @property
    def has_claimed(self) -> bool:
        """Whether this run has stored something, so that earlier ones no longer can."""
        return self._tag is not None

    async def append(self, batch: Batch) -> None:
        """Store a batch; the first one of a run must hold one unit."""
        assert batch.last is not None
        tag = self._tag
        following = ProducerTag(
            self._producer,
            tag.epoch if tag else time.time_ns() // 1_000_000,
            tag.seq + 1 if tag else 0,
        )
        try:
            await self._send(batch, following, batch.last)
        except StaleEpoch as error:
            if tag is not None or error.current_epoch is None:
                raise Overtaken("another run has taken over the stream") from error
            # An earlier run had a clock ahead of ours.
            following = ProducerTag(self._producer, error.current_epoch + 1, 0)
            await self._send(batch, following, batch.last)
        self._tag = following
        self.last = LastRecord(batch.last)

    async def _send(self, batch: Batch, tag: ProducerTag, last: Position) -> None:
        """Store a batch under a number; returns when it is stored, now or by an earlier attempt."""
        largest = max(map(len, batch.records))
        if largest > RECORD_BYTES_MAX:
            raise StreamUnfit(
                f"a change at {format_lsn(last.lsn)} makes a record of {largest:,} bytes, but at "
                f"most {RECORD_BYTES_MAX:,} fit into a stream; leave the column out of the "
                "publication, and go on with a new slot and a snapshot"
            )
        try:
            receipt = await self._stream.append_tagged(batch.records, tag, seq=last.token)
        except SequenceConflict as error:
            raise Overtaken(f"the stream does not take {format_lsn(last.lsn)}: {error}") from error
        except TooLarge as error:
            raise StreamUnfit(
                f"a change at {format_lsn(last.lsn)} makes a record of {largest:,} bytes, which is "
                f"more than the server takes: {error}; start it with a higher --body-bytes-max"
            ) from error

        if receipt.duplicate and tag.seq == 0:
            # Usually an attempt of ours whose answer was lost. But an epoch comes from a clock, and
            # clocks are set back: if another run had this same epoch, nothing of ours is stored.
            found = await self._look()
            if found is None or found.position != last:
                raise Overtaken(f"another run has had the epoch {tag.epoch}")

    async def _look(self) -> LastRecord | None:
        for count in _LOOKS:
            try:
                place = await self._stream.position(last=count)
            except NotSupported:
                break  # not a Headwater server
            last = await self._last_behind(place)
            if last is not None:
                return last
        return await self._last_behind(Place(START))

    async def _last_behind(self, place: Place) -> LastRecord | None:
        last = None
        async with self._stream.read(place) as reader:
            async for batch in reader:
                for message in reversed(batch.raw_messages() if batch else []):
                    found = read_record(message)
                    if found is not None:
                        last = found
                        break
        return last
