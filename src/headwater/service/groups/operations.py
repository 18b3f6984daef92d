"""The groups of all streams: changing and using them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import msgspec

from headwater.core.content_types import JSON, is_json
from headwater.core.decisions import Create
from headwater.core.errors import (
    ConfigConflict,
    GroupConflict,
    GroupNotFound,
    InvalidBody,
    InvalidOffset,
    StreamError,
    UnknownOffset,
)
from headwater.core.groups import decisions
from headwater.core.groups.config import ALL_SETTINGS, GroupConfig, Wanted, parse_place
from headwater.core.groups.mutations import GroupCreated, GroupDeleted
from headwater.core.groups.state import GroupRecord, GroupState, MessageRef
from headwater.core.paths import check_path, check_segment
from headwater.core.retention import locate
from headwater.service.entries import Entry, View
from headwater.service.groups.group import Group
from headwater.service.groups.registry import GroupRegistry, StreamGroups
from headwater.service.replies import Reply

_GROUPS_PER_STREAM_MAX: Final = 10_000
_INFOS_PER_TURN: Final = 100


class GroupInfo(msgspec.Struct, frozen=True):
    """The state of a group, for people and dashboards."""

    name: str
    config: GroupConfig
    paused: bool
    position: str
    lag: int
    lag_bytes: int
    in_flight: int
    outstanding: int
    members: dict[str, int]
    oldest_unacked_age_ms: int


class Groups(GroupRegistry):
    """Operations on groups. Create it with `await Groups.start(log)`."""

    # ── Creating and changing ────────────────────────────────────────────────────────────────

    async def put(
        self, path: str, name: str, config: GroupConfig, named: Collection[str] = ALL_SETTINGS
    ) -> tuple[Group, bool]:
        """Create a group, or update its settings; True when it is new."""
        check_segment(name)
        wanted = Wanted(config, named)
        while True:
            stream = await self.of(path)
            group = stream.groups.get(name)
            if group is not None:
                if await self._reconfigure(group, wanted):
                    return group, False
                continue
            with stream.pinned():
                made = await self._create(stream, name, config)
            if made is not None:
                return made, True

    async def _create(self, stream: StreamGroups, name: str, config: GroupConfig) -> Group | None:
        """A new group; None if something changed meanwhile."""
        if len(stream.groups) >= _GROUPS_PER_STREAM_MAX:
            raise GroupConflict(f"a stream has at most {_GROUPS_PER_STREAM_MAX} groups")
        view = stream.entry.require_view()
        if config.order_by is not None and not is_json(view.config.content_type):
            raise InvalidBody("order_by points into JSON; this stream holds something else")
        await self._streams.together(lambda: self._prepare_dead_letters(stream.entry, config))
        cursor = await self.position(stream.entry, view, config.start)
        new_id = await self._streams.new_id("groups")
        if not stream.entry.shows(view):
            # The stream is being deleted or replaced, or has been.
            await self._streams.writer.reply_after(stream.entry, None)
            return None
        if not stream.complete or name in stream.groups:
            return None
        record = GroupRecord(new_id or self._next_id, stream.stream_id, name, self._streams.clock())
        self._next_id += 1
        group = self._group(GroupState(record, config, cursor), stream)
        try:
            created = group.submit([GroupCreated(record, config, cursor)], None)
        except StreamError as error:
            group.dismiss(error)
            raise
        stream.groups[name] = group
        await created
        self._watch(stream, group)
        return group

    async def _prepare_dead_letters(self, entry: Entry, config: GroupConfig) -> None:
        if config.dead_letter is None:
            return
        target = check_path(config.dead_letter)
        if target == entry.path:
            raise InvalidBody("dead_letter must be another stream than the group's own")
        # If it exists, or is being created, this only waits until that is certain.
        with suppress(ConfigConflict):
            await self._streams.create(Create(target, JSON), beside=entry)
        stream = self._streams.view(await self._streams.entry(target)).config
        if not stream.is_json or stream.unique_ids is not None:
            raise GroupConflict(
                "the dead-letter stream must hold application/json and not check ids"
            )

    async def _reconfigure(self, group: Group, wanted: Wanted) -> bool:
        """Whether the settings are now as requested; False if the group changed meanwhile."""
        before = group.state.config
        config = decisions.decide_put(group.state, wanted).reply
        await self._streams.together(lambda: self._prepare_dead_letters(group.entry, config))
        if group.gone or group.state.config != before:
            return False
        decision = decisions.decide_put(group.state, wanted)
        await group.submit(decision.mutations, None, durable=config.durable)
        group.kick()
        return True

    def _watch(self, stream: StreamGroups, group: Group) -> None:
        """An ephemeral group ends when its last member has been gone for a while."""
        if group.gone or group.state.config.durable:
            return
        timeout_ms = group.state.config.ack_timeout_ms
        idle_until_ms = group.last_seen_ms + timeout_ms
        if not group.waiters and self._streams.clock() >= idle_until_ms:
            group.dismiss(GroupNotFound(group.state.record.name))
            stream.groups.pop(group.state.record.name, None)
            return
        due_ms = max(idle_until_ms, self._streams.clock() + timeout_ms // 2)
        self._timers.at(due_ms, lambda: self._watch(stream, group))

    async def delete(self, path: str, name: str) -> None:
        group = await self.get(path, name)
        deleted = group.submit([GroupDeleted(group.state.record.id)], None)
        del self._by_path[path].groups[name]
        group.dismiss(GroupNotFound(name))
        await deleted

    async def pause(self, path: str, name: str, *, paused: bool) -> None:
        group = await self.get(path, name)
        await group.submit(decisions.decide_pause(group.state, paused=paused), None)
        group.kick()

    async def seek(self, path: str, name: str, to: str) -> None:
        while True:
            group = await self.get(path, name)
            view = self._streams.view(group.entry)
            cursor = await self.position(group.entry, view, to)
            # During the look-up, the group may have been deleted or reloaded.
            if not group.gone:
                break
        await group.submit(decisions.decide_seek(group.state, cursor), None)
        group.kick()

    async def position(self, entry: Entry, view: View, start: str) -> MessageRef:
        """Where a group begins: at the first message, after the last, or in between."""
        anchor, skip = parse_place(start)
        position = await self._streams.boundary(view, locate(view.config, anchor, view.tail))
        number = view.messages
        if position == 0:
            number = 0
        elif position < view.tail:
            number = await self._streams.message_number(entry, position)
        if skip == 0:
            return MessageRef(number, position, 0)
        if not view.config.is_json:
            raise InvalidOffset("only a stream of JSON has messages to skip after an offset")
        if number + skip > view.messages:
            raise UnknownOffset(start)
        return MessageRef(number + skip, *await self._streams.find_message(view, number + skip))

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    async def streams(self, after: int, limit: int) -> list[tuple[int, str | None]]:
        """Streams that have groups by id, with their paths; None for those being deleted.

        Ephemeral groups count too.
        """
        engine = self._streams.engine
        stored = await self._streams.in_thread(engine.groups.streams, after, limit)
        loaded = (stream.stream_id for stream in self._by_path.values() if stream.groups)
        ids = sorted({*stored, *(one for one in loaded if one > after)})[:limit]
        paths = await self._streams.in_thread(lambda: [engine.streams.path_of(one) for one in ids])
        return list(zip(ids, paths, strict=True))

    async def info(self, group: Group) -> GroupInfo:
        """Information about a group, once it is committed.

        Otherwise an acknowledgement that shows in the lag could be lost in a crash, and what was
        published with it might not be readable yet.
        """
        return await self._once_committed(group, await self._info_now(group))

    async def infos(self, path: str) -> list[GroupInfo]:
        """All groups of a stream, which may be thousands, yielding to the loop in between."""
        stream = await self.of(path)
        replies: list[Reply[GroupInfo]] = []
        for group in list(stream.groups.values()):
            replies.append(self._once_committed(group, await self._info_now(group)))
            if not len(replies) % _INFOS_PER_TURN:
                await asyncio.sleep(0)
        return [await reply for reply in replies]

    def _once_committed(self, group: Group, info: GroupInfo) -> Reply[GroupInfo]:
        group.store_deliveries()
        return self._streams.writer.reply_after(group, info)

    async def _info_now(self, group: Group) -> GroupInfo:
        state, entry = group.state, group.entry
        view = self._streams.view(entry)
        oldest = group.oldest()
        start = oldest.ref.start if oldest else state.cursor.start
        age_ms = 0
        if start < view.tail:
            age_ms = max(0, self._streams.clock() - await self._streams.written_at(entry, start))
        return GroupInfo(
            name=state.record.name,
            config=state.config,
            paused=state.paused,
            position=_place(view, state.cursor),
            lag=group.lag,
            lag_bytes=view.tail - start,
            in_flight=state.in_flight,
            outstanding=len(state.outstanding),
            members={name: state.held.get(name, 0) for name in {*group.members, *state.held}},
            oldest_unacked_age_ms=age_ms,
        )


def _place(view: View, cursor: MessageRef) -> str:
    """The position of a group, in a form that a seek accepts."""
    offset = view.config.lineage.token_at(cursor.start)
    return f"{offset}/{cursor.place}" if cursor.place else offset
