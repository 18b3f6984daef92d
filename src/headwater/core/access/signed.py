"""Signed addresses: reading one stream without a token, for a limited time.

Browsers cannot send headers with an `EventSource`, and a link has none either. So a caller can
request a signed address, which carries the proof in its query: `expires` (seconds since 1970),
`key` (the id of the key that requested it, empty for a token) and `signature`, an HMAC-SHA-256 over
these, the method and the stream's name, with a secret that only the server knows.

It allows GET and HEAD on that stream, at any offset and in any live mode, and nothing else. It ends
when it expires, when the key that requested it ends, or when the server's secret is replaced.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from typing import Final, NamedTuple

from headwater.core.errors import InvalidRequest
from headwater.core.limits import SIGNED_SECONDS_MAX
from headwater.core.numbers import whole_number

METHOD: Final = "GET"
SECRET_BYTES: Final = 32
_PURPOSE: Final = "headwater signed address 1"
_DIGITS_MAX: Final = 15


class Claim(NamedTuple):
    """The query parameters of a signed address."""

    expires: str
    key_id: str
    signature: str


def sign(secret: bytes, path: str, expires_s: int, key_id: str) -> str:
    return _signature(secret, path, str(expires_s), key_id)


def verify(secret: bytes, path: str, claim: Claim) -> int | None:
    """When a claim expires, in seconds; None if the signature does not match."""
    expected = _signature(secret, path, claim.expires, claim.key_id)
    # As bytes: input need not be ASCII.
    if not hmac.compare_digest(expected.encode(), claim.signature.encode()):
        return None
    # A signed value is a number, but it is safer not to depend on that.
    return whole_number(claim.expires, _DIGITS_MAX)


def check_duration(seconds: int) -> int:
    if not 1 <= seconds <= SIGNED_SECONDS_MAX:
        raise InvalidRequest(
            f"a signed address lasts from 1 to {SIGNED_SECONDS_MAX} seconds, not {seconds}"
        )
    return seconds


def _signature(secret: bytes, path: str, expires: str, key_id: str) -> str:
    # Only the path can contain a line feed, and it comes last.
    message = "\n".join((_PURPOSE, METHOD, expires, key_id, path)).encode()
    return urlsafe_b64encode(hmac.digest(secret, message, "sha256")).rstrip(b"=").decode()
