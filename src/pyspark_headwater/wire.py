"""The way from Spark to the server: blocking requests, tried again until they are answered.

Tasks run in worker processes that live on from task to task, so connections are kept per process.
What a request and an answer mean is decided by `headwater.client.protocol`, and when to try again
by `headwater.client.retry`; only the waiting is done here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import httpx
import msgspec

from headwater.client import resources
from headwater.client.errors import HeadwaterError, StreamGone, StreamNotFound, UnexpectedAnswer
from headwater.client.protocol import (
    START,
    Request,
    Response,
    StreamInfo,
    read_request,
    stream_info,
    stream_url,
)
from headwater.client.refusals import failure
from headwater.client.resources import (
    Place,
    Range,
    Ranges,
    Reach,
    StreamDetails,
    StreamPage,
    StreamSummary,
)
from headwater.client.retry import Retries, RetryPolicy
from headwater.client.transport import Timeouts, failure_of
from headwater.core.offsets import format_offset
from pyspark_headwater.options import Server

BEGINNING: Final = format_offset(0, 0)
"""The offset of every stream's beginning."""
_TIMEOUTS: Final = Timeouts()

T = TypeVar("T")


class Wire:
    """One server as one process sees it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._client = _new_client(server)

    def close(self) -> None:
        self._client.close()

    # --- Requests --------------------------------------------------------------------------------

    def perform(
        self, request: Request, check: Callable[[Response], object] | None = None
    ) -> Response:
        """Send until the request is granted, or the failure is final.

        `check` raises if an answer cannot be the one to this request.
        """
        retries = Retries(RetryPolicy(give_up_after_s=self.server.retry_timeout_s))
        while True:
            try:
                response = self.once(request)
                if check is not None:
                    check(response)
                return response
            except HeadwaterError as error:
                if isinstance(error, UnexpectedAnswer):
                    # The next answer on that connection would not be ours either.
                    self._client.close()
                    self._client = _new_client(self.server)
                delay_s = retries.delay_after(
                    error,
                    repeatable=request.repeatable,
                    now=time.monotonic(),
                    random=random.random(),
                )
                if delay_s is None:
                    raise
                time.sleep(delay_s)

    def once(self, request: Request, *, answer_s: float | None = None) -> Response:
        """Send once."""
        headers = dict(request.headers)
        if self.server.token is not None:
            headers["Authorization"] = f"Bearer {self.server.token}"
        try:
            answer = self._client.request(
                request.method,
                request.url,
                params=dict(request.params) or None,
                headers=headers,
                content=request.body or None,
                timeout=httpx.Timeout(answer_s or _TIMEOUTS.answer_s, connect=_TIMEOUTS.connect_s),
            )
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise failure_of(request, error) from error
        response = Response(answer.status_code, dict(answer.headers), answer.content)
        refused = failure(request, response, now=time.time())
        if refused is not None:
            raise refused
        return response

    # --- Streams ---------------------------------------------------------------------------------

    def url(self, stream: str) -> str:
        return stream_url(self.server.root, stream)

    def info(self, stream: str) -> StreamInfo | None:
        """What the server says about a stream; None if it has no such stream."""
        try:
            return stream_info(self.perform(Request("HEAD", self.url(stream))))
        except (StreamNotFound, StreamGone):
            return None

    def checks_ids(self, stream: str) -> bool:
        """Whether a stream takes each message id once."""
        details = self._ask(resources.details_request(self.url(stream)), StreamDetails)
        return details.unique_ids is not None

    def list_streams(self, prefix: str) -> list[StreamSummary]:
        """All streams whose path begins so."""
        found: list[StreamSummary] = []
        after: str | None = ""
        while after is not None:
            page = self._ask(resources.list_request(self.server.root, prefix, after), StreamPage)
            found += page.streams
            after = page.next
        return found

    def reach(
        self,
        stream: str,
        offset: str,
        *,
        messages: int | None = None,
        size_bytes: int | None = None,
    ) -> Reach:
        """How far a read from an offset gets with so much."""
        request = resources.position_request(
            self.url(stream), offset=_from(offset), messages=messages, bytes=size_bytes
        )
        return self._ask(request, Reach)

    def offset_at(self, stream: str, at_ms: int) -> str:
        """The offset behind which nothing is older than a moment."""
        return self._ask(resources.position_request(self.url(stream), at=at_ms), Place).offset

    def ranges(self, stream: str, offset: str, until: str, target_bytes: int) -> list[Range]:
        """A part cut into ranges, the same ones whenever it is asked for."""
        url = self.url(stream)
        request = resources.ranges_request(url, _from(offset), until, target_bytes, files=False)
        return self._ask(request, Ranges).ranges

    def pieces(self, stream: str, offset: str, until: str) -> Ranges:
        """A part cut where files of history begin and end, which changes as time passes."""
        return self._ask(resources.ranges_request(self.url(stream), offset, until), Ranges)

    def first_timestamp(self, stream: str, offset: str) -> int:
        """When the first message behind an offset was stored."""
        request = resources.ranges_request(self.url(stream), _from(offset), None)
        return self._ask(request, Ranges).ranges[0].first_timestamp

    def bulk(
        self, stream: str, offset: str, until: str, *, headers: bool, max_bytes: int
    ) -> Response:
        """Messages as an Arrow stream."""
        url = self.url(stream)
        return self.perform(resources.bulk_request(url, offset, until, max_bytes, headers=headers))

    def wait_for_news(self, stream: str, offset: str, wait_s: float) -> None:
        """Return when there is something behind an offset, or after some time."""
        request = read_request(self.url(stream), offset=offset, live="long-poll")
        # Whatever it is that keeps the server from answering, the next question will tell.
        with suppress(HeadwaterError):
            self.once(request, answer_s=wait_s)

    def report(self, progress: object) -> None:
        """Tell the server how far a pipeline is, for its console. Nothing depends on it."""
        request = Request(
            "POST", f"{self.server.base}/pipelines", body=msgspec.json.encode(progress)
        )
        with suppress(HeadwaterError):
            self.once(request)

    def _ask(self, request: Request, kind: type[T]) -> T:
        return resources.parse(self.perform(request), kind)


def _from(offset: str) -> str:
    """The beginning by its name: on a stream that lets go of its past, it moves."""
    return START if offset == BEGINNING else offset


def _new_client(server: Server) -> httpx.Client:
    return httpx.Client(
        headers={"Accept-Encoding": "identity"},
        # An address on this machine is not for a proxy.
        trust_env=not server.root.startswith(("http://127.0.0.1", "http://localhost")),
        # Certificates take long to load, in every process, and only TLS has a use for them.
        verify=server.root.startswith("https:"),
    )


_wires: Final[dict[Server, Wire]] = {}


def wire_to(server: Server) -> Wire:
    """The connections of this process to a server."""
    if server not in _wires:
        _wires[server] = Wire(server)
    return _wires[server]


def close_wires() -> None:
    """Close all connections of this process. The next request opens new ones."""
    while _wires:
        _wires.popitem()[1].close()
