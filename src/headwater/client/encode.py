"""From Python values to the bytes of an append. No IO.

One value is one message. In a JSON stream the server takes the elements of a top-level array as
separate messages, so a value that is itself an array is wrapped in another one. Bytes in a JSON
stream are taken as the JSON text of one message and sent unchanged. In any other stream, there are
no messages, only bytes: text is written as UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from headwater.client.protocol import is_json

NOTHING: Final[Any] = object()
"""Stands for a message that was not given; None is one."""

_JSON_SPACE: Final = b" \t\r\n"
_json_encoder: Final = msgspec.json.Encoder()


def encode_message(value: Any, content_type: str | None) -> bytes:
    """The bytes of one message.

    >>> encode_message({"id": 1}, "application/json")
    b'{"id":1}'
    >>> encode_message("text", "text/plain")
    b'text'
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if is_json(content_type):
        return _json_encoder.encode(value)
    if isinstance(value, str):
        return value.encode()
    raise TypeError(
        f"a stream of {content_type} takes bytes or str, not {type(value).__name__}; "
        "JSON values need a stream of application/json"
    )


def encode_body(messages: Sequence[bytes], content_type: str | None) -> bytes:
    """The body that appends these encoded messages.

    >>> encode_body([b'{"id":1}', b'[2]'], "application/json")
    b'[{"id":1},[2]]'
    """
    if not is_json(content_type):
        return b"".join(messages)
    if len(messages) == 1 and not messages[0].lstrip(_JSON_SPACE).startswith(b"["):
        return messages[0]
    return b"[" + b",".join(messages) + b"]"


def encode_batches(
    messages: Iterable[Any], content_type: str | None, max_bytes: int
) -> Iterator[list[bytes]]:
    """Encode messages as they come, in batches of about `max_bytes`, at least one in each."""
    batch: list[bytes] = []
    size = 0
    for message in messages:
        encoded = encode_message(message, content_type)
        if batch and size + len(encoded) > max_bytes:
            yield batch
            batch, size = [], 0
        batch.append(encoded)
        size += len(encoded)
    if batch:
        yield batch
