"""Streams, and what was done to them."""

from __future__ import annotations

from typing import Annotated as A

from headwater.cli.records.fields import Closed, Name, Record, doc

NextOffset = A[str | None, doc("the offset after its last message")]


class StreamRecord(Record):
    """One stream."""

    name: Name
    content_type: A[str | None, doc("its media type")]
    next_offset: NextOffset
    closed: Closed
    messages: A[int | None, doc("how many messages it has; appends, unless it is JSON")]
    bytes: A[int | None, doc("its size, including what a fork shares with its source")]
    created_at: A[str | None, doc("when it was created")]
    ttl_s: A[int | None, doc("seconds without access after which it expires")]
    expires_at: A[str | None, doc("when it expires, if it has a fixed expiry")]


class DetailRecord(StreamRecord):
    """One stream, with all that is known about it."""

    url: A[str, doc("its address")]
    retention_s: A[int | None, doc("age in seconds after which messages are dropped")]
    retention_bytes: A[int | None, doc("size beyond which the oldest messages are dropped")]
    durability: A[
        str | None, doc("`relaxed` if it acknowledges before the commit, otherwise `synced`")
    ]
    forked_from: A[str | None, doc("the path of its source, if it is a fork")]
    forks: A[int | None, doc("how many forks it has")]
    producers: A[int | None, doc("how many idempotent producers have written to it")]
    readers: A[int | None, doc("how many are following it now")]


class DeletedRecord(StreamRecord):
    """A deleted stream that can be undeleted."""

    deleted_at: A[str | None, doc("when it was deleted")]
    kept_until: A[str | None, doc("until when it can be undeleted")]


class ChangeRecord(Record):
    """A stream that was created, forked, closed or undeleted."""

    name: Name
    url: A[str, doc("its address")]
    content_type: A[str | None, doc("its media type")]
    next_offset: NextOffset
    closed: Closed


class ClearRecord(Record):
    """A stream without its messages."""

    name: Name
    url: A[str, doc("its address")]
    next_offset: A[str, doc("where it now begins")]


class RemovalRecord(Record):
    """A stream that was deleted."""

    name: Name
    removed: A[bool, doc("always true")] = True


class AppendRecord(Record):
    """What one `append` has done."""

    name: Name
    messages: A[int, doc("messages in the input")]
    bytes: A[int, doc("their size")]
    duplicates: A[int, doc("how many of them an earlier run had already stored")]
    next_offset: A[str | None, doc("the offset after the last one; null if the server did not say")]
    closed: A[bool, doc("whether the stream was closed as well")]


class AddressRecord(Record):
    """A signed address."""

    name: Name
    url: A[str, doc("the address; anyone who has it can read the stream")]
    expires_at: A[str | None, doc("when it ends")]


class SettingsRecord(Record):
    """The settings of a stream, after a change."""

    name: Name
    version: A[int, doc("the version of these settings")]
    ttl_s: A[int | None, doc("seconds without access after which it expires")]
    expires_at: A[str | None, doc("when it expires, if it has a fixed expiry")]
    retention_s: A[int | None, doc("age in seconds after which messages are dropped")]
    retention_bytes: A[int | None, doc("size beyond which the oldest messages are dropped")]
    durability: A[
        str | None, doc("`relaxed` if it acknowledges before the commit, otherwise `synced`")
    ]
    unique_ids: A[str | None, doc("`fail` or `succeed` if it takes each id once")]
    description: A[str | None, doc("what it is for")]


class RangeRecord(Record):
    """A part of a stream."""

    offset: A[str, doc("where it begins")]
    until: A[str, doc("where it ends")]
    messages: A[int, doc("how many messages it has")]
    bytes: A[int, doc("its size")]
    first_at: A[str | None, doc("when its first message was stored")]
    file: A[str | None, doc("the history file that holds it; null while it is in the database")]


class SnapshotRecord(Record):
    """A state of a stream at an offset."""

    name: Name
    offset: A[str, doc("where it was taken, and where a reader continues")]
    content_type: A[str, doc("its media type")]
    bytes: A[int, doc("its size")]
    created_at: A[str | None, doc("when it was stored on the server")]


class SnapshotRemovalRecord(Record):
    """A snapshot that was deleted."""

    name: Name
    offset: A[str, doc("where it was")]
    removed: A[bool, doc("always true")] = True


class PublishedRecord(Record):
    """A message of a transaction."""

    stream: Name
    offset: A[str | None, doc("the offset after it")]
    duplicate: A[bool, doc("whether the stream already had it")]


class TransactionRecord(Record):
    """A transaction that was committed."""

    acked: A[int, doc("how many messages it acknowledged")]
    published: A[list[PublishedRecord], doc("its messages, in order")]
