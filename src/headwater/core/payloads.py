"""From Python values to the body of an append: the same in the client and the embedded log.

`append(data)` means what a POST of that data means. In a JSON stream:

* a list or tuple is several messages, one per element, like a top-level array over HTTP;
* bytes are JSON text: an array in it is several messages, anything else is one;
* any other value is one message.

To append one message that is itself an array, wrap it: `append([[1, 2]])`. Where messages are given
one by one, as elements of a list or to `append_all`, each is one message whatever it is, and bytes
are the JSON text of one.

Dataclasses, msgspec structs and pydantic models are JSON values too, on their own and nested. A
model is written by its aliases, the way it is read.

Any other stream has no messages, only bytes. Text is encoded as UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from headwater.core.content_types import is_json

_JSON_SPACE: Final = b" \t\r\n"


def _plain(value: Any) -> Any:
    """Convert what msgspec cannot encode. Pydantic is detected by its methods, not imported."""
    dump = getattr(type(value), "model_dump", None)
    if dump is None:
        raise TypeError(
            f"{type(value).__name__} is not a JSON value; use a dict, a dataclass, a msgspec "
            "struct or a pydantic model"
        )
    return dump(value, mode="json", by_alias=True)


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)


def encode_append(data: Any, content_type: str) -> bytes:
    """The data in a form that can be joined with other data in one body.

    >>> encode_append([{"id": 1}, [2]], "application/json")
    b'{"id":1},[2]'
    >>> encode_append("text", "text/plain")
    b'text'
    """
    if not is_json(content_type):
        encoded = encode_message(data, content_type)
    elif isinstance(data, list | tuple):
        encoded = b",".join([encode_message(each, content_type) for each in data])
    elif isinstance(data, bytes | bytearray | memoryview):
        encoded = bytes(data)
        text = encoded.strip(_JSON_SPACE)
        if text.startswith(b"[") and text.endswith(b"]"):
            encoded = text[1:-1].strip(_JSON_SPACE)
    else:
        encoded = _encoder.encode(data)
    if not encoded:
        raise ValueError("there is nothing to append: pass at least one message or byte")
    return encoded


def encode_message(value: Any, content_type: str) -> bytes:
    """One message.

    >>> encode_message([1, 2], "application/json")
    b'[1,2]'
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if is_json(content_type):
        return _encoder.encode(value)
    if isinstance(value, str):
        return value.encode()
    raise TypeError(
        f"a stream of {content_type} takes bytes or str, not {type(value).__name__}; "
        "JSON values need a stream of application/json"
    )


def encode_body(encoded: Sequence[bytes], content_type: str) -> bytes:
    """The body that appends what has been encoded.

    >>> encode_body([b'{"id":1}', b'[2]'], "application/json")
    b'[{"id":1},[2]]'
    """
    if not is_json(content_type):
        return b"".join(encoded)
    return b"[" + b",".join(encoded) + b"]"


def encode_batches(
    messages: Iterable[Any], content_type: str, max_bytes: int
) -> Iterator[list[bytes]]:
    """Encode messages as they come, in batches of about `max_bytes`, each with at least one."""
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
