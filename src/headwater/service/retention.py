"""How much of its past a stream has to keep at this moment; see `headwater.core.retention`."""

from __future__ import annotations

from headwater.service.entries import View
from headwater.service.reading import ReadingLog


async def first_kept(log: ReadingLog, view: View) -> int:
    """The first position that a stream has to keep."""
    config, retention = view.config, view.config.retention
    position = config.kept_from
    if retention is None or position == view.tail:
        return position
    if retention.age_s is not None:
        position = await log.position_at_time(view, log.clock() - 1000 * retention.age_s)
    if retention.size_bytes is not None and view.tail - position > retention.size_bytes:
        position = await _first_within(log, view, view.tail - retention.size_bytes)
    needed = await log.in_thread(log.engine.groups.unsettled_from, config.id)
    return position if needed is None else min(position, needed)


async def _first_within(log: ReadingLog, view: View, position: int) -> int:
    """The first beginning of an append at or behind a position."""
    span = view.config.lineage.spans(position, view.tail)[0]
    append = await log.in_thread(log.engine.appends.append_at, span.run, position)
    if append is None:
        return view.config.kept_from
    return position if append.start == position else min(append.end, span.end)
