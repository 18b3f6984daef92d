"""Clearing a stream: all of its messages go, and the stream stays.

Groups are moved to where the stream ends first, so none of them is ever asked for a message that
is gone. What is appended meanwhile stays, for them as well. A group that is created in between may
have been given messages that then go: those are finished, as the group finds when it next works.
"""

from __future__ import annotations

from headwater.core.offsets import Offset
from headwater.service.groups.operations import Groups
from headwater.service.log import Log


async def clear(log: Log, groups: Groups, path: str) -> Offset:
    """Drop everything that is committed now; returns where the stream begins from then on."""
    # What was acknowledged before is dropped too, even if it is still on its way.
    entry = await log.entry(path)
    await log.writer.reply_after(entry, None)
    view = log.view(await log.entry(path))
    offset = view.config.lineage.offset_at(view.tail)
    for name in list((await groups.of(path)).groups):
        await groups.seek(path, name, str(offset))
    await log.clear(path, view.config.id, offset.position)
    return offset
