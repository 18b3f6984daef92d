"""The base class of records, and fields that several of them share."""

from __future__ import annotations

from typing import Annotated as A

import msgspec
from msgspec import Meta


def doc(text: str) -> Meta:
    return Meta(description=text)


Name = A[str, doc("the stream's path")]
Closed = A[bool, doc("whether it is closed")]


class Record(msgspec.Struct, kw_only=True):
    """Base of all records."""
