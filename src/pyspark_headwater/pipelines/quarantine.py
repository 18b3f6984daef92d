"""Messages that a pipeline could not process, kept in a stream so that it can continue.

Each is one JSON object:

    {"id": …, "pipeline": …, "stream": …, "offset": …, "index": …, "timestamp": …,
     "reason": …, "raw": …}

`raw` is the message as it was sent, as text; if it is not UTF-8, `raw_base64` has the bytes
instead. `timestamp` is when the server stored it, in microseconds since 1970. The id is made from
the place of the message, and the stream takes each id once, so a retried batch adds nothing twice.
It is written before the tables: every message is always in one or the other.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from headwater.client.errors import HeadwaterError, TooLarge
from headwater.core.content_types import JSON
from pyspark_headwater.errors import MalformedMessage
from pyspark_headwater.wire import BEGINNING, Wire

_ROWS_MAX: Final = 500
_ATTEMPTS_MAX: Final = 5
_POINTER: Final = "/id"


class Quarantine:
    """The stream of messages that a pipeline could not process.

    Args:
        pipeline: the name of the pipeline.
        stream: the stream; created on demand.
        wire: the way to the server.
    """

    def __init__(self, pipeline: str, stream: str, wire: Wire) -> None:
        self._pipeline = pipeline
        self._name = stream
        self._wire = wire
        self._count: int | None = None

    def count(self, wire: Wire) -> int | None:
        """The number of messages in it, if the server can tell."""
        if self._count is None:
            try:
                there = wire.info(self._name) is not None
                self._count = wire.reach(self._name, BEGINNING).messages if there else 0
            except HeadwaterError:
                return None
        return self._count

    def take(self, rows: Iterator[Any]) -> None:
        """Store rows that are not valid changes; `value` is the message in base64."""
        stream = self._wire.stream(self._name)
        stream.ensure(content_type=JSON, unique_ids="succeed", id_pointer=_POINTER)
        while some := [self._message(row) for row in islice(rows, _ROWS_MAX)]:
            self._append(some)
        self._count = None

    def _append(self, messages: Sequence[dict[str, Any]]) -> None:
        stream = self._wire.stream(self._name, JSON)
        for attempt in range(_ATTEMPTS_MAX):
            try:
                stream.append_all(messages)
                return
            except TooLarge as error:
                places = ", ".join(f"{one['stream']} at {one['offset']}" for one in messages)
                raise MalformedMessage(
                    f"a message that does not fit is too large for {self._name} ({error}); it is "
                    f"among those of {places[:300]}"
                ) from None
            except HeadwaterError as error:
                # The stream knows what it has.
                if not error.in_doubt or attempt == _ATTEMPTS_MAX - 1:
                    raise

    def _message(self, row: Any) -> dict[str, Any]:
        place = (row.stream, row.offset, row["index"], row.at_us)
        found = {
            "id": hashlib.blake2b(repr(place).encode(), digest_size=16).hexdigest(),
            "pipeline": self._pipeline,
            "stream": row.stream,
            "offset": row.offset,
            "index": row["index"],
            "timestamp": row.at_us,
            "reason": row.why,
        }
        raw = base64.b64decode(row.value)
        try:
            return found | {"raw": raw.decode()}
        except UnicodeDecodeError:
            return found | {"raw_base64": row.value}
