"""From JSON text to the values that a program works with. No IO.

A type is anything that msgspec can decode to (dataclasses, its structs, TypedDicts, lists of those,
…), and pydantic models, on their own and inside of others. Pydantic is not imported here: a model
is known by its methods.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from headwater.client.errors import InvalidMessage

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises about text that is not JSON, or JSON that is nested too deeply."""


def decode(data: bytes | msgspec.Raw, type: Any, what: str) -> Any:
    """A value of a type; `what` names the text in the error if it is none.

    >>> decode(b"[1, 2]", list[int], "the message")
    [1, 2]
    """
    try:
        return _decoder(type).decode(data)
    except UNREADABLE as error:
        kind = "JSON" if type is Any else getattr(type, "__name__", str(type))
        raise InvalidMessage(f"{what} is not {kind}: {error}") from error


@lru_cache(maxsize=64)
def list_decoder(type: Any) -> msgspec.json.Decoder[list[Any]]:
    """Decodes an array of messages."""
    return msgspec.json.Decoder(list[type], dec_hook=_from_plain)


@lru_cache(maxsize=64)
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type, dec_hook=_from_plain)


def _from_plain(type: Any, value: Any) -> Any:
    """What msgspec does not know how to make."""
    validate = getattr(type, "model_validate_json", None)
    if validate is None:
        raise NotImplementedError(
            f"cannot read a {type.__name__}; use a dataclass, a msgspec struct or a pydantic model"
        )
    # As text: a strict model takes a date or a tuple from JSON, and not from a string or a list.
    return validate(msgspec.json.encode(value))
