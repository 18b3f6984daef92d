"""What changes need before they can flow, and what may be created.

| slot | the stream's last record | what happens |
| --- | --- | --- |
| any | part of an unfinished snapshot | the snapshot is taken again, with a new slot |
| there | any other | continue after it |
| there | none, snapshot wanted | refused: only a new slot comes with a snapshot |
| missing | none | it is created, if that was asked for, with a snapshot if wanted |
| missing | any other | refused, unless a snapshot is wanted: changes in between are lost |

A slot that has lost changes is always refused, and so is a stream that is ahead of PostgreSQL: it
was fed by another server, or by this one before it was reset to an earlier state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.postgres.catalog import Catalog, check_slot_name
from headwater.postgres.errors import NotPrepared, SlotInUse, SlotLost, StreamUnfit
from headwater.postgres.feed import Feed
from headwater.postgres.position import format_lsn
from headwater.postgres.sink import Sink
from headwater.postgres.snapshot import Snapshot

DEFAULT_NAME = "headwater"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a follower is asked for.

    Attributes:
        stream: the path of the stream.
        slot: the replication slot; it remembers how far PostgreSQL was read.
        publication: the publication; it says whose changes are sent.
        tables: the tables of a new publication; all tables if there are none.
        create: whether to create the stream, the publication and the slot if they are missing.
        snapshot: whether a new slot is to be preceded by the rows that are there.
    """

    stream: str
    slot: str = DEFAULT_NAME
    publication: str = DEFAULT_NAME
    tables: tuple[str, ...] = ()
    create: bool = False
    snapshot: bool = False


async def prepare(
    wanted: Wanted, catalog: Catalog, feed: Feed, sink: Sink, say: Callable[[str], None]
) -> None:
    """Prepare everything that `Feed.start` needs."""
    check_slot_name(wanted.slot)
    if not await catalog.try_lock(wanted.slot):
        raise SlotInUse(f"another `headwater postgres` works with the slot {wanted.slot!r}")
    await ensure_publication(
        catalog,
        wanted.publication,
        slot=wanted.slot,
        tables=wanted.tables,
        create=wanted.create,
    )
    last = await sink.find_last()
    here = await catalog.current_lsn()
    if last is not None and last.position.lsn > here:
        raise StreamUnfit(
            f"the stream {wanted.stream!r} reaches to {format_lsn(last.position.lsn)}, but "
            f"PostgreSQL only to {format_lsn(here)}: it was fed from another server, or this one "
            "was set back; choose another stream"
        )
    if await _needs_slot(wanted, catalog, sink):
        say(f"creating the slot {wanted.slot}; this waits for transactions that are open now")
        if wanted.snapshot or (last and last.unfinished_slot is not None):
            snapshot = Snapshot(
                catalog.database, catalog, sink, slot=wanted.slot, publication=wanted.publication
            )
            await snapshot.take(feed, say)
        else:
            await catalog.create_slot(wanted.slot)


async def ensure_publication(
    catalog: Catalog, name: str, *, slot: str, tables: Sequence[str], create: bool
) -> None:
    """Make sure that a publication exists, and is older than the slot.

    PostgreSQL looks it up as of the time that it decodes, and fails if it did not exist then.
    """
    if await catalog.has_publication(name):
        return
    if not create:
        raise NotPrepared(
            f"there is no publication {name!r}; --create makes one, and so does "
            "`headwater postgres setup`"
        )
    if await catalog.slot(slot) is not None:
        raise NotPrepared(
            f"the publication {name!r} is gone, and PostgreSQL cannot use a new one for what the "
            f"slot {slot!r} still holds; remove the slot with `headwater postgres drop`, and "
            "follow with --create --snapshot"
        )
    await catalog.create_publication(name, tables)


async def _needs_slot(wanted: Wanted, catalog: Catalog, sink: Sink) -> bool:
    """Whether a slot has to be created; raises if that would not be enough."""
    slot = await catalog.slot(wanted.slot)
    last = sink.last
    if last is not None and last.unfinished_slot is not None:
        if last.unfinished_slot != wanted.slot:
            raise StreamUnfit(
                f"the stream {wanted.stream!r} has an unfinished snapshot from another slot, "
                f"{last.unfinished_slot!r}; use that one, or another stream"
            )
        return True
    if slot is not None:
        if slot.plugin != "pgoutput":
            raise NotPrepared(
                f"the slot {wanted.slot!r} is not for pgoutput; choose another --slot"
            )
        if slot.is_lost:
            raise SlotLost(
                f"PostgreSQL no longer has what the slot {wanted.slot!r} needs, so changes are "
                "lost; `headwater postgres drop` it, and follow with --create --snapshot to go on "
                "from a new picture (max_slot_wal_keep_size limits what is kept)"
            )
        if wanted.snapshot and last is None:
            raise NotPrepared(
                f"a snapshot needs a new slot, but {wanted.slot!r} exists; choose another --slot, "
                "or remove it with `headwater postgres drop` if nobody needs it"
            )
        return False
    if not wanted.create:
        raise NotPrepared(
            f"there is no slot {wanted.slot!r}; --create makes one, and so does "
            "`headwater postgres setup`"
        )
    if last is not None and not wanted.snapshot:
        raise StreamUnfit(
            f"the stream {wanted.stream!r} reaches to {format_lsn(last.position.lsn)}, but its "
            f"slot {wanted.slot!r} is gone, so what was changed since then is lost; --snapshot "
            "goes on from a new picture"
        )
    return True
