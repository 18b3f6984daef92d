"""Servers: their state, who may use them, and how fast they are."""

from __future__ import annotations

from typing import Annotated as A

from headwater.cli.records.fields import Closed, Name, Record, doc


class RateRecord(Record):
    """One stream, and how fast it grows."""

    name: Name
    messages: A[int, doc("how many messages it has")]
    bytes: A[int, doc("its size")]
    messages_per_s: A[float, doc("messages per second since the last refresh")]
    bytes_per_s: A[float, doc("bytes per second since the last refresh")]
    closed: Closed


class TopRecord(Record):
    """One look at a server."""

    at: A[str, doc("when it was taken")]
    interval_s: A[float, doc("the time since the last refresh")]
    messages_per_s: A[float, doc("messages per second, all streams together")]
    bytes_per_s: A[float, doc("bytes per second, all streams together")]
    streams: A[list[RateRecord], doc("the streams, sorted as asked")]


class LatencyRecord(Record):
    """How long something took, over many times."""

    count: A[int, doc("how many there were")]
    per_s: A[float, doc("how many per second")]
    p50_ms: A[float, doc("median, in milliseconds")]
    p90_ms: A[float, doc("90th percentile")]
    p99_ms: A[float, doc("99th percentile")]
    max_ms: A[float, doc("the longest")]


class BenchRecord(Record):
    """The result of a benchmark."""

    url: A[str, doc("the server")]
    connections: A[int, doc("appends in flight at a time")]
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
    admin: A[list[str], doc("patterns of streams that it may read, write and delete")]
    created_at: A[str | None, doc("when it was made")]
    expires_at: A[str | None, doc("when it ends; null if it does not")]


class NewKeyRecord(KeyRecord):
    """A key that was just made."""

    key: A[str, doc("the key itself, shown only once")]


class ContextRecord(Record):
    """One context. Its token is not shown, anywhere."""

    name: A[str, doc("its name")]
    url: A[str, doc("the server's address")]
    has_token: A[bool, doc("whether it has a token")]
    current: A[bool, doc("whether commands use it by default")]


class NodeRecord(Record):
    """A node of a cluster."""

    id: A[int, doc("its number, new each time it joins")]
    name: A[str, doc("the machine and process")]
    address: A[str | None, doc("where other nodes reach it")]
    epoch: A[int, doc("raised when the outcome of one of its commits is unknown")]
    lease_ms: A[int, doc("how long others wait without a heartbeat before they take over")]
    draining: A[bool, doc("whether it is handing over what it owns")]
    labels: A[list[str], doc("its labels, such as region=eu")]
    shards: A[int, doc("how many shards it owns")]


class HealthRecord(Record):
    """Whether a server is well."""

    url: A[str, doc("the server")]
    status: A[str, doc("`ok`, `ready`, or `degraded` if something else does not work")]
    problems: A[dict[str, str], doc("what does not work, and why")]


class CallerRecord(Record):
    """Who is calling, and what they may do."""

    access: A[bool, doc("whether the server has access control; if not, everything is allowed")]
    name: A[str | None, doc("the name of the key or the subject of the token")]
    expires_at: A[str | None, doc("when it ends; null if it does not")]
    administers: A[bool, doc("whether it may manage the whole server")]
    grants: A[dict[str, list[str]], doc("by permission, the patterns of streams")]
    stream: A[dict[str, object] | None, doc("with STREAM: what is allowed on it")]
