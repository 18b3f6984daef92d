"""Servers: what goes on there, who may use them, and how fast they are."""

from __future__ import annotations

from typing import Annotated as A

from headwater.cli.records.fields import Closed, Name, Record, doc


class RateRecord(Record):
    """One stream, and how fast it grows."""

    name: Name
    messages: A[int, doc("how many messages it has")]
    bytes: A[int, doc("its size")]
    messages_per_s: A[float, doc("messages a second since the last look")]
    bytes_per_s: A[float, doc("bytes a second since the last look")]
    closed: Closed


class TopRecord(Record):
    """One look at a server."""

    at: A[str, doc("when it was taken")]
    interval_s: A[float, doc("the time since the last look")]
    messages_per_s: A[float, doc("messages a second, all streams together")]
    bytes_per_s: A[float, doc("bytes a second, all streams together")]
    streams: A[list[RateRecord], doc("the streams, sorted as asked")]


class LatencyRecord(Record):
    """How long something took, over many times."""

    count: A[int, doc("how many there were")]
    per_s: A[float, doc("how many a second")]
    p50_ms: A[float, doc("half took at most this long, in milliseconds")]
    p90_ms: A[float, doc("nine of ten")]
    p99_ms: A[float, doc("99 of a hundred")]
    max_ms: A[float, doc("the longest")]


class BenchRecord(Record):
    """The result of a benchmark."""

    url: A[str, doc("the server")]
    connections: A[int, doc("appends under way at a time")]
    streams: A[int, doc("streams written to")]
    message_bytes: A[int, doc("size of each message")]
    seconds: A[float, doc("how long it ran")]
    errors: A[int, doc("appends that failed")]
    append: A[LatencyRecord, doc("from sending an append to its answer")]
    delivery: A[
        LatencyRecord | None, doc("from sending to its arrival at a follower; with `--follow`")
    ]


class KeyRecord(Record):
    """One API key, without what proves it."""

    id: A[str, doc("its id")]
    name: A[str, doc("what it is for")]
    read: A[list[str], doc("patterns of streams that it may read")]
    write: A[list[str], doc("patterns of streams that it may write")]
    delete: A[list[str], doc("patterns of streams that it may delete")]
    admin: A[list[str], doc("patterns of streams that it may do all of this with")]
    created_at: A[str | None, doc("when it was made")]
    expires_at: A[str | None, doc("when it ends; null if it does not")]


class NewKeyRecord(KeyRecord):
    """A key that was just made."""

    key: A[str, doc("the key itself, shown this once")]


class ContextRecord(Record):
    """One context. Its token is not shown, anywhere."""

    name: A[str, doc("its name")]
    url: A[str, doc("the server's address")]
    has_token: A[bool, doc("whether it has a token")]
    current: A[bool, doc("whether commands use it without being told")]


class NodeRecord(Record):
    """A node of a cluster."""

    id: A[int, doc("its number, new every time that it joins")]
    name: A[str, doc("the machine and process, for people")]
    address: A[str | None, doc("where other nodes reach it")]
    epoch: A[int, doc("raised when it does not know how a commit of its own ended")]
    lease_ms: A[int, doc("how long it keeps others out without a sign of life")]
    draining: A[bool, doc("whether it hands over what it owns")]
    labels: A[list[str], doc("what it was started with, such as region=eu")]
    shards: A[int, doc("how many shards it owns")]


class HealthRecord(Record):
    """Whether a server is well."""

    url: A[str, doc("the server")]
    status: A[str, doc("`ok`, `ready`, or `degraded` if something else does not work")]
    problems: A[dict[str, str], doc("what does not work, and why")]


class CallerRecord(Record):
    """Who is calling, and what they may do."""

    access: A[bool, doc("whether the server has access control; if not, all is allowed")]
    name: A[str | None, doc("the name of the key or the subject of the token")]
    expires_at: A[str | None, doc("when it ends; null if it does not")]
    administers: A[bool, doc("whether it may do what concerns the whole server")]
    grants: A[dict[str, list[str]], doc("by permission, the patterns of streams")]
    stream: A[dict[str, object] | None, doc("with STREAM: what is allowed on it")]
