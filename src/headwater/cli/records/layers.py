"""Layers over streams: live queries, documents, durable responses."""

from __future__ import annotations

from typing import Annotated as A

import msgspec

from headwater.cli.records.fields import Name, Record, doc


class ProfileRecord(Record):
    """What a stream is used for."""

    name: Name
    profile: A[msgspec.Raw, doc("its kind and settings, as the server has them")]


class LiveRecord(Record):
    """How the live side of a stream is doing."""

    name: Name
    cursor: A[str, doc("the current moment, to wait from")]
    settled: A[bool, doc("whether the cursor is past everything that was appended")]
    mode: A[str, doc("how precise the server currently is")]
    templates: A[int, doc("how many query shapes are followed")]
    waiters: A[int, doc("how many waits are in progress")]
    lag_messages: A[int, doc("appended messages that are not processed yet")]
    memory_bytes: A[int, doc("approximate memory used for past touches")]


class TemplateRecord(Record):
    """A query shape, and whether the server follows it."""

    id: A[str, doc("its id")]
    entity: A[str, doc("the table")]
    fields: A[list[str], doc("the fields that its queries compare")]
    active: A[bool, doc("whether it is followed")]
    reason: A[str | None, doc("if not: `invalid`, `encoding_conflict`, `rate_limited` or `cap`")]


class WaitRecord(Record):
    """How a wait ended."""

    touched: A[bool, doc("whether something happened: run the query again")]
    stale: A[bool, doc("whether the cursor was from before a restart: run the query again")]
    cursor: A[str, doc("where to wait from next")]


class DocumentRecord(Record):
    """A document that was created."""

    name: A[str, doc("its service and path")]
    url: A[str, doc("its address")]
    next_offset: A[str | None, doc("the offset after its last update")]


class DocumentRemovalRecord(Record):
    """A document that was deleted."""

    name: A[str, doc("its service and path")]
    removed: A[bool, doc("always true")] = True


class ResponseRecord(Record):
    """An answer that the server keeps."""

    url: A[str, doc("its signed address: anyone who has it can read the response")]
    content_type: A[str | None, doc("the content type from the upstream")]


class ResponseEndRecord(Record):
    """An answer that was ended."""

    url: A[str, doc("its address")]
    removed: A[bool, doc("whether what had arrived was dropped too")]
