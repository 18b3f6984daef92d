"""Commands, and the replies to them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from headwater.core.content import Content, Prepared, read_content
from headwater.core.expiry import FOREVER, Lifetime
from headwater.core.json_mode import MESSAGES_ANY
from headwater.core.lineage import ForkRequest
from headwater.core.producers import ProducerStamp
from headwater.core.retention import Retention
from headwater.core.stream import StreamConfig, StreamState
from headwater.core.unique_ids import UniqueIds


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    content_type: str | None = None
    body: bytes = b""
    lifetime: Lifetime = FOREVER
    closed: bool = False
    fork: ForkRequest | None = None
    version: int | None = None
    description: str | None = None
    unique_ids: UniqueIds | None = None
    message_id: str | None = None
    retention: Retention | None = None
    prepared: Prepared | None = None
    relaxed: bool = False
    may_drop: bool = True
    """Whether it may make an existing stream keep less than before."""
    beside: int | None = None
    """The id of the stream it is made for, if any."""
    shard: int | None = None
    """In a cluster, its shard if it was not made for another stream."""


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a new fork leaves its source, measured by code that can read the source's data."""

    source: StreamState
    position: int
    messages: int


class Append(msgspec.Struct, frozen=True):
    body: bytes = b""
    content_type: str | None = None
    close: bool = False
    producer: ProducerStamp | None = None
    stream_seq: str | None = None
    message_id: str | None = None
    prepared: Prepared | None = None
    """The parsed body, if that was done before."""

    def content(self, config: StreamConfig, messages_max: int = MESSAGES_ANY) -> Content:
        """The body in stored form, for a stream of this configuration."""
        if self.prepared is not None and self.prepared.fits(config):
            return self.prepared.content()
        return read_content(config, self.body, self.message_id, messages_max=messages_max)


class CreateReply(msgspec.Struct, frozen=True):
    new: bool
    content_type: str
    next_offset: str
    closed: bool
    config: StreamConfig
    """The configuration now in force."""


class AppendReply(msgspec.Struct, frozen=True):
    next_offset: str
    closed: bool
    producer: ProducerStamp | None = None
    """The producer's epoch and the highest sequence accepted from it."""
    duplicate: bool = False
    close_only: bool = False
    duplicate_ids: int = 0
    """Messages left out because the stream has their ids."""
    relaxed: bool = False
    """Whether it may be sent before the commit."""

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to report but the new tail."""
        special = self.closed or self.duplicate_ids or self.relaxed
        return not special and self.producer is None
