"""The metadata of a response, and where it is kept.

A response is a stream of plain bytes below `responses/`, named by a random id. It expires, together
with its address, at a fixed time. Its metadata is JSON in the description of the stream: `type`,
the content type that the upstream sent, and `ended`, the reason if it did not end normally. In a
cluster, `node` is the node that fetches it: once that is gone, nobody does. The reason is there
before the stream is closed, so a reader that sees the close sees the reason:

- `aborted`: a reader aborted it;
- `upstream_failed`: the connection to the upstream broke, or it violated HTTP;
- `idle`: nothing arrived for too long;
- `too_large`: it exceeded the size limit;
- `storage_failed`: it could not be stored;
- `interrupted`: the server stopped or was killed meanwhile.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from headwater.core.content_types import DEFAULT
from headwater.core.limits import CONTENT_TYPE_CHARS_MAX
from headwater.core.stream import StreamConfig

ROOT: Final = "responses"
ID_BYTES: Final = 18
_PREFIX: Final = f"{ROOT}/"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{24}")
_PRINTABLE: Final = re.compile(r"[ -~]+")


class Reason(StrEnum):
    ABORTED = "aborted"
    UPSTREAM_FAILED = "upstream_failed"
    IDLE = "idle"
    TOO_LARGE = "too_large"
    STORAGE_FAILED = "storage_failed"
    INTERRUPTED = "interrupted"


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    ended: Reason | None = None
    node: int | None = None

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def path_of(response_id: str) -> str:
    return _PREFIX + response_id


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def about(config: StreamConfig) -> About | None:
    """The metadata of a stream, if it is a response."""
    if config.description is None or not config.path.startswith(_PREFIX):
        return None
    try:
        return msgspec.json.decode(config.description, type=About)
    except msgspec.DecodeError:
        return None


def close_reason(config: StreamConfig) -> str | None:
    """Why a stream was closed, if not because it is complete."""
    known = about(config)
    return None if known is None or known.ended is None else known.ended.value


def content_type_of(header: str | None) -> str:
    """The content type of an upstream, if it can be passed on."""
    text = (header or "").strip()
    fits = len(text) <= CONTENT_TYPE_CHARS_MAX and _PRINTABLE.fullmatch(text) is not None
    return text if fits else DEFAULT
