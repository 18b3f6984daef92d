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
NextOffset = A[str | None, _doc("the offset after its last message")]
Next = A[str, _doc("the position after this; `--from` continues there")]

GroupNameField = A[str, _doc("the group's name")]
LagMessages = A[int, _doc("how many messages are not acknowledged yet")]
LagBytes = A[int, _doc("the size of everything from the oldest of them on")]
LagSeconds = A[float, _doc("how long ago the oldest of them was appended, in seconds")]


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
    retention_s: A[int | None, _doc("seconds after which what it has goes")]
    retention_bytes: A[int | None, _doc("how much of what it has it keeps")]
    durability: A[str | None, _doc("`relaxed` if it acknowledges before the commit, else `synced`")]
    forked_from: A[str | None, _doc("the path of the stream that it is a fork of")]
    forks: A[int | None, _doc("how many forks it has")]
    producers: A[int | None, _doc("how many idempotent producers have written to it")]
    readers: A[int | None, _doc("how many are following it now")]


class DeletedRecord(StreamRecord):
    """A deleted stream that can be undeleted."""

    deleted_at: A[str | None, _doc("when it was deleted")]
    kept_until: A[str | None, _doc("until when it can be undeleted")]


class ChangeRecord(Record):
    """A stream that was created, forked, closed or undeleted."""

    name: Name
    url: A[str, _doc("its address")]
    content_type: A[str | None, _doc("its media type")]
    next_offset: NextOffset
    closed: Closed


class ClearRecord(Record):
    """A stream without its messages."""

    name: Name
    url: A[str, _doc("its address")]
    next_offset: A[str, _doc("where it begins from now on")]


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
    next_offset: A[str | None, _doc("the offset after the last one; null if the server hid it")]
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


class MessageRecord(Record):
    """A message with what the server knows of it, as `read --details` writes it."""

    offset: A[str, _doc("the offset of the append that it came in")]
    index: A[int, _doc("its place in that append, from 0 on")]
    time: A[str | None, _doc("when it was stored")]
    id: A[str | None, _doc("the `Message-Id` that it was sent with")]
    producer_id: A[str | None, _doc("who sent it, if that was an idempotent producer")]
    producer_epoch: A[int | None, _doc("and its epoch")]
    producer_seq: A[int | None, _doc("and the number of the request")]
    next: Next


class MessageValueRecord(MessageRecord):
    """The same of a JSON stream."""

    value: A[msgspec.Raw, _doc("the message, any JSON value")]


class MessageDataRecord(MessageRecord):
    """The same of any other stream, append by append."""

    data: A[str, _doc("the bytes, in base64")]


class GroupRecord(Record):
    """One group of a stream."""

    stream: Name
    name: GroupNameField
    paused: A[bool, _doc("whether it hands out nothing at present")]
    position: A[str, _doc("where it continues, as `group seek` takes it")]
    lag_messages: LagMessages
    lag_bytes: LagBytes
    lag_s: LagSeconds
    in_flight: A[int, _doc("how many messages are with members")]
    members: A[dict[str, int], _doc("by the name of each member, how many messages it has")]
    durable: A[bool, _doc("whether its place is kept across restarts")]
    start: A[str, _doc("where it began")]
    max_in_flight: A[int, _doc("how many messages may be with members at a time")]
    ack_timeout_s: A[float, _doc("how long a member may keep a message, in seconds")]
    max_deliveries: A[int, _doc("deliveries after which a message is given up; 0 means never")]
    dead_letter: A[str | None, _doc("the stream that takes what is given up")]
    order_by: A[str | None, _doc("a JSON pointer to the key that keeps its order")]
    version: A[int, _doc("the version of its settings; 0 if nobody gave one")]


class LagRecord(Record):
    """How far one group is behind."""

    stream: Name
    name: GroupNameField
    messages: LagMessages
    bytes: LagBytes
    seconds: LagSeconds


class GroupRemovalRecord(Record):
    """A group that was deleted."""

    stream: Name
    name: GroupNameField
    removed: A[bool, _doc("always true")] = True


class DeliveryRecord(Record):
    """Base of what `consume` writes."""

    id: A[str, _doc("the message's own id where it has one inside, else its number")]
    offset: A[str, _doc("where the append that it came with begins")]
    deliveries: A[int, _doc("how many times it has been handed out, this time included")]


class DeliveredValueRecord(DeliveryRecord):
    """A message of a JSON stream, printed and acknowledged."""

    value: A[msgspec.Raw, _doc("the message, any JSON value")]


class DeliveredTextRecord(DeliveryRecord):
    """A message of a text stream: what one append brought."""

    text: A[str, _doc("the message")]


class DeliveredDataRecord(DeliveryRecord):
    """A message of any other stream, or one that is not UTF-8."""

    data: A[str, _doc("the message, in base64")]


