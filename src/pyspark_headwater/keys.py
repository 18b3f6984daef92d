"""The key and the headers inside a message.

Changes of the State Protocol have them: `key`, and an object `headers`. Any JSON object with these
fields is read the same way. A string is taken as it is, anything else as its JSON text; a missing
or null field is null, and so are both for messages that cannot have such fields.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

Headers = dict[str, str | None]


class _Envelope(msgspec.Struct):
    key: msgspec.Raw = msgspec.Raw(b"null")
    headers: msgspec.Raw = msgspec.Raw(b"null")


_envelope = msgspec.json.Decoder(_Envelope)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def keys_and_headers(
    messages: Sequence[str | bytes],
) -> tuple[list[str | None], list[Headers | None]]:
    """The key and the headers of each message."""
    keys: list[str | None] = []
    headers: list[Headers | None] = []
    for message in messages:
        try:
            found = _envelope.decode(message)
        except (msgspec.MsgspecError, UnicodeError):
            found = _Envelope()
        keys.append(_text(found.key))
        headers.append(_headers(found.headers))
    return keys, headers


def _headers(raw: msgspec.Raw) -> Headers | None:
    try:
        return {name: _text(value) for name, value in _fields.decode(raw).items()}
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _text(raw: msgspec.Raw) -> str | None:
    value = bytes(raw).strip()
    if value == b"null":
        return None
    try:
        return msgspec.json.decode(value, type=str) if value[:1] == b'"' else value.decode()
    except (msgspec.MsgspecError, UnicodeError):
        return None
