"""Reasons to refuse a request about a durable response.

The codes are in capitals because the public contract spells them so.
"""

from __future__ import annotations

from headwater.core.errors import InvalidRequest, StreamError, TooBusy


class MissingUpstreamUrl(InvalidRequest):
    code = "MISSING_UPSTREAM_URL"

    def __init__(self) -> None:
        super().__init__("send Upstream-URL with the address to fetch")


class MissingUpstreamMethod(InvalidRequest):
    code = "MISSING_UPSTREAM_METHOD"

    def __init__(self) -> None:
        super().__init__("send Upstream-Method with the method to use, e.g. POST")


class InvalidUpstreamMethod(InvalidRequest):
    code = "INVALID_UPSTREAM_METHOD"

    def __init__(self, methods: str) -> None:
        super().__init__(f"Upstream-Method must be one of {methods}")


class RedirectNotAllowed(InvalidRequest):
    code = "REDIRECT_NOT_ALLOWED"

    def __init__(self, status: int) -> None:
        super().__init__(
            f"the upstream answered {status}, and redirects are not followed; send the final "
            "address as Upstream-URL"
        )


class InvalidAction(InvalidRequest):
    code = "INVALID_ACTION"

    def __init__(self) -> None:
        super().__init__("PATCH takes action=abort and nothing else")


class NotAuthenticated(StreamError):
    """Neither a valid key nor a valid signature."""


class MissingSignature(NotAuthenticated):
    code = "MISSING_SIGNATURE"

    def __init__(self) -> None:
        super().__init__("use the address of the Location header as it is, with its signature")


class InvalidSignature(NotAuthenticated):
    code = "SIGNATURE_INVALID"

    def __init__(self) -> None:
        super().__init__("the signature does not fit this address; use it as the server gave it")


class SignatureExpired(NotAuthenticated):
    code = "SIGNATURE_EXPIRED"

    def __init__(self) -> None:
        super().__init__("this address has expired; make the request again for a new one")


class UpstreamNotAllowed(StreamError):
    code = "UPSTREAM_NOT_ALLOWED"


class ResponseNotFound(StreamError):
    code = "STREAM_NOT_FOUND"

    def __init__(self) -> None:
        super().__init__("there is no such response; it was deleted, or its time is over")


class UpstreamFailed(StreamError):
    code = "UPSTREAM_ERROR"


class UpstreamTimeout(StreamError):
    code = "UPSTREAM_TIMEOUT"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the upstream did not answer within {seconds:g} s")


class StorageFailed(StreamError):
    code = "STORAGE_ERROR"

    def __init__(self, problem: str) -> None:
        super().__init__(f"the response could not be stored: {problem}")


class TooManyResponses(TooBusy):
    code = "TOO_MANY_RESPONSES"
