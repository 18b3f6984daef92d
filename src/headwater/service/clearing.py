"""Clearing a stream: drop all its messages, but keep the stream.

Groups are moved to the tail first, so none of them is ever asked for a dropped message. Messages
appended meanwhile stay, for the groups as well. A group created in between may have leased messages
that are then dropped: it settles them the next time it runs.
"""

from __future__ import annotations

from headwater.core.offsets import Offset
from headwater.service.groups.operations import Groups
from headwater.service.log import Log


async def clear(log: Log, groups: Groups, path: str) -> Offset:
    """Drop everything committed so far; returns where the stream now begins."""
    # This also drops what was acknowledged before but is not committed yet.
    entry = await log.entry(path)
    await log.writer.reply_after(entry, None)
    view = log.view(await log.entry(path))
    offset = view.config.lineage.offset_at(view.tail)
    for name in list((await groups.of(path)).groups):
        await groups.seek(path, name, str(offset))
    await log.clear(path, view.config.id, offset.position)
    return offset