class OutcomeRecord(DeliveryRecord):
    """With `--exec`, what came of a message."""

    outcome: A[str, _doc("`acked`, `nacked`, `rejected`, `returned` (uncounted) or `lost`")]
    exit_code: A[int | None, _doc("how the command ended; below 0: by that signal")]


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


class KeyRecord(Record):
    """One API key, without what proves it."""

    id: A[str, _doc("its id")]
    name: A[str, _doc("what it is for")]
    read: A[list[str], _doc("patterns of streams that it may read")]
    write: A[list[str], _doc("patterns of streams that it may write")]
    delete: A[list[str], _doc("patterns of streams that it may delete")]
    admin: A[list[str], _doc("patterns of streams that it may do all of this with")]
    created_at: A[str | None, _doc("when it was made")]
    expires_at: A[str | None, _doc("when it ends; null if it does not")]


class NewKeyRecord(KeyRecord):
    """A key that was just made."""

    key: A[str, _doc("the key itself, shown this once")]


class AddressRecord(Record):
    """A signed address."""

    name: Name
    url: A[str, _doc("the address; anyone who has it can read the stream")]
    expires_at: A[str | None, _doc("when it ends")]


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


class OrphanRecord(Record):
    """A file in object storage that nobody knows of."""

    name: A[str, _doc("its name")]
    removed: A[bool, _doc("whether it was removed")]


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
    """A data directory that was made."""

    path: A[str, _doc("where it is")]
    streams: A[int, _doc("how many streams there are")]
    bytes: A[int, _doc("how much data they have")]
    as_of: A[str, _doc("when what was restored was written down")]
    missing: A[list[MissingRecord], _doc("what is missing of what there was then")]


class FindingRecord(Record):
    """Something that was looked at."""

    level: A[str, _doc("`ok`, `hint` or `problem`")]
    about: A[str, _doc("what it is about")]
    what: A[str, _doc("what was found")]
    advice: A[str, _doc("what to do about it; empty if nothing")]


class DoctorRecord(Record):
    """The result of an examination."""

    ok: A[bool, _doc("whether there is no problem")]
    findings: A[list[FindingRecord], _doc("what was found")]


class BackupRecord(Record):
    """A backup that was made."""

    path: A[str, _doc("where it is")]
    created_at: A[str, _doc("the moment whose state it holds")]
    bytes: A[int, _doc("its size")]
    streams: A[int, _doc("how many streams it holds")]
    headwater: A[str, _doc("the version that made it")]


class CopyRecord(Record):
    """Everything that was copied."""

    source: A[str, _doc("where from, without user and password")]
    target: A[str, _doc("where to, without user and password")]
    streams: A[int, _doc("how many streams, deleted ones that are kept included")]
    appends: A[int, _doc("how many appends they have")]
    bytes: A[int, _doc("how large those are")]
    rows: A[dict[str, int], _doc("how many rows each table has")]
    digest: A[str, _doc("what all rows come to; the same for the same content")]


class ContextRecord(Record):
    """One context. Its token is not shown, anywhere."""

    name: A[str, _doc("its name")]
    url: A[str, _doc("the server's address")]
    has_token: A[bool, _doc("whether it has a token")]
    current: A[bool, _doc("whether commands use it without being told")]


class TableRecord(Record):
    """A table whose changes are published."""

    name: A[str, _doc("its schema and name")]
    before_images: A[bool, _doc("whether its records have an `old_value`")]
    key: A[bool, _doc("whether it has a primary key")]


class PostgresRecord(Record):
    """How far a replication slot is."""

    slot: A[str, _doc("the name of the slot")]
    exists: A[bool, _doc("whether it is there")]
    active: A[bool, _doc("whether somebody reads from it now")]
    wal_status: A[str | None, _doc("PostgreSQL's word on the log it keeps; `lost` is bad")]
    confirmed_lsn: A[str | None, _doc("everything before this is in the stream")]
    behind_bytes: A[int | None, _doc("how much of PostgreSQL's log comes after that")]
    publication: A[str | None, _doc("the publication; null if it is missing")]
    tables: A[list[TableRecord], _doc("its tables")]


class LinkRecord(Record):
    """A stream of a subscription."""

    name: Name
    explicit: A[bool, _doc("whether it was named; else the pattern takes it in")]
    acked_offset: A[str, _doc("the last offset that was acknowledged; -1 if none was")]
    tail_offset: A[str, _doc("the offset after its last message")]
    pending: A[bool, _doc("whether there is something to do between the two")]


