"""What goes over the wire: requests as values, answers as values or failures. No IO.

A `Request` is complete but for the caller's own headers (credentials). Whoever sends it, and
however often, gets a `Response` and hands it back here to learn what it means. Nothing in this
module waits, reads a clock or knows about httpx, so every rule can be tested as a function.

Two facts about a request matter to the sender and are decided here, where the request is built:

* `patience`: whether the answer is due at once, after a long-poll, or never ends (SSE);
* `repeatable`: whether sending it twice does no harm. A plain append is the only request that is
  not: if its answer is lost nobody can tell whether it was written. (An append with producer
  headers is repeatable; that is what they are for.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from headwater.client.errors import UnexpectedAnswer
from headwater.client.protocol.values import UNREADABLE
from headwater.core.limits import PRODUCER_ID_CHARS_MAX, PRODUCER_NUMBER_MAX
from headwater.core.numbers import whole_number

T = TypeVar("T")

START: Final = "-1"
"""The offset of a stream's beginning."""

NOW: Final = "now"
"""The offset of a stream's end, wherever that is when the server reads the request."""

ANSWER_BYTES_MAX: Final = 1024**3
"""Larger than what any server means to be held at once. What has no end would fill the memory."""
ERROR_BYTES_MAX: Final = 1024**2
"""What an error says beyond this is cut off."""

NOTHING: Final[Any] = object()
"""Stands for a message that was not given; None is one."""

