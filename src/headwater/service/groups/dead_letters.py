"""Dead letters: messages that nobody could work on.

A message that is given up is appended to the group's dead-letter stream, with where it came from,
and leaves the group in the same transaction. While that stream takes nothing, the message stays.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Final

import msgspec
import structlog

from headwater.core import decisions
from headwater.core.content_types import JSON
from headwater.core.decisions import Append
from headwater.core.errors import StreamError
from headwater.core.groups import transitions
from headwater.core.groups.state import Outstanding
from headwater.service.groups.group import Group
from headwater.service.groups.messages import MessageReader
from headwater.service.log import Log
from headwater.service.timers import Timers
from headwater.service.writer import Effect

log = structlog.get_logger()

_AT_ONCE_MAX: Final = 100
_RETRY_MS: Final = 1_000


class DeadLetters:
    def __init__(self, streams: Log, reader: MessageReader, timers: Timers) -> None:
        self._streams = streams
        self._reader = reader
        self._timers = timers
        self._tasks: dict[Group, asyncio.Task[None]] = {}

    def __call__(self, group: Group) -> None:
        """See to the given up messages of a group; one run at a time."""
        if group not in self._tasks:
            self._tasks[group] = asyncio.get_running_loop().create_task(self._run(group))

    async def _run(self, group: Group) -> None:
        try:
            while group.state.given_up and not group.gone:
                await self._bury_some(group)
        except StreamError as error:
            log.warning(
                "dead_letter_failed",
                stream=group.entry.path,
                group=group.state.record.name,
                error=error.message,
            )
            self._timers.at(self._streams.clock() + _RETRY_MS, group.kick)
        else:
            group.kick()
        finally:
            # Before anything else can happen: the next one that is given up needs another run.
            del self._tasks[group]

    async def _bury_some(self, group: Group) -> None:
        state = group.state
        numbers = sorted(state.given_up)[:_AT_ONCE_MAX]
        messages = [state.outstanding[number] for number in numbers]
        letters = await self._letters(group, messages)
        target = state.config.dead_letter
        entry = await self._streams.entry(target) if target else None
        # Someone may have reset the group meanwhile.
        if group.gone or any(state.outstanding.get(m.ref.number) is not m for m in messages):
            return
        effects: list[Effect] = []
        if entry is not None:
            now_ms = self._streams.clock()
            dead_letters = decisions.require(entry.state, entry.path, now_ms)
            decision = decisions.decide_append(dead_letters, Append(letters, JSON), now_ms)
            self._streams.touch(entry, now_ms)
            effects = [(entry, mutation) for mutation in decision.mutations]
        effects += group.effects(transitions.settle(state, messages))
        if effects:
            await group.submit(effects, None, len(letters))
        group.figures.dead_letters += len(messages)

    async def _letters(self, group: Group, messages: list[Outstanding]) -> bytes:
        """The messages with their origin, as one JSON array."""
        if group.state.config.dead_letter is None:
            return b""
        entry = group.entry
        view = entry.require_view()
        found = await self._reader.at(entry, view, [message.ref for message in messages])
        limit = group.state.config.max_deliveries
        letters = []
        for message in messages:
            origin = {
                "stream": entry.path,
                "group": group.state.record.name,
                "offset": str(view.config.lineage.offset_at(message.ref.start)),
                "number": message.ref.number,
                "deliveries": message.deliveries,
                "reason": "max_deliveries" if limit and message.deliveries >= limit else "rejected",
            }
            data = found[message.ref.number]
            content = (
                {"value": msgspec.Raw(data)}
                if view.config.is_json
                else {"data": b64encode(data).decode()}
            )
            letters.append({"origin": origin, **content})
        return msgspec.json.encode(letters)
