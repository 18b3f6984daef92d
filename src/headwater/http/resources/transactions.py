"""Transactions over HTTP: POST /v1/transaction."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import Annotated, Final, Literal

import msgspec

from headwater.core.access import Permission
from headwater.core.content_types import JSON, is_json
from headwater.core.decisions import Append
from headwater.core.errors import InvalidBody, InvalidPath, PublishRefused
from headwater.core.groups.commands import Receipts
from headwater.core.json_bodies import decode_body
from headwater.core.paths import check_path
from headwater.core.producers import ProducerStamp
from headwater.core.unique_ids import Mode
from headwater.http.answers import json_answer
from headwater.http.messages import Request, Response
from headwater.service.log import Log
from headwater.service.transactions import (
    PUBLISHES_MAX,
    Acknowledge,
    Publish,
    Transactions,
)

_MODES: Final[dict[str, Mode]] = {"abort": "fail", "succeed": "succeed"}
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class AckPart(msgspec.Struct, forbid_unknown_fields=True):
    stream: str
    group: str
    receipts: Receipts


class ProducerPart(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    epoch: _Number
    seq: _Number


class PublishPart(msgspec.Struct, forbid_unknown_fields=True):
    stream: str
    value: msgspec.Raw = msgspec.Raw()
    data: str | None = None
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    on_duplicate: Literal["abort", "succeed"] | None = None
    producer: ProducerPart | None = None


class TransactionBody(msgspec.Struct, forbid_unknown_fields=True):
    publish: Annotated[list[PublishPart], msgspec.Meta(max_length=PUBLISHES_MAX)] = []
    ack: AckPart | None = None


class TransactionResource:
    def __init__(self, streams: Log, transactions: Transactions) -> None:
        self._streams = streams
        self._transactions = transactions

    async def run(self, request: Request) -> Response:
        body = decode_body(request.body, TransactionBody)
        if body.ack is None and not body.publish:
            raise InvalidBody("a transaction acknowledges or publishes something")
        for part in body.publish:
            request.demand(Permission.WRITE, part.stream)
        if body.ack is not None:
            request.demand_group(body.ack.stream, body.ack.group)
        publishes = [await self._publish(index, part) for index, part in enumerate(body.publish)]
        acknowledge = None
        if body.ack is not None:
            stream = check_path(body.ack.stream)
            acknowledge = Acknowledge(stream, body.ack.group, body.ack.receipts)
        replies = await self._transactions.run(acknowledge, publishes)
        published = [
            {
                "stream": publish.stream,
                "offset": reply.next_offset,
                "duplicate": reply.duplicate or reply.duplicate_ids > 0,
            }
            for publish, reply in zip(publishes, replies, strict=True)
        ]
        answer = {"acked": len(body.ack.receipts) if body.ack else 0, "published": published}
        return json_answer(answer)

    async def _publish(self, index: int, part: PublishPart) -> Publish:
        try:
            path = check_path(part.stream)
        except InvalidPath as error:
            raise PublishRefused(index, error) from None
        entry = await self._streams.entry(path)
        content_type = entry.state.config.content_type if entry.state else JSON
        producer = None
        if part.producer is not None:
            producer = ProducerStamp(part.producer.id, part.producer.epoch, part.producer.seq)
        body = self._body(index, part, content_type)
        command = Append(body, content_type, False, producer, None, part.id)
        mode = _MODES[part.on_duplicate] if part.on_duplicate is not None else None
        return Publish(path, command, mode)

    @staticmethod
    def _body(index: int, part: PublishPart, content_type: str) -> bytes:
        value = bytes(part.value)
        if bool(value) == (part.data is not None):
            problem = InvalidBody("send value (JSON) or data (base64), one of the two")
            raise PublishRefused(index, problem)
        if value:
            if not is_json(content_type):
                problem = InvalidBody(f"the stream holds {content_type}: send data in base64")
                raise PublishRefused(index, problem)
            # In brackets, so that an array stays one message.
            return b"[%b]" % value
        try:
            return b64decode(part.data or "", validate=True)
        except (Base64Error, ValueError):
            raise PublishRefused(index, InvalidBody("data must be base64")) from None