Patience = Literal["answer", "long-poll", "sse"]
Live = Literal["long-poll", "sse"]
Durability = Literal["synced", "relaxed"]
UniqueIds = Literal["fail", "succeed"]

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+")
# Visible ASCII, with blanks only inside.
_HEADER_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, ready to be sent."""

    method: str
    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    # They may hold a token.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = b""
    patience: Patience = "answer"
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def next_offset(self) -> str | None:
        """The offset after what the answer is about."""
        return self.headers.get("stream-next-offset")

    @property
    def closed(self) -> bool:
        """Whether the stream is closed, and the answer reaches its end."""
        return self.headers.get("stream-closed", "").lower() == "true"

    @property
    def up_to_date(self) -> bool:
        """Whether the answer reaches the end of the stream."""
        return self.headers.get("stream-up-to-date", "").lower() == "true"


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What the server says about a stream.

    Attributes:
        content_type: the media type given when the stream was created.
        next_offset: the offset after the last byte.
        closed: True when the stream takes no more appends.
        ttl_s: seconds without access after which the stream expires, if it has such a limit.
        expires_at: the instant (RFC 3339) at which the stream expires, if it has one.
        retention_s: how many seconds the stream keeps what it has, if it is not for ever.
        retention_bytes: how many bytes it keeps, if it is not all of them.
        earliest_offset: where the stream begins now, if its beginning was dropped.
        durability: `relaxed` if appends are acknowledged before their commit, `synced` if not;
            None if the server does not say.
        unique_ids: what becomes of a message whose id the stream knows, if it takes each id once.
        id_pointer: where in a message its id is, if that is where it comes from.
        version: the version of these settings, if somebody gave one.
    """

    content_type: str | None
    next_offset: str | None
    closed: bool = False
    ttl_s: int | None = None
    expires_at: str | None = None
    retention_s: int | None = None
    retention_bytes: int | None = None
    earliest_offset: str | None = None
    durability: str | None = None
    unique_ids: str | None = None
    id_pointer: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The server's word that an append is stored, or will be if the stream is relaxed.

    Attributes:
        next_offset: the offset after the append. Some servers leave it out for duplicates.
        duplicate: True when an earlier attempt had stored it already.
        closed: True when the append closed the stream.
        relaxed: True when the append was acknowledged before its commit, so a crash may lose it.
    """

    next_offset: str | None
    duplicate: bool = False
    closed: bool = False
    relaxed: bool = False


@dataclass(frozen=True, slots=True)
class ProducerTag:
    """The identity of one idempotent append."""

    producer_id: str
    epoch: int
    seq: int

    def __post_init__(self) -> None:
        check_producer_id(self.producer_id)
        check_number("epoch", self.epoch)
        check_number("seq", self.seq)


def check_producer_id(producer_id: str) -> str:
    """The id, if a server can take it."""
    fits = 0 < len(producer_id) <= PRODUCER_ID_CHARS_MAX
    if not fits or not _HEADER_VALUE.fullmatch(producer_id):
        raise ValueError(
            f"a producer id is 1 to {PRODUCER_ID_CHARS_MAX} visible ASCII characters, "
            f"not {producer_id!r}"
        )
    return producer_id


def check_number(name: str, value: int) -> int:
    """An epoch or a sequence number, if a server can take it."""
    if not 0 <= value <= PRODUCER_NUMBER_MAX:
        raise ValueError(f"{name} must be a whole number from 0 to {PRODUCER_NUMBER_MAX}")
    return value


# --- Headers -------------------------------------------------------------------------------------


def merged(*several: Mapping[str, str] | None) -> dict[str, str]:
    """Headers of several origins; of those with the same name in any case, the last counts."""
    found: dict[str, tuple[str, str]] = {}
    for headers in several:
        for name, value in (headers or {}).items():
            found[name.lower()] = (name, value)
    return dict(found.values())


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse what cannot be sent, without showing it: it may be a secret."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a header")
        if not _HEADER_VALUE.fullmatch(value):
            raise ValueError(
                f"the value of the header {name} has characters that no header may have; "
                "it takes visible ASCII, with blanks only inside"
            )


# --- Requests ------------------------------------------------------------------------------------


def create_request(
    url: str,
    *,
    content_type: str | None = None,
    ttl_s: int | None = None,
    expires_at: str | None = None,
    retention_s: int | None = None,
    retention_bytes: int | None = None,
    durability: str | None = None,
    unique_ids: str | None = None,
    id_pointer: str | None = None,
    closed: bool = False,
    body: bytes = b"",
    config_version: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Request:
    """Create a stream, or (with a version) bring its settings up to that version."""
    if ttl_s is not None and expires_at is not None:
        raise ValueError("give ttl_s or expires_at, not both")
    fields = {
        "Content-Type": content_type,
        "Stream-TTL": _number(ttl_s),
        "Stream-Expires-At": expires_at,
        "Stream-Retention-Seconds": _number(retention_s),
        "Stream-Retention-Bytes": _number(retention_bytes),
        "Stream-Durability": durability,
        "Stream-Unique-Ids": unique_ids,
        "Stream-Id-Pointer": id_pointer,
        "Stream-Closed": "true" if closed else None,
        "Stream-Config-Version": _number(config_version),
    }
    return Request("PUT", url, headers=_present(fields, headers), body=body)


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def fork_request(
    created: Request, source_url: str, *, offset: str | None = None, sub_offset: int | None = None
) -> Request:
    """Let the stream that is created share another one's content up to an offset."""
    fields = {
        "Stream-Forked-From": urlsplit(source_url).path,
        "Stream-Fork-Offset": offset,
        "Stream-Fork-Sub-Offset": _number(sub_offset),
    }
    return Request("PUT", created.url, headers=_present(fields, created.headers))


