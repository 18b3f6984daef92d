"""Dead letters: messages that nobody could process.

A given-up message is appended to the group's dead-letter stream, together with its origin, and
leaves the group in the same transaction. If that stream is gone, it is created again. While the
stream refuses it, because it is closed, does not hold JSON or checks ids, the message stays in the
group and is retried later.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from headwater.core import decisions, json_mode
from headwater.core.content_types import JSON
from headwater.core.decisions import Append, Create
from headwater.core.errors import ConfigConflict, InvalidJson, StreamError
from headwater.core.groups.decisions import decide_settle
from headwater.core.groups.state import Outstanding
from headwater.core.limits import DEAD_LETTERS_BYTES_MAX
from headwater.core.pointers import pointer_steps
from headwater.core.stream import Appended, StreamConfig
from headwater.core.unique_ids import id_at
from headwater.service.background import Watch
from headwater.service.batches import Effect
from headwater.service.entries import Entry, View
from headwater.service.groups.group import Group
from headwater.service.groups.messages import MessageReader
from headwater.service.log import Log
from headwater.service.timers import Timers

log = structlog.get_logger()

_AT_ONCE_MAX: Final = 100
_RETRY_MS: Final = 1_000
_RETRY_DOUBLINGS_MAX: Final = 6


class DeadLetters:
    def __init__(self, streams: Log, reader: MessageReader, timers: Timers, watch: Watch) -> None:
        self._streams = streams
        self._watch = watch
        self._reader = reader
        self._timers = timers
        self._tasks: dict[Group, asyncio.Task[None] | None] = {}
        """Groups with dead letters to write; None while one waits for a retry."""
        self._failures: dict[Group, int] = {}

    def __call__(self, group: Group) -> None:
        """Write the given-up messages of a group; one run at a time."""
        if group not in self._tasks:
            self._tasks[group] = asyncio.get_running_loop().create_task(self._run(group))

    async def _run(self, group: Group) -> None:
        try:
            while group.state.given_up and not group.gone:
                await self._bury_some(group)
        except StreamError as error:
            self._try_later(group, error.message)
        except Exception as error:
            self._watch.failed(error)
            self._try_later(group, str(error))
        else:
            # Before anything else can happen: the next message given up needs another run.
            del self._tasks[group]
            self._failures.pop(group, None)
            self._watch.succeeded()
            group.kick()

    def _try_later(self, group: Group, problem: str) -> None:
        name = group.state.record.name
        log.warning("dead_letter_delayed", stream=group.entry.path, group=name, error=problem)
        failures = self._failures[group] = self._failures.get(group, 0) + 1
        self._tasks[group] = None

        def try_again() -> None:
            del self._tasks[group]
            if group.gone:
                self._failures.pop(group, None)
            group.kick()

        delay_ms = _RETRY_MS << min(failures - 1, _RETRY_DOUBLINGS_MAX)
        self._timers.at(self._streams.clock() + delay_ms, try_again)

    async def _bury_some(self, group: Group) -> None:
        state = group.state
        numbers = sorted(state.given_up)[:_AT_ONCE_MAX]
        messages = [state.outstanding[number] for number in numbers]
        letters: list[bytes] = []
        entry = None
        if state.config.dead_letter is not None:
            letters = await self._letters(group, messages)
            messages = messages[: len(letters)]
            path, beside = state.config.dead_letter, group.entry
            entry = await self._streams.together(lambda: self._target(path, beside))
        # The group may have been reset meanwhile.
        if group.gone or any(state.outstanding.get(m.ref.number) is not m for m in messages):
            return
        effects: list[Effect] = []
        if entry is not None:
            now_ms = self._streams.clock()
            dead_letters = decisions.require(entry.state, entry.path, now_ms)
            append = Append(b"[%b]" % b",".join(letters), JSON)
            decision = decisions.decide_append(dead_letters, append, now_ms)
            self._streams.touch(entry, now_ms)
            effects = [(entry, mutation) for mutation in decision.mutations]
        settled = decide_settle(state, messages)
        await group.submit(settled, None, effects, sum(map(len, letters)))
        group.figures.dead_letters += len(messages)

    async def _target(self, path: str, beside: Entry) -> Entry:
        entry = await self._streams.entry(path)
        if entry.state is None or entry.state.deleted:
            with suppress(ConfigConflict):
                await self._streams.create(Create(path, JSON), beside)
            entry = await self._streams.entry(path)
        return entry

    async def _letters(self, group: Group, messages: list[Outstanding]) -> list[bytes]:
        """Messages with their origin; not all of them if they are large."""
        entry = group.entry
        view = entry.require_view()
        refs = [message.ref for message in messages]
        found = await self._reader.at(entry, view, refs, DEAD_LETTERS_BYTES_MAX)
        appends = await self._reader.appends_of(view, refs)
        return [
            _letter(group, view, message, found[message.ref.number], appends.get(message.ref.start))
            for message in messages
            if message.ref.number in found
        ]


def _letter(
    group: Group, view: View, message: Outstanding, data: bytes, append: Appended | None
) -> bytes:
    exhausted = group.state.config.is_exhausted(message.deliveries)
    origin: dict[str, object] = {
        "stream": group.entry.path,
        "group": group.state.record.name,
        "offset": view.config.lineage.token_at(message.ref.start),
        "number": message.ref.number,
        "deliveries": message.deliveries,
        "reason": "max_deliveries" if exhausted else "rejected",
    }
    if append is not None:
        origin["time"] = append.at_ms
        if append.producer is not None:
            origin["producer"] = append.producer._asdict()
    message_id = _id_of(view.config, data, append)
    if message_id is not None:
        origin["id"] = message_id
    if view.config.is_json:
        letter = msgspec.json.encode({"origin": origin, "value": msgspec.Raw(data)})
        if _is_valid(letter):
            return letter
        # The data was just within the nesting limit; wrapped, it is beyond it.
    return msgspec.json.encode({"origin": origin, "data": b64encode(data).decode()})


def _id_of(config: StreamConfig, data: bytes, append: Appended | None) -> str | None:
    """The id inside a message, if its stream uses those, or the one it was sent with."""
    if config.unique_ids is not None and config.unique_ids.pointer is not None:
        found = id_at(data, pointer_steps(config.unique_ids.pointer))
        return None if found is None else str(found)
    return None if append is None else append.message_id


def _is_valid(letter: bytes) -> bool:
    try:
        json_mode.encode(b"[%b]" % letter)
    except InvalidJson:
        return False
    return True
