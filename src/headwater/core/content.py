"""What an append stores: the body in stored form, its message count, and ids where needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Self

import msgspec

from headwater.core import json_mode
from headwater.core.errors import DuplicateIds, StreamError
from headwater.core.json_mode import MESSAGES_ANY
from headwater.core.live.profile import StateProtocol
from headwater.core.live.records import check_records
from headwater.core.producers import ProducerStamp
from headwater.core.retention import trim_due_after_append
from headwater.core.stream import Appended, MessageId, StreamConfig, StreamState
from headwater.core.unique_ids import Mode, check_id, find_ids, split_new

IsKnown = Callable[[str], bool]


def nothing_known(message_id: str) -> bool:
    return False


class Content(msgspec.Struct, frozen=True):
    body: bytes
    messages: int
    ids: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()
    """Where in the body each message with an id begins."""
    duplicates: int = 0
    message_id: str | None = None
    """The id that a header gives to the only message."""

    @classmethod
    def with_ids(cls, messages: Sequence[bytes], ids: tuple[str, ...], duplicates: int = 0) -> Self:
        """Messages in stored form, each with the separator after it."""
        starts = accumulate(map(len, messages[:-1]), initial=0)
        return cls(b"".join(messages), len(messages), ids, tuple(starts), duplicates)

    @classmethod
    def named(cls, body: bytes, message_id: str, *, is_unique: bool) -> Self:
        """A single message with the id from a header."""
        ids, starts = ((message_id,), (0,)) if is_unique else ((), ())
        return cls(body, 1, ids, starts, message_id=message_id)

    def without_duplicates(
        self, config: StreamConfig, is_known: IsKnown, mode: Mode | None = None
    ) -> Content:
        """Leave out messages whose ids the stream has, or refuse, as the stream is configured."""
        rule = config.unique_ids
        assert rule is not None
        new, duplicates = split_new(self.ids, is_known)
        if not duplicates:
            return self
        if (mode or rule.mode) == "fail":
            raise DuplicateIds(duplicates)
        if not new:
            return Content(b"", 0, duplicates=len(duplicates))
        ends = (*self.starts[1:], len(self.body))
        messages = [self.body[self.starts[index] : ends[index]] for index in new]
        return Content.with_ids(messages, tuple(self.ids[i] for i in new), len(duplicates))

    def append_to(
        self,
        state: StreamState,
        at_ms: int,
        producer: ProducerStamp | None = None,
        stream_seq: str | None = None,
    ) -> Appended:
        ids: tuple[MessageId, ...] = ()
        if self.ids:
            tail = state.tail
            ids = tuple(
                MessageId(message_id, tail + start)
                for message_id, start in zip(self.ids, self.starts, strict=True)
            )
        return Appended(
            state.config.id,
            state.tail,
            self.body,
            state.messages,
            self.messages,
            at_ms,
            producer,
            stream_seq,
            ids,
            self.message_id,
            trim_due_after_append(state.config.retention, state.trim_due_ms, at_ms),
        )


NO_CONTENT = Content(b"", 0)


def read_content(
    config: StreamConfig,
    body: bytes,
    message_id: str | None,
    *,
    creating: bool = False,
    messages_max: int = MESSAGES_ANY,
) -> Content:
    """Check a request body and bring it into stored form."""
    if config.is_json:
        stored, count = json_mode.encode(body, allow_empty=creating, messages_max=messages_max)
    else:
        stored, count = body, 1
    if isinstance(config.profile, StateProtocol) and count:
        check_records(stored, config.profile.touch.on_missing_before)
    rule = config.unique_ids
    if count == 0 or (rule is None and message_id is None):
        return Content(stored, count)
    if rule is not None and rule.pointer is not None:
        messages = json_mode.decode(stored)
        ids = tuple(find_ids(rule.pointer, messages))
        return Content.with_ids([message + b"," for message in messages], ids)
    return Content.named(stored, check_id(message_id, count), is_unique=rule is not None)


class Prepared(msgspec.Struct, frozen=True):
    """A body parsed before the decision, which may turn out to be about another stream."""

    config: StreamConfig
    outcome: Content | StreamError

    @classmethod
    def of(
        cls,
        config: StreamConfig,
        body: bytes,
        message_id: str | None,
        messages_max: int,
        creating: bool = False,
    ) -> Prepared:
        try:
            return cls(
                config,
                read_content(
                    config, body, message_id, creating=creating, messages_max=messages_max
                ),
            )
        except StreamError as error:
            return cls(config, error)

    def fits(self, config: StreamConfig) -> bool:
        """Whether a stream of this configuration would parse the body in the same way."""
        return self.config is config or (
            self.config.is_json == config.is_json
            and self.config.unique_ids == config.unique_ids
            and self.config.profile == config.profile
        )

    def content(self) -> Content:
        if isinstance(self.outcome, StreamError):
            raise self.outcome
        return self.outcome