def append_request(
    url: str,
    body: bytes,
    *,
    content_type: str | None,
    close: bool = False,
    seq: str | None = None,
    producer: ProducerTag | None = None,
    id: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Request:
    """Append a body, close the stream, or both in one step."""
    fields = {
        # A close without data has no content, so it names no type.
        "Content-Type": content_type if body else None,
        "Stream-Closed": "true" if close else None,
        "Stream-Seq": seq,
        "Message-Id": id,
    }
    if producer is not None:
        fields["Producer-Id"] = producer.producer_id
        fields["Producer-Epoch"] = str(producer.epoch)
        fields["Producer-Seq"] = str(producer.seq)
    repeatable = producer is not None or id is not None or not body
    return Request("POST", url, headers=_present(fields, headers), body=body, repeatable=repeatable)


def read_request(
    url: str, *, offset: str, live: Live | None = None, cursor: str | None = None
) -> Request:
    """Read from an offset: what is there, or (live) what comes."""
    params = {"offset": offset}
    if live is not None:
        params["live"] = live
    if live is not None and cursor is not None:
        params["cursor"] = cursor
    headers = {"Accept": "text/event-stream"} if live == "sse" else {}
    return Request("GET", url, params=params, headers=headers, patience=live or "answer")


def _present(
    fields: Mapping[str, str | None], more: Mapping[str, str] | None = None
) -> dict[str, str]:
    return merged({k: v for k, v in fields.items() if v is not None}, more)


# --- Answers -------------------------------------------------------------------------------------


def stream_info(response: Response) -> StreamInfo:
    """The metadata in the headers of a granted PUT or HEAD."""
    if response.status == 200:
        _check_granted(response)

    def number(name: str) -> int | None:
        return whole_number(response.headers.get(name, ""))

    return StreamInfo(
        content_type=response.headers.get("content-type"),
        next_offset=response.next_offset,
        closed=response.closed,
        ttl_s=number("stream-ttl"),
        expires_at=response.headers.get("stream-expires-at"),
        retention_s=number("stream-retention-seconds"),
        retention_bytes=number("stream-retention-bytes"),
        earliest_offset=response.headers.get("stream-earliest-offset"),
        durability=response.headers.get("stream-durability"),
        unique_ids=response.headers.get("stream-unique-ids"),
        id_pointer=response.headers.get("stream-id-pointer"),
        version=number("stream-config-version"),
    )


def receipt(response: Response) -> Receipt:
    """The outcome of a granted append without producer headers."""
    _check_granted(response)
    return Receipt(
        response.next_offset,
        # Counts messages whose id the stream had already; it is not sent otherwise.
        duplicate="stream-duplicate-ids" in response.headers,
        closed=response.closed,
        relaxed=_relaxed(response),
    )


def _check_granted(response: Response) -> None:
    """Refuse what any web server says: a 200 that is not about a stream is no receipt.

    Stream servers may leave the offset out, but not everything.
    """
    if response.status == 204 or response.next_offset is not None:
        return
    if not any(name.startswith(("stream-", "producer-")) for name in response.headers):
        raise unexpected(response, "the answer has no Stream-Next-Offset")


def _relaxed(response: Response) -> bool:
    return response.headers.get("stream-durability") == "relaxed"


def producer_receipt(response: Response, tag: ProducerTag) -> Receipt:
    """The outcome of a granted append with producer headers.

    The answer names the epoch and the highest sequence number accepted so far. If that is not
    our epoch or below our number, the answer belongs to another request (a confused proxy can
    do that), and nothing is known about ours.
    """
    _check_granted(response)
    epoch = response.headers.get("producer-epoch", str(tag.epoch))
    highest = response.headers.get("producer-seq", str(tag.seq))
    number = whole_number(highest)
    if number is None or number < tag.seq or epoch != str(tag.epoch):
        raise unexpected(
            response,
            f"the answer is about epoch {epoch}, sequence {highest}, "
            f"but {tag.epoch}, {tag.seq} was sent",
        )
    return Receipt(
        next_offset=response.next_offset,
        # A close without data is always answered with 204, so there 204 says nothing.
        duplicate=response.status == 204 and not response.closed,
        closed=response.closed,
        relaxed=_relaxed(response),
    )


def decoded(response: Response, kind: type[T]) -> T:
    """The JSON body of a granted request."""
    try:
        return msgspec.json.decode(response.body, type=kind)
    except UNREADABLE as error:
        raise unexpected(response, f"the answer is not what was asked for: {error}") from None


def unexpected(response: Response, problem: str, *, in_doubt: bool = True) -> UnexpectedAnswer:
    """An answer that cannot be right. What it should have told us is unknown."""
    return UnexpectedAnswer(
        problem, status=response.status, headers=response.headers, in_doubt=in_doubt
    )
