"""Messages, as `read`, `tail` and `consume` write them."""

from __future__ import annotations

from typing import Annotated as A

import msgspec

from headwater.cli.records.fields import Record, doc

Next = A[str, doc("the position after this; `--from` continues there")]


class ValueRecord(Record):
    """A message of a JSON stream."""

    value: A[msgspec.Raw, doc("the message, any JSON value")]
    next: Next


class TextRecord(Record):
    """A line of a text stream."""

    text: A[str, doc("the line, without its line break")]
    next: Next


class DataRecord(Record):
    """A piece of any other stream, or a line that is not UTF-8. Where pieces end means nothing."""

    data: A[str, doc("the bytes, in base64")]
    next: Next


class MessageRecord(Record):
    """A message with what the server knows of it, as `read --details` writes it."""

    offset: A[str, doc("the offset of its append")]
    index: A[int, doc("its index in that append, from 0")]
    time: A[str | None, doc("when it was stored")]
    id: A[str | None, doc("the `Message-Id` that it was sent with")]
    producer_id: A[str | None, doc("who sent it, if that was an idempotent producer")]
    producer_epoch: A[int | None, doc("and its epoch")]
    producer_seq: A[int | None, doc("and the number of the request")]
    next: Next


class MessageValueRecord(MessageRecord):
    """The same of a JSON stream."""

    value: A[msgspec.Raw, doc("the message, any JSON value")]


class MessageDataRecord(MessageRecord):
    """The same of any other stream, append by append."""

    data: A[str, doc("the bytes, in base64")]


class DeliveryRecord(Record):
    """Base of what `consume` writes."""

    id: A[str, doc("the message's own id if it contains one, otherwise its number")]
    offset: A[str, doc("where its append begins")]
    deliveries: A[int, doc("how many times it has been delivered, including this time")]


class DeliveredValueRecord(DeliveryRecord):
    """A message of a JSON stream, printed and acknowledged."""

    value: A[msgspec.Raw, doc("the message, any JSON value")]


class DeliveredTextRecord(DeliveryRecord):
    """A message of a text stream: what one append brought."""

    text: A[str, doc("the message")]


class DeliveredDataRecord(DeliveryRecord):
    """A message of any other stream, or one that is not UTF-8."""

    data: A[str, doc("the message, in base64")]


class OutcomeRecord(DeliveryRecord):
    """With `--exec`, what came of a message."""

    outcome: A[str, doc("`acked`, `nacked`, `rejected`, `returned` (uncounted) or `lost`")]
    exit_code: A[int | None, doc("how the command ended; below 0: by that signal")]
