"""What an append stores: the body in stored form, its messages counted, their ids where wanted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headwater.core import json_mode
from headwater.core.errors import DuplicateIds
from headwater.core.live.profile import StateProtocol
from headwater.core.live.records import check_records
from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended, MessageId, StreamConfig, StreamState
from headwater.core.unique_ids import Mode, find_ids, split_new

IsKnown = Callable[[str], bool]


def nothing_known(message_id: str) -> bool:
    return False


class Content(msgspec.Struct, frozen=True):
    body: bytes
    messages: int
    ids: tuple[str, ...] = ()
    duplicates: int = 0

    def without_duplicates(
        self, config: StreamConfig, is_known: IsKnown, mode: Mode | None = None
    ) -> Content:
        """Leave out what the stream holds already, or refuse, as the stream is set up."""
        rule = config.unique_ids
        assert rule is not None
        new, duplicates = split_new(self.ids, is_known)
        if not duplicates:
            return self
        if (mode or rule.mode) == "fail":
            raise DuplicateIds(duplicates)
        if not new:
            return Content(b"", 0, (), len(duplicates))
        messages = self._split(config)
        body = b"".join(messages[index] for index in new)
        ids = tuple(self.ids[index] for index in new)
        return Content(body, len(new), ids, len(duplicates))

    def _split(self, config: StreamConfig) -> list[bytes]:
        """The messages in stored form, each with what separates it from the next."""
        if not config.is_json:
            return [self.body]
        return [message + b"," for message in json_mode.decode(self.body)]

    def append_to(
        self,
        state: StreamState,
        at_ms: int,
        producer: ProducerStamp | None = None,
        stream_seq: str | None = None,
    ) -> Appended:
        ids: tuple[MessageId, ...] = ()
        if self.ids:
            position = state.tail
            placed: list[MessageId] = []
            for message_id, message in zip(self.ids, self._split(state.config), strict=True):
                placed.append(MessageId(message_id, position))
                position += len(message)
            ids = tuple(placed)
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
        )


NO_CONTENT = Content(b"", 0)


def read_content(
    config: StreamConfig, body: bytes, message_id: str | None, *, creating: bool = False
) -> Content:
    """Check a request body and bring it into stored form."""
    if config.is_json:
        stored, count = json_mode.encode(body, allow_empty=creating)
    else:
        stored, count = body, 1
    if isinstance(config.profile, StateProtocol) and count:
        check_records(stored, config.profile.touch.on_missing_before)
    if config.unique_ids is None or count == 0:
        return Content(stored, count)
    messages = json_mode.decode(stored) if config.is_json else [stored]
    return Content(stored, count, tuple(find_ids(config.unique_ids, messages, message_id)))
