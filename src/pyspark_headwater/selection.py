"""Which streams a reader reads, and where each of them begins and ends.

A place in several streams is a dict from stream to offset with sorted keys, so that the same place
always has the same text in Spark's checkpoints. Offsets of one stream sort as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.client.errors import BadRequest, ResponseError, StreamGone, StreamNotFound
from headwater.client.protocol.extensions import StreamSummary
from headwater.client.protocol.streams import NOW, START
from headwater.core.content_types import is_json
from headwater.core.patterns import InvalidPattern, Pattern, parse_path_pattern
from pyspark_headwater.errors import DataLoss, InvalidOption, UnknownStream
from pyspark_headwater.options import EARLIEST, LATEST, ReadOptions
from pyspark_headwater.wire import BEGINNING, Wire

Offsets = dict[str, str]


class Selection:
    """The requested streams, as the server has them."""

    def __init__(self, options: ReadOptions, wire: Wire) -> None:
        self._options = options
        self._wire = wire
        self._pattern = _parsed(options.pattern) if options.pattern else None

    def listed(self) -> list[StreamSummary]:
        """The existing streams, by name."""
        if self._pattern is not None:
            found = self._wire.list_streams(self._pattern.prefix)
            return [
                one
                for one in found
                if self._pattern.covers(one.name)
                and (is_json(one.content_type) or not self._options.only_json)
            ]
        return [one for name in self._options.streams if (one := self._look(name)) is not None]

    def existing(self) -> list[StreamSummary]:
        """The same, but each named stream must exist."""
        found = self.listed()
        for name in sorted(set(self._options.streams) - {one.name for one in found}):
            raise UnknownStream(
                f"there is no stream {name!r} at {self._wire.server.root}; create it first"
            )
        return found

    def tails(self) -> Offsets:
        return {one.name: one.tail for one in self.listed()}

    def holds_only_json(self) -> bool:
        return all(is_json(one.content_type) for one in self.existing())

    def starting(self) -> Offsets:
        """Where a new query begins."""
        at_ms, asked = self._options.starting_timestamp_ms, self._options.starting
        found = self.existing()
        if at_ms is not None:
            return {one.name: self._wire.offset_at(one.name, at_ms) for one in found}
        return self._named(asked, found, BEGINNING)

    def ending(self) -> Offsets:
        """Where a batch read ends."""
        found = self.existing()
        return self._named(self._options.ending, found, None)

    def _named(
        self, asked: str | Mapping[str, str], found: list[StreamSummary], otherwise: str | None
    ) -> Offsets:
        if isinstance(asked, str):
            return {one.name: _named_offset(asked, one) for one in found}
        return {
            one.name: self._checked(one, asked[one.name])
            if one.name in asked
            else (otherwise or one.tail)
            for one in found
        }

    def _checked(self, stream: StreamSummary, offset: str) -> str:
        if offset in (EARLIEST, LATEST, START, NOW):
            return _named_offset(offset, stream)
        try:
            self._wire.reach(stream.name, offset, messages=0)
        except BadRequest as error:
            raise InvalidOption(f"{offset!r} is no offset of {stream.name!r}: {error}") from None
        return offset

    def _look(self, name: str) -> StreamSummary | None:
        info = self._wire.info(name)
        if info is None or info.next_offset is None:
            return None
        return StreamSummary(name, info.content_type or "", info.next_offset)


def _parsed(pattern: str) -> Pattern:
    try:
        return parse_path_pattern(pattern)
    except InvalidPattern as error:
        raise InvalidOption(f"streamPattern: {error.message}") from None


def _named_offset(asked: str, stream: StreamSummary) -> str:
    return BEGINNING if asked in (EARLIEST, START) else stream.tail


_LOSSES: Final = {
    "unknown_offset": "was deleted and created again",
    "offset_expired": "no longer keeps what follows this offset",
}


def is_data_loss(error: ResponseError) -> bool:
    """Whether an answer says that the data to be read is gone."""
    return is_gone(error) or error.code in ("unknown_offset", "offset_expired")


def is_gone(error: ResponseError) -> bool:
    """Whether the stream no longer exists."""
    is_missing = isinstance(error, StreamNotFound | StreamGone)
    return is_missing and error.code != "offset_expired"


def data_loss(stream: str, error: ResponseError) -> DataLoss:
    what = _LOSSES.get(error.code or "", "does not exist any more")
    return DataLoss(
        f"the stream {stream!r} {what} while it was being read ({error}). Start with a new "
        "checkpoint, or set failOnDataLoss to false to continue with what is there."
    )
