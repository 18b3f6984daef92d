"""Refusals: from an answer to the error that it stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from headwater.client.errors import (
    AlreadyClaimed,
    ConfigConflict,
    Conflict,
    DuplicateId,
    Fenced,
    Forbidden,
    GroupNotFound,
    LiveNotEnabled,
    NoPendingWork,
    ResponseError,
    SequenceConflict,
    StaleEpoch,
    StaleReceipt,
    StreamClosed,
    SubscriptionNotFound,
    UpstreamRefused,
    class_for_status,
)
from headwater.client.protocol.addresses import origin_of
from headwater.client.protocol.streams import Request, Response
from headwater.client.protocol.values import UNREADABLE
from headwater.core.content_types import JSON, media_type
from headwater.core.numbers import whole_number

_MESSAGE_CHARS_MAX: Final = 300
_RETRY_AFTER_S_MAX: Final = 86_400.0
_HELP: Final = re.compile(r'<(?P<path>/[\w/-]{1,200})>; rel="help"', re.ASCII)
_CONFLICTS: Final[Mapping[str, type[Conflict]]] = {
    "duplicate_id": DuplicateId,
    "stale_receipt": StaleReceipt,
    "FENCED": Fenced,
    "ALREADY_CLAIMED": AlreadyClaimed,
    "NO_PENDING_WORK": NoPendingWork,
}
_NOT_FOUND: Final[Mapping[str, type[ResponseError]]] = {
    "group_not_found": GroupNotFound,
    "SUBSCRIPTION_NOT_FOUND": SubscriptionNotFound,
}


def failure(request: Request, response: Response, *, now: float) -> ResponseError | None:
    """The error that an answer stands for; None when the request was granted.

    `now` is the time in seconds since 1970: `Retry-After` may name an instant.
    """
    if 200 <= response.status < 300:
        return None
    code, message, index = _error_body(response)
    return _error_class(request, response, code)(
        message or f"{request.method} failed",
        where=urlsplit(request.url).path,
        status=response.status,
        code=code,
        headers=response.headers,
        retry_after_s=retry_after_s(response.headers.get("retry-after"), now=now),
        help_url=_help_url(request, response),
        index=index,
        # A proxy may answer 5xx after it has passed the request on. A 503 that carries a stable
        # code comes from the stream server itself, which promises that nothing was written, unless
        # it says that it does not know.
        in_doubt=response.status >= 500
        and not (response.status == 503 and code not in (None, "outcome_unknown")),
    )


def _help_url(request: Request, response: Response) -> str | None:
    """The page about an error, if it is on the same server."""
    found = _HELP.search(response.headers.get("link", ""))
    return None if found is None else f"{origin_of(request.url)}{found['path']}"


def retry_after_s(text: str | None, *, now: float) -> float | None:
    """Seconds to wait by a `Retry-After` header: a number of seconds or an HTTP date.

    Nobody means more than a day, so that is not obeyed: a reader that never gives up would wait
    for ever.
    """
    if not text:
        return None
    seconds: float | None = whole_number(text)
    if seconds is None:
        try:
            seconds = max(0.0, parsedate_to_datetime(text).timestamp() - now)
        except (ValueError, OverflowError):
            return None
    return seconds if seconds <= _RETRY_AFTER_S_MAX else None


def _error_class(request: Request, response: Response, code: str | None) -> type[ResponseError]:
    by_status = class_for_status(response.status)
    if "upstream-status" in response.headers:
        return UpstreamRefused
    # Inside a transaction, a fenced producer is a conflict.
    if code == "stale_epoch" or (by_status is Forbidden and "producer-epoch" in response.headers):
        return StaleEpoch
    if code == "not_found" and "/touch/" in request.url:
        return LiveNotEnabled
    if code is not None and code in _NOT_FOUND:
        return _NOT_FOUND[code]
    if by_status is not Conflict:
        return by_status
    if response.closed:
        return StreamClosed
    if "producer-expected-seq" in response.headers or code == "stream_seq_conflict":
        return SequenceConflict
    if code is None and "Stream-Seq" in request.headers:
        # Servers without codes do not say which conflict it is; the sequence is the likely one.
        return SequenceConflict
    if code in (None, "config_conflict", "content_type_mismatch"):
        return ConfigConflict
    return _CONFLICTS.get(code, Conflict)


def _error_body(response: Response) -> tuple[str | None, str, int | None]:
    """The stable code, the message and the index of the publish at fault, as far as there are any.

    Other servers send plain text.
    """
    kind = media_type(response.headers.get("content-type"))
    if kind == JSON:
        try:
            body: Any = msgspec.json.decode(response.body)
        except UNREADABLE:
            return None, "", None
        error = body.get("error") if isinstance(body, dict) else None
        if not isinstance(error, dict):
            return None, str(error or ""), None
        code, index = error.get("code"), error.get("index")
        return (
            code if isinstance(code, str) else None,
            str(error.get("message", "")),
            index if isinstance(index, int) else None,
        )
    if kind == "text/plain":
        return None, response.body.decode(errors="replace").strip()[:_MESSAGE_CHARS_MAX], None
    return None, "", None
