"""Refusals on the wire: the one place that maps errors to HTTP."""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.core import errors
from headwater.core.errors import PublishRefused, StreamError
from headwater.core.responses import errors as response_errors
from headwater.core.subscriptions import errors as subscription_errors
from headwater.http.answers import JSON_HEADERS
from headwater.http.error_pages import link_to
from headwater.http.messages import Headers, Response

# The nearest base class of an error decides.
STATUS: Final[dict[type[StreamError], int]] = {
    errors.InvalidRequest: 400,
    subscription_errors.TokenInvalid: 401,
    errors.Unauthorized: 401,
    response_errors.NotAuthenticated: 401,
    errors.StaleEpoch: 403,
    errors.Forbidden: 403,
    errors.CrossSite: 403,
    errors.QuotaExceeded: 403,
    response_errors.UpstreamNotAllowed: 403,
    errors.TooManyProducers: 403,
    errors.StreamNotFound: 404,
    errors.GroupNotFound: 404,
    errors.LiveNotEnabled: 404,
    subscription_errors.SubscriptionNotFound: 404,
    errors.SnapshotNotFound: 404,
    response_errors.ResponseNotFound: 404,
    errors.Conflict: 409,
    errors.StreamGone: 410,
    errors.OffsetExpired: 410,
    errors.BodyTooLarge: 413,
    errors.TooManyMessages: 413,
    errors.ArrowUnavailable: 406,
    errors.JsonRequired: 415,
    errors.UnknownHost: 421,
    errors.MissingBefore: 422,
    errors.TooBusy: 429,
    errors.DataCorrupt: 500,
    response_errors.UpstreamFailed: 502,
    response_errors.StorageFailed: 502,
    errors.StorageUnavailable: 503,
    errors.OwnedElsewhere: 503,
    errors.BuffersFull: 503,
    errors.BodiesFull: 503,
    response_errors.UpstreamTimeout: 504,
    StreamError: 400,
}
RETRIED: Final = (429, 503)
"""Statuses of errors that may go away by themselves."""
RETRY_AFTER_S: Final = "1"


def status_of(kind: type[StreamError]) -> int:
    return next(STATUS[base] for base in kind.__mro__ if base in STATUS)


def error_response(error: StreamError) -> Response:
    if isinstance(error, PublishRefused):
        return _refused_publish(error)
    status = status_of(type(error))
    headers = _extra_headers(error)
    if status in RETRIED and not isinstance(error, errors.RateExceeded):
        headers.append(("Retry-After", RETRY_AFTER_S))
    return plain_error(status, error.code, error.message, headers, error.details())


def _refused_publish(error: PublishRefused) -> Response:
    """The reason, and which publish failed. A missing stream is a conflict here, not a 404."""
    response = error_response(error.reason)
    status = 409 if response.status in (403, 404, 410) else response.status
    about = {"code": error.reason.code, "message": error.message, "index": error.index}
    body = msgspec.json.encode({"error": about})
    return Response(status, response.headers, body, code=error.reason.code)


def plain_error(
    status: int,
    code: str,
    message: str,
    headers: Headers | None = None,
    details: dict[str, object] | None = None,
) -> Response:
    body = msgspec.json.encode({"error": {"code": code, "message": message, **(details or {})}})
    return Response(status, [*JSON_HEADERS, link_to(code), *(headers or ())], body, code=code)


def not_allowed(allow: str) -> Response:
    message = f"this resource answers {allow}"
    return plain_error(405, "method_not_allowed", message, [("Allow", allow)])


def _extra_headers(error: StreamError) -> Headers:
    match error:
        case errors.StreamClosed():
            return [("Stream-Closed", "true"), ("Stream-Next-Offset", error.next_offset)]
        case errors.SequenceGap():
            return [
                ("Producer-Expected-Seq", str(error.expected)),
                ("Producer-Received-Seq", str(error.received)),
            ]
        case errors.OffsetExpired():
            return [("Stream-Earliest-Offset", error.earliest)]
        case errors.StaleEpoch():
            return [("Producer-Epoch", str(error.current))]
        case subscription_errors.TokenInvalid():
            return [("WWW-Authenticate", "Bearer")]
        case errors.RateExceeded():
            return [("Retry-After", str(error.retry_after_s))]
        case errors.Unauthorized():
            problem = ', error="invalid_token"' if error.sent else ""
            return [("WWW-Authenticate", f'Bearer realm="headwater"{problem}')]
        case _:
            return []
