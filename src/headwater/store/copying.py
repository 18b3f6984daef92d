"""Copying everything from one engine to another, table by table.

Engines with tables have the same ones, with the same columns (`headwater.store.rows`), so rows are
read here and written there: streams with their offsets, producers, message ids, groups and their
deliveries, subscriptions, snapshots, live templates, secrets, forks and deleted streams that are
still needed or kept. Ids that were assigned are not assigned again.

- The copy has both places to itself while it runs: no server may use them.
- The target is empty before, and complete or empty after. An interrupted copy starts over.
- Appends in history files become rows again, and the target seals them again. Files belong to one
  place: nothing tells one place when the other no longer needs them.
- Each append is verified against its checksum on the way. At the end the target is read back; every
  table must have as many rows as were read, and the same digest. A digest is the sum of the rows'
  digests, so it does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

import msgspec

from headwater.core.errors import DataCorrupt
from headwater.core.lineage import Span
from headwater.store import rows
from headwater.store.backup import Progress
from headwater.store.checksums import append_checksum
from headwater.store.engine.appends import Appends
from headwater.store.history.cold_segments import fetching
from headwater.store.rows import Row
from headwater.store.sql.extents import ExtentRow

# Row sizes vary; a batch is not much larger than this, unless a single row is.
_BATCH_BYTES: Final = 4 * 1024 * 1024
_BATCH_ROWS: Final = 1_000
_ROW_BYTES: Final = 200
_DIGEST_BYTES: Final = 16
_FRAME_BYTES: Final = 1024 * 1024
_MESSAGES_MAX: Final = 2**62
CACHE_BYTES: Final = 64 * 1024 * 1024
"""For history fetched from object storage during a copy."""

TABLES: Final[dict[str, str]] = {
    "streams": f"{rows.CREATED_COLUMNS}, closed_at, closed_by_id, closed_by_epoch, closed_by_seq,"
    " last_stream_seq, status, deleted_at, kept_until",
    "ops": rows.OP_COLUMNS,
    "producers": rows.PRODUCER_COLUMNS,
    "message_ids": "stream_id, message_id, position",
    "releases": "stream_id, start, until",
    "groups": rows.GROUP_COLUMNS,
    "deliveries": rows.DELIVERY_COLUMNS,
    "live_templates": "stream_id, template_id, spec, last_seen, ttl_ms",
    "snapshots": "stream_id, position, content_type, created_at, checksum, body",
    "subscriptions": rows.SUBSCRIPTION_COLUMNS,
    "subscription_links": rows.LINK_COLUMNS,
    "secrets": "kind, value, created_at",
}
"""The tables to copy, and their columns. Secrets are read in the order of their creation."""
COUNTED: Final = ("streams", "groups", "subscriptions")
"""The kinds of ids that are never reused."""

_encode = msgspec.msgpack.Encoder().encode


class CopyError(Exception):
    """The copy is not possible; the message is one line that says why."""


class Source(Protocol):
    """Where everything comes from."""

    def count(self, table: str) -> int: ...
    def rows(self, table: str) -> Iterator[Row]: ...
    def last_ids(self) -> dict[str, int]:
        """The last assigned id of each kind."""


class Target(Protocol):
    """Where everything goes. Nothing takes effect before `finish`."""

    def rows(self, table: str) -> Iterator[Row]: ...
    def insert(self, table: str, batch: list[Row]) -> None: ...
    def use_ids(self, last: dict[str, int]) -> None: ...
    def finish(self) -> None: ...


class Copied(NamedTuple):
    """What a copy has found and written."""

    rows: dict[str, int]
    size_bytes: int
    digest: str


class Tally:
    """The row count and digest of a table."""

    def __init__(self) -> None:
        self.count = self._sum = 0

    def add(self, row: Row) -> None:
        self.count += 1
        self._sum += int.from_bytes(blake2b(_encode(row), digest_size=_DIGEST_BYTES).digest())

    @property
    def digest(self) -> str:
        return f"{self._sum % (1 << 8 * _DIGEST_BYTES):0{2 * _DIGEST_BYTES}x}"


def copy(source: Source, target: Target) -> Iterator[Progress | Copied]:
    """Copy everything, read it back, and make it take effect."""
    total = sum(map(source.count, TABLES))
    tallies = {table: Tally() for table in TABLES}
    done = size_bytes = 0
    for table, tally in tallies.items():
        for batch in _batches(_checked(table, source.rows(table))):
            for row in batch:
                tally.add(row)
            target.insert(table, batch)
            done += len(batch)
            if table == "ops":
                size_bytes += sum(len(row[-1]) for row in batch)
            yield Progress(f"copying {table}", done, 2 * total)
    target.use_ids(source.last_ids())
    for table, tally in tallies.items():
        found = Tally()
        for row in target.rows(table):
            found.add(row)
            if found.count % _BATCH_ROWS == 0:
                yield Progress(f"reading back {table}", done + found.count, 2 * total)
        done += found.count
        if (found.count, found.digest) != (tally.count, tally.digest):
            raise CopyError(
                f"the copy is not what was read: {found.count:,} rows of {table} with digest "
                f"{found.digest} instead of {tally.count:,} with {tally.digest}; nothing was kept"
            )
    target.finish()
    whole = Tally()
    for table, tally in tallies.items():
        whole.add((table, tally.count, tally.digest))
    yield Copied({table: t.count for table, t in tallies.items()}, size_bytes, whole.digest)


def _checked(table: str, found: Iterator[Row]) -> Iterator[Row]:
    """Damaged data is not copied: a later reader could not tell where the damage happened."""
    if table != "ops":
        yield from found
        return
    for row in found:
        if not rows.op_is_intact(row):
            raise DataCorrupt(f"stream {row[0]} at {row[1]}")
        yield row


def _batches(found: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in found:
        batch.append(row)
        size += _ROW_BYTES + (len(row[-1]) if isinstance(row[-1], bytes) else 0)
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def sealed_rows(appends: Appends, extent: ExtentRow) -> Iterator[Row]:
    """The appends of an extent, as the rows it was made from."""
    run, position, number = extent.run, extent.start, extent.first_message
    while position < extent.until:
        span = Span(run, position, extent.until)
        for frame in fetching(partial(appends.frames, span, _FRAME_BYTES, _MESSAGES_MAX)):
            ids = frame.ids or [None] * frame.appends
            for place, body in enumerate(frame.bodies()):
                stamp = frame.stamps.stamp(place) if frame.stamps else None
                messages = frame.firsts[place + 1] - frame.firsts[place]
                start = frame.origin + frame.starts[place]
                checksum = append_checksum(run, start, body)
                about = run, start, number, messages, frame.times[place], checksum
                yield (*about, *(stamp or (None, None, None)), ids[place], body)
                number += messages
            position = frame.end
