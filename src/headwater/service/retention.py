"""What the retention of a stream may drop; see `headwater.core.retention`."""

from __future__ import annotations

from headwater.core.decisions import Held
from headwater.service.entries import View
from headwater.service.seeking import SeekingLog


async def look(log: SeekingLog, view: View) -> Held | None:
    """The input of a decision about a stream's retention; None if it keeps everything."""
    config, retention = view.config, view.config.retention
    if retention is None:
        return None
    limit = config.kept_from
    moment_ms = retention.first_moment_ms(log.clock())
    if moment_ms is not None and limit < view.tail:
        limit = await log.position_at_time(view, moment_ms)
    position = retention.first_position(view.tail)
    if limit < position:
        limit = await _first_within(log, view, position)
    unsettled = await log.in_thread(log.engine.groups.unsettled_from, config.id)
    held = Held(view.tail, limit, unsettled)
    return held._replace(first_at_ms=await _written_at(log, view, held.first))


async def _first_within(log: SeekingLog, view: View, position: int) -> int:
    """The start of the first append at or after a position."""
    span = view.config.lineage.spans(position, view.tail)[0]
    append = await log.in_thread(log.engine.appends.outline_at, span.run, position)
    if append is None:
        return view.config.kept_from
    return position if append.start == position else min(append.end, span.end)


async def _written_at(log: SeekingLog, view: View, position: int) -> int | None:
    if position >= view.tail:
        return None
    span = view.config.lineage.spans(position, view.tail)[0]
    append = await log.in_thread(log.engine.appends.outline_at, span.run, position)
    return append.at_ms if append is not None else None
