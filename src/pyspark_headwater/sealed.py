"""Reading sealed history directly, not through the server.

The server says which file holds a piece of a stream, and where that file is. A client with access
to it reads the rows from there, verifying each block against its checksum, and they are the rows
that the server would have sent. Everything else, and whatever cannot be read that way, still comes
from the server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from headwater.client.protocol.extensions import SealedFile
from headwater.core.errors import DataCorrupt, HistoryUnavailable
from headwater.core.frames import Frame
from headwater.core.offsets import Offset, parse_offset

try:
    from headwater.store.history.direct import open_segment
except ImportError as error:
    # Object storage needs a native library. Without it, the server is used.
    _missing: str | None = str(error)
else:
    _missing = None

_BLOCK_BYTES: Final = 8 * 2**20
# A client that has no access to a place, or cannot reach it, need not find that out for every file.
_REST_S: Final = 60.0

Take = Callable[[Frame, Offset], Any]

log = logging.getLogger(__name__)
_resting: Final[dict[str, float]] = {}


class NotReadable(Exception):
    """A piece, or what is left of it, cannot be read without the server."""


def read_sealed(file: SealedFile, offset: str, until: str, take: Take) -> Iterator[tuple[Any, str]]:
    """The converted frames of a piece, each with the offset after it."""
    place = _place(file)
    first, end = _offset(offset), _offset(until)
    try:
        segment = open_segment(place, file.name, file.size_bytes, file.checksum)
        extent = segment.extent(file.index_offset)
        header = extent.header
        if header.run != end.run or not header.start <= first.position < end.position <= header.end:
            raise segment.damaged(f"it does not hold {offset} to {until}")
        while first.position < end.position:
            limit = first.position + _BLOCK_BYTES
            frame = extent.frame(first.position, end.position, limit)
            rows = take(frame, first)
            first = Offset(end.run, frame.end)
            yield rows, str(first)
    except HistoryUnavailable as error:
        _rest(place, error)
        raise NotReadable(error.problem) from None
    except DataCorrupt as error:
        # Removed since the server named it, or damaged: the server knows which, and what to do.
        log.warning("%s cannot be used, asking the server instead: %s", place, error.where)
        raise NotReadable(error.where) from None


def _offset(token: str) -> Offset:
    found = parse_offset(token)
    assert isinstance(found, Offset)
    return found


def _place(file: SealedFile) -> str:
    if _missing is not None:
        raise NotReadable(f"it takes a package that is not installed: {_missing}")
    if file.location is None:
        raise NotReadable(f"the server does not say where {file.name} is")
    if _resting.get(_directory(file.location), 0.0) > time.monotonic():
        raise NotReadable(f"{file.location} could not be read a moment ago")
    return file.location


def _rest(place: str, error: HistoryUnavailable) -> None:
    log.info("%s cannot be read here, asking the server instead: %s", place, error.problem)
    if not place.startswith("file:"):
        _resting[_directory(place)] = time.monotonic() + _REST_S


def _directory(place: str) -> str:
    return place.rpartition("/")[0]
