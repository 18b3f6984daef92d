"""The connection from Spark to the server: the blocking client, and the requests of Spark.

Tasks run in worker processes that are reused, so connections are kept per process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from headwater.client import (
    START,
    Bulk,
    Headwater,
    HeadwaterError,
    Range,
    Ranges,
    Reach,
    ResponseError,
    RetryPolicy,
    Stream,
    StreamGone,
    StreamInfo,
    StreamNotFound,
    StreamSummary,
)
from headwater.client.aio.transport import HttpxTransport
from headwater.core.offsets import format_offset
from pyspark_headwater.large_answers import LargeAnswers
from pyspark_headwater.options import Server
from pyspark_headwater.waiting import TellingTransport

BEGINNING: Final = format_offset(0, 0)
"""The offset of every stream's beginning."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Wire:
    """One server from one process."""

    def __init__(self, server: Server) -> None:
        self.server = server
        patience_s = server.retry_timeout_s
        self._client = Headwater(
            server.root,
            server.token,
            # What Spark reads is large and, as Arrow, hardly compresses.
            headers={"Accept-Encoding": "identity"},
            retry=RetryPolicy(give_up_after_s=patience_s, unreachable_after_s=patience_s),
            # Certificates take long to load, in every process, and only TLS needs them.
            transport=TellingTransport(
                LargeAnswers(HttpxTransport(verify=server.root.startswith("https:"))), patience_s
            ),
        )

    def close(self) -> None:
        self._client.close()

    def greet(self) -> None:
        """Wait until the server answers anything; raise `HeadwaterError` if it does not."""
        with suppress(ResponseError):
            self._client.request("GET", "/healthz")

    def stream(self, name: str, content_type: str | None = None) -> Stream:
        return self._client.stream(name, content_type=content_type)

    def info(self, stream: str) -> StreamInfo | None:
        """The server's information about a stream; None if it has no such stream."""
        try:
            return self.stream(stream).head()
        except (StreamNotFound, StreamGone):
            return None

    def checks_ids(self, stream: str) -> bool:
        """Whether a stream takes each message id once."""
        return self.stream(stream).details().unique_ids is not None

    def list_streams(self, prefix: str) -> list[StreamSummary]:
        """All streams whose path has this prefix."""
        return self._client.streams(prefix)

    def reach(
        self,
        stream: str,
        offset: str,
        *,
        messages: int | None = None,
        size_bytes: int | None = None,
    ) -> Reach:
        """How far a read from an offset gets within the given limits."""
        return self.stream(stream).reach(_from(offset), messages=messages, size_bytes=size_bytes)

    def offset_at(self, stream: str, at_ms: int) -> str:
        """The offset after which nothing is older than a time."""
        return self.stream(stream).position(time=_EPOCH + timedelta(milliseconds=at_ms)).offset

    def ranges(self, stream: str, offset: str, until: str, target_bytes: int) -> list[Range]:
        """A part split into ranges, the same ones on every call."""
        handle = self.stream(stream)
        return handle.ranges(_from(offset), until, max_bytes=target_bytes, files=False).ranges

    def pieces(self, stream: str, offset: str, until: str) -> Ranges:
        """A part split at the boundaries of history files, which change over time."""
        return self.stream(stream).ranges(offset, until)

    def first_timestamp(self, stream: str, offset: str) -> int:
        """When the first message after an offset was stored."""
        return self.stream(stream).ranges(_from(offset)).ranges[0].first_timestamp

    def bulk(self, stream: str, offset: str, until: str, *, headers: bool) -> Bulk:
        """Messages as an Arrow stream."""
        return self.stream(stream).bulk(offset, until, headers=headers)

    def document(self, service: str, path: str) -> tuple[str, str]:
        """Where a document ends, and its content as JSON."""
        address = f"{self.server.base}/yjs/{service}/docs/{path}"
        answer = self._client.request("GET", address, params={"state": "json"})
        return answer.headers["stream-next-offset"], answer.body.decode()

    def wait_for_news(self, stream: str, offset: str, wait_s: float) -> None:
        """Return when there is something after an offset, or on timeout."""
        # If something keeps the server from answering, the next request will show it.
        with suppress(HeadwaterError):
            self.stream(stream).wait(offset, wait_s)

    def report(self, progress: object) -> None:
        """Report a pipeline's progress to the server, for its console. Nothing depends on it."""
        with suppress(HeadwaterError):
            self._client.request("POST", f"{self.server.base}/pipelines", json=progress)


def _from(offset: str) -> str:
    """The beginning by name: on a stream with retention, it moves."""
    return START if offset == BEGINNING else offset


_wires: Final[dict[tuple[int, Server], Wire]] = {}


def wire_to(server: Server) -> Wire:
    """The connections of this process to a server."""
    key = (os.getpid(), server)
    if key not in _wires:
        _wires[key] = Wire(server)
    return _wires[key]


def close_wires() -> None:
    """Close all connections of this process. The next request opens new ones."""
    for key in [key for key in _wires if key[0] == os.getpid()]:
        _wires.pop(key).close()