class SubscriptionRecord(Record):
    """One subscription."""

    name: A[str, _doc("its name")]
    type: A[str, _doc("`webhook` or `pull-wake`")]
    pattern: A[str | None, _doc("which streams it takes in")]
    webhook: A[str | None, _doc("the address that is woken")]
    wake_stream: A[str | None, _doc("the stream that gets an event for each wake")]
    lease_s: A[float, _doc("how long the worker that is woken may stay silent")]
    description: A[str | None, _doc("what it is for")]
    status: A[str, _doc("`active`, or `failed` while waking fails and is tried again")]
    state: A[str, _doc("`idle`, `due`, `offered` or `leased`")]
    generation: A[int, _doc("how many wakes there were")]
    holder: A[str | None, _doc("the worker that has claimed the wake")]
    failures: A[int, _doc("how often waking has failed in a row")]
    streams_total: A[int, _doc("how many streams it is linked to")]
    streams_pending: A[int, _doc("how many of them have something to do")]
    streams: A[list[LinkRecord], _doc("those streams; empty in a list of subscriptions")]


class SubscriptionRemovalRecord(Record):
    """A subscription that was deleted."""

    name: A[str, _doc("its name")]
    removed: A[bool, _doc("always true")] = True


class PipelineRecord(Record):
    """How far a pipeline is."""

    name: A[str, _doc("its name")]
    pipeline: A[str, _doc("which of the pipelines it is")]
    batch: A[int, _doc("the number of its last micro-batch")]
    rows: A[int, _doc("how many messages that had")]
    rows_per_s: A[float, _doc("how many a second it took in")]
    batch_ms: A[int, _doc("how long it took")]
    at: A[int, _doc("when that was, in milliseconds since 1970")]
    offsets: A[dict[str, str], _doc("how far it is in each stream")]
    lag_messages: A[int | None, _doc("messages it has not taken in yet")]
    lag_s: A[float | None, _doc("age of the oldest of those, in seconds")]


class NodeRecord(Record):
    """A node of a cluster."""

    id: A[int, _doc("its number, new every time that it joins")]
    name: A[str, _doc("the machine and process, for people")]
    address: A[str | None, _doc("where other nodes reach it")]
    epoch: A[int, _doc("raised when it does not know how a commit of its own ended")]
    lease_ms: A[int, _doc("how long it keeps others out without a sign of life")]
    draining: A[bool, _doc("whether it hands over what it owns")]
    shards: A[int, _doc("how many shards it owns")]


class RowRecord(Record):
    """A row of the answer: a field for each column, by its name."""


BY_COMMAND: dict[str, tuple[type[Record], ...]] = {
    "create": (ChangeRecord,),
    "append": (AppendRecord,),
    "read": (ValueRecord, TextRecord, DataRecord, MessageValueRecord, MessageDataRecord),
    "tail": (ValueRecord, TextRecord, DataRecord),
    "ls": (StreamRecord, DeletedRecord),
    "info": (DetailRecord,),
    "fork": (ChangeRecord,),
    "close": (ChangeRecord,),
    "clear": (ClearRecord,),
    "rm": (RemovalRecord,),
    "undelete": (ChangeRecord,),
    "consume": (
        DeliveredValueRecord,
        DeliveredTextRecord,
        DeliveredDataRecord,
        OutcomeRecord,
    ),
    "group ls": (GroupRecord,),
    "group info": (GroupRecord,),
    "group lag": (LagRecord,),
    "group create": (GroupRecord,),
    "group seek": (GroupRecord,),
    "group pause": (GroupRecord,),
    "group resume": (GroupRecord,),
    "group rm": (GroupRemovalRecord,),
    "pipeline status": (PipelineRecord,),
    "cluster status": (NodeRecord,),
    "sql": (RowRecord,),
    "top": (TopRecord,),
    "bench": (BenchRecord,),
    "verify": (VerifyRecord,),
    "restore": (RestoreRecord,),
    "segments ls": (SegmentRecord,),
    "segments verify": (VerifyRecord,),
    "segments sweep": (OrphanRecord,),
    "segments compact": (CompactRecord,),
    "doctor": (DoctorRecord,),
    "backup": (BackupRecord,),
    "copy": (CopyRecord,),
    "ctx ls": (ContextRecord,),
    "keys create": (NewKeyRecord,),
    "keys ls": (KeyRecord,),
    "presign": (AddressRecord,),
    "postgres setup": (PostgresRecord,),
    "postgres status": (PostgresRecord,),
    "subscription create": (SubscriptionRecord,),
    "subscription ls": (SubscriptionRecord,),
    "subscription info": (SubscriptionRecord,),
    "subscription rm": (SubscriptionRemovalRecord,),
}
"""Which records a command writes."""

PARTS: dict[type[Record], tuple[type[Record], ...]] = {
    TopRecord: (RateRecord,),
    BenchRecord: (LatencyRecord,),
    VerifyRecord: (ProblemRecord,),
    PostgresRecord: (TableRecord,),
    SubscriptionRecord: (LinkRecord,),
    RestoreRecord: (MissingRecord,),
    DoctorRecord: (FindingRecord,),
}
"""Which records are parts of another one."""
