"""What `--json` writes: one class per kind of record, one record per line.

The fields are a promise to scripts. Later versions may add some; none is taken away, renamed or
given another meaning. Times are RFC 3339 in UTC. A field that the server says nothing about is
null. The reference is written from these classes.
"""

from __future__ import annotations

from typing import Annotated as A

import msgspec
from msgspec import Meta


def _doc(text: str) -> Meta:
    return Meta(description=text)


Name = A[str, _doc("the stream's path")]
Closed = A[bool, _doc("whether it takes no more messages")]
NextOffset = A[str | None, _doc("the offset behind its last message")]
Next = A[str, _doc("the position behind this; `--from` goes on there")]


class Record(msgspec.Struct, kw_only=True):
    """Base of all records."""


class StreamRecord(Record):
    """One stream."""

    name: Name
    content_type: A[str | None, _doc("its media type")]
    next_offset: NextOffset
    closed: Closed
    messages: A[int | None, _doc("how many messages it has; appends, unless it is JSON")]
    bytes: A[int | None, _doc("its size, with what a fork shares with its source")]
    created_at: A[str | None, _doc("when it was created")]
    ttl_s: A[int | None, _doc("seconds without access after which it expires")]
    expires_at: A[str | None, _doc("when it expires, if that was fixed")]


class DetailRecord(StreamRecord):
    """One stream, with all that is known about it."""

    url: A[str, _doc("its address")]
    forked_from: A[str | None, _doc("the path of the stream that it is a fork of")]
    forks: A[int | None, _doc("how many forks it has")]
    producers: A[int | None, _doc("how many idempotent producers have written to it")]
    readers: A[int | None, _doc("how many are following it now")]


class ChangeRecord(Record):
    """A stream that was created, forked or closed."""

    name: Name
    url: A[str, _doc("its address")]
    content_type: A[str | None, _doc("its media type")]
    next_offset: NextOffset
    closed: Closed


class RemovalRecord(Record):
    """A stream that was deleted."""

    name: Name
    removed: A[bool, _doc("always true")] = True


class AppendRecord(Record):
    """What one `append` has done."""

    name: Name
    messages: A[int, _doc("messages in the input")]
    bytes: A[int, _doc("their size")]
    duplicates: A[int, _doc("how many of them an earlier run had stored already")]
    next_offset: A[str | None, _doc("the offset behind the last one; null if the server hid it")]
    closed: A[bool, _doc("whether the stream was closed as well")]


class ValueRecord(Record):
    """A message of a JSON stream."""

    value: A[msgspec.Raw, _doc("the message, any JSON value")]
    next: Next


class TextRecord(Record):
    """A line of a text stream."""

    text: A[str, _doc("the line, without its end")]
    next: Next


class DataRecord(Record):
    """A piece of any other stream, or a line that is not UTF-8. Where pieces end means nothing."""

    data: A[str, _doc("the bytes, in base64")]
    next: Next


class RateRecord(Record):
    """One stream, and how fast it grows."""

    name: Name
    messages: A[int, _doc("how many messages it has")]
    bytes: A[int, _doc("its size")]
    messages_per_s: A[float, _doc("messages a second since the last look")]
    bytes_per_s: A[float, _doc("bytes a second since the last look")]
    closed: Closed


class TopRecord(Record):
    """One look at a server."""

    at: A[str, _doc("when it was taken")]
    interval_s: A[float, _doc("the time since the last look")]
    messages_per_s: A[float, _doc("messages a second, all streams together")]
    bytes_per_s: A[float, _doc("bytes a second, all streams together")]
    streams: A[list[RateRecord], _doc("the streams, sorted as asked")]


class LatencyRecord(Record):
    """How long something took, over many times."""

    count: A[int, _doc("how many there were")]
    per_s: A[float, _doc("how many a second")]
    p50_ms: A[float, _doc("half took at most this long, in milliseconds")]
    p90_ms: A[float, _doc("nine of ten")]
    p99_ms: A[float, _doc("99 of a hundred")]
    max_ms: A[float, _doc("the longest")]


class BenchRecord(Record):
    """The result of a benchmark."""

    url: A[str, _doc("the server")]
    connections: A[int, _doc("appends under way at a time")]
    streams: A[int, _doc("streams written to")]
    message_bytes: A[int, _doc("size of each message")]
    seconds: A[float, _doc("how long it ran")]
    errors: A[int, _doc("appends that failed")]
    append: A[LatencyRecord, _doc("from sending an append to its answer")]
    delivery: A[
        LatencyRecord | None, _doc("from sending to its arrival at a follower; with `--follow`")
    ]


class ProblemRecord(Record):
    """Something wrong in a data directory."""

    where: A[str, _doc("the place")]
    what: A[str, _doc("the problem")]


class VerifyRecord(Record):
    """The result of a check."""

    ok: A[bool, _doc("whether nothing was found")]
    problems: A[list[ProblemRecord], _doc("what was found")]


class SegmentRecord(Record):
    """One file of history."""

    id: A[int, _doc("its number")]
    name: A[str, _doc("its name")]
    bytes: A[int, _doc("its size")]
    needed_bytes: A[int, _doc("how much of that streams still need")]
    streams: A[int, _doc("how many streams have something in it")]
    extents: A[int, _doc("how many pieces of streams it holds")]
    created_at: A[str, _doc("when it was written")]
    place: A[str, _doc("`here`, `object storage`, `both`, or `going` when nobody needs it")]


class CompactRecord(Record):
    """What became of the files that were rewritten."""

    files_before: A[int, _doc("how many there were")]
    files_after: A[int, _doc("how many took their place")]
    bytes_before: A[int, _doc("their size before")]
    bytes_after: A[int, _doc("their size now")]


class MissingRecord(Record):
    """What of a stream could not be restored."""

    name: Name
    bytes: A[int, _doc("how many bytes are missing")]
    messages: A[int, _doc("how many messages are missing")]
    all: A[bool, _doc("whether the stream is missing as a whole")]


class RestoreRecord(Record):
    """What was restored."""

    streams: A[int, _doc("how many streams there are")]
    bytes: A[int, _doc("how much data they have")]
    as_of: A[str, _doc("when what was restored was written down")]
    missing: A[list[MissingRecord], _doc("what is missing of what there was then")]


class ContextRecord(Record):
    """One context. Its token is not shown, anywhere."""

    name: A[str, _doc("its name")]
    url: A[str, _doc("the server's address")]
    has_token: A[bool, _doc("whether it has a token")]
    current: A[bool, _doc("whether commands use it without being told")]


BY_COMMAND: dict[str, tuple[type[Record], ...]] = {
    "create": (ChangeRecord,),
    "append": (AppendRecord,),
    "read": (ValueRecord, TextRecord, DataRecord),
    "tail": (ValueRecord, TextRecord, DataRecord),
    "ls": (StreamRecord,),
    "info": (DetailRecord,),
    "fork": (ChangeRecord,),
    "close": (ChangeRecord,),
    "rm": (RemovalRecord,),
    "top": (TopRecord,),
    "bench": (BenchRecord,),
    "verify": (VerifyRecord,),
    "restore": (RestoreRecord,),
    "segments ls": (SegmentRecord,),
    "segments verify": (VerifyRecord,),
    "segments compact": (CompactRecord,),
    "ctx ls": (ContextRecord,),
}
"""Which records a command writes."""

PARTS: dict[type[Record], tuple[type[Record], ...]] = {
    TopRecord: (RateRecord,),
    BenchRecord: (LatencyRecord,),
    VerifyRecord: (ProblemRecord,),
    RestoreRecord: (MissingRecord,),
}
"""Which records are parts of another one."""
