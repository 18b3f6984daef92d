"""Databases as sources, and tables as targets."""

from __future__ import annotations

from typing import Annotated as A

from headwater.cli.records.fields import Record, doc


class TableRecord(Record):
    """A table whose changes are published."""

    name: A[str, doc("its schema and name")]
    before_images: A[bool, doc("whether its records have an `old_value`")]
    key: A[bool, doc("whether it has a primary key")]


class PostgresRecord(Record):
    """How far a replication slot is."""

    slot: A[str, doc("the name of the slot")]
    exists: A[bool, doc("whether it exists")]
    active: A[bool, doc("whether someone is reading from it now")]
    wal_status: A[str | None, doc("PostgreSQL's word on the log it keeps; `lost` is bad")]
    confirmed_lsn: A[str | None, doc("everything before this is in the stream")]
    behind_bytes: A[int | None, doc("how much of PostgreSQL's log comes after that")]
    publication: A[str | None, doc("the publication; null if it is missing")]
    tables: A[list[TableRecord], doc("its tables")]


class PipelineRecord(Record):
    """How far a pipeline is."""

    name: A[str, doc("its name")]
    pipeline: A[str, doc("which of the pipelines it is")]
    batch: A[int, doc("the number of its last micro-batch")]
    rows: A[int, doc("how many messages that had")]
    rows_per_s: A[float, doc("messages it processed per second")]
    batch_ms: A[int, doc("how long it took")]
    at: A[int, doc("when that was, in milliseconds since 1970")]
    offsets: A[dict[str, str], doc("how far it is in each stream")]
    lag_messages: A[int | None, doc("messages it has not processed yet")]
    lag_s: A[float | None, doc("age of the oldest of those, in seconds")]


class PipelineReportRecord(Record):
    """How a pipeline is doing, as it told the server."""

    name: A[str, doc("its name")]
    kind: A[str, doc("which of the pipelines it is")]
    state: A[str, doc("`running`, `paused`, `failing` or `ended`")]
    batch: A[int, doc("the number of its last micro-batch")]
    rows: A[int, doc("how many messages that had")]
    rows_per_s: A[float, doc("messages it processed per second")]
    batch_ms: A[int, doc("how long it took")]
    reported: A[int, doc("when it reported this, in milliseconds since 1970")]
    lag_messages: A[int | None, doc("messages it has not processed yet")] = None
    lag_s: A[float | None, doc("age of the oldest of those, in seconds")] = None
    error: A[str | None, doc("what it fails with now, if it fails")] = None
    last_error: A[str | None, doc("what it last failed with, even if that is over")] = None
    last_error_at: A[int | None, doc("when that was, in milliseconds since 1970")] = None
    root: A[str, doc("where its tables are")] = ""
    selection: A[str, doc("the stream that it reads, or a pattern")] = ""
    streams: A[int, doc("how many streams those are")] = 0
    on_error: A[str, doc("what it does about a message that does not fit")] = "fail"
    quarantined: A[int | None, doc("messages in its quarantine, if it has one")] = None
    maintenance_in: A[
        int | None, doc("how many more commits until the first of its tables is tidied")
    ] = None
    obeyed: A[str | None, doc("the offset up to which it has read its orders")] = None


class RowRecord(Record):
    """A row of the answer: a field for each column, by its name."""
