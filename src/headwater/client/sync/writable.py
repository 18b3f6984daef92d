"""The blocking client. Written by scripts/make_sync.py from aio/writable.py: DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.client.aio.producer import ProducerOptions
from headwater.client.aio.writable import BATCH_BYTES_MAX, AsyncWritableStream
from headwater.client.errors import HeadwaterError
from headwater.client.protocol.streams import ProducerTag, Receipt
from headwater.client.sync.producer import Producer
from headwater.client.sync.readable import ReadableStream
from headwater.core.payloads import encode_batches, encode_body


class WritableStream(ReadableStream):
    """A stream that can be read and appended to: the part of `Stream` that needs one.

    Appends have to name the stream's content type. A handle that was not told asks for it once.
    """

    _async: AsyncWritableStream

    def append(
        self,
        message: Any,
        *,
        close: bool = False,
        seq: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Append a message: any JSON value in a JSON stream, otherwise bytes or text.

        Dataclasses, msgspec structs and pydantic models are JSON values too.

        Without an id, it is retried only if it cannot have been written yet. If the answer is lost,
        the error's `in_doubt` is True; to avoid that, use a producer.

        Args:
            message: the message. In a JSON stream, a list is several messages, as over HTTP, and
                bytes are JSON text; `[[1, 2]]` is one message that is an array.
            close: close the stream in the same step.
            seq: a `Stream-Seq`, which must sort after the one before.
            id: the message's id, for a stream that takes each id once. With an id, the request is
                retried even if it may have been written: the stream recognises the duplicate.
            headers: further headers for this request.
        """
        return self._portal.call(
            self._async.append(message, close=close, seq=seq, id=id, headers=headers)
        )

    def append_all(
        self,
        messages: Iterable[Any],
        *,
        max_batch_bytes: int = BATCH_BYTES_MAX,
    ) -> Receipt | None:
        """Append many messages in as few requests as their size allows.

        Each request is stored whole or not at all, but several requests are not. Returns the last
        receipt; None if there were no messages.
        """
        if max_batch_bytes < 1:
            raise ValueError("max_batch_bytes must be at least 1")
        content_type = self._portal.call(self._async._resolve_content_type())
        last = None
        count = 0
        for batch in encode_batches(messages, content_type, max_batch_bytes):
            body = encode_body(batch, content_type)
            try:
                last = self._portal.call(self._async._append(body, content_type))
            except HeadwaterError as error:
                error.add_note(f"{count} messages had been appended before this")
                raise
            count += len(batch)
        return last

    def append_tagged(
        self,
        messages: Iterable[Any],
        tag: ProducerTag,
        *,
        seq: str | None = None,
    ) -> Receipt:
        """Append messages in one request, under a producer's epoch and number chosen by you.

        It is stored whole or not at all, and once, however often it is sent: it is retried when
        that can help, and you can repeat it after a failure. Use it in programs that derive these
        numbers from what they read; otherwise, use `producer`.

        Args:
            messages: at least one; each as for `append`.
            tag: who writes, in which epoch, and the number of this request in it, from 0.
            seq: a `Stream-Seq`, which must sort after the one before.
        """
        return self._portal.call(self._async.append_tagged(messages, tag, seq=seq))

    def close(self) -> Receipt:
        """Close the stream: it keeps its content and accepts no more. You can repeat it."""
        return self._portal.call(self._async.close())

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int | None = None,
        auto_claim: bool = False,
        options: ProducerOptions | None = None,
    ) -> Producer:
        """A producer that writes every message exactly once, in order and in batches.

        Args:
            producer_id: the name of the producer; a new random name by default.
            epoch: the number of this run. By default it is higher than all before, which locks out
                earlier runs. With a number of your own, batch n is stored once whatever it
                contains, so repeat the same batches or choose a higher number.
            auto_claim: when locked out, take over again with a higher epoch.
            options: batching, buffering and patience.
        """
        return Producer(
            self._portal,
            self._async.producer(producer_id, epoch=epoch, auto_claim=auto_claim, options=options),
        )
