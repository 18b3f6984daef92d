"""Administration around following a database: set up, inspect, clean up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from headwater.postgres.catalog import Catalog, PublishedTable, Slot, check_slot_name
from headwater.postgres.connection import Database
from headwater.postgres.errors import NotPrepared, SlotInUse
from headwater.postgres.plan import ensure_publication

# PostgreSQL needs a moment to notice that a reader is gone.
SLOT_PATIENCE_S: Final = 3.0
_LOOK_INTERVAL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a slot and its publication."""

    slot: Slot | None
    has_publication: bool
    tables: list[PublishedTable]


async def set_up(
    database: Database, *, slot: str, publication: str, tables: list[str], full: bool
) -> Status:
    """Create the publication and the slot if they are missing; with `full`, old rows are logged."""
    check_slot_name(slot)
    async with _catalog(database) as catalog:
        await catalog.check()
        if tables and await catalog.has_publication(publication):
            raise NotPrepared(
                f"the publication {publication!r} exists; change its tables with ALTER "
                "PUBLICATION, or leave --table out"
            )
        await ensure_publication(catalog, publication, slot=slot, tables=tables, create=True)
        if full:
            for published in await catalog.published(publication):
                if published.identity != "f":
                    await catalog.set_full_identity(published)
        if await catalog.slot(slot) is None:
            await catalog.create_slot(slot)
        return await _status(catalog, slot, publication)


async def status(database: Database, *, slot: str, publication: str) -> Status:
    """Inspect, without changing anything."""
    async with _catalog(database) as catalog:
        return await _status(catalog, slot, publication)


async def drop(database: Database, *, slot: str, publication: str) -> Status:
    """Remove slot and publication; returns the state before."""
    async with _catalog(database) as catalog:
        before = await _status(catalog, slot, publication)
        deadline = time.monotonic() + SLOT_PATIENCE_S
        while before.slot is not None and before.slot.active and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            before = await _status(catalog, slot, publication)
        if before.slot is not None and before.slot.active:
            raise SlotInUse(
                f"the slot {slot!r} is in use by process {before.slot.pid} of PostgreSQL; stop "
                "its reader first"
            )
        if before.slot is not None:
            await catalog.drop_slot(slot)
        await catalog.drop_publication(publication)
        return before


@asynccontextmanager
async def _catalog(database: Database) -> AsyncIterator[Catalog]:
    catalog = await Catalog.open(database)
    try:
        yield catalog
    finally:
        await catalog.close()


async def _status(catalog: Catalog, slot: str, publication: str) -> Status:
    return Status(
        await catalog.slot(slot),
        await catalog.has_publication(publication),
        await catalog.published(publication),
    )
