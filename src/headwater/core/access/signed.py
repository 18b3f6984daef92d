"""Signed addresses: reading one stream without a token, until a moment.

Browsers cannot send headers with an `EventSource`, and a link has none either. So a caller can
have an address signed that carries the proof in its query: `expires` (seconds since 1970), `key`
(the id of the key that asked for it, empty for a token) and `signature`, an HMAC-SHA-256 over all
of these, the method and the stream's name, made with a secret that only the server knows.

It allows GET and HEAD on that very stream, at any offset and in any live mode, and nothing else.
It ends at its moment, with the key that asked for it, and when the server's secret is replaced.
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
    """What the query of a signed address says."""

    expires: str
    key_id: str
    signature: str


def sign(secret: bytes, path: str, expires_s: int, key_id: str) -> str:
    return _signature(secret, path, str(expires_s), key_id)


def verify(secret: bytes, path: str, claim: Claim) -> int | None:
    """The moment at which a claim ends, in seconds; None if it was not signed like this."""
    expected = _signature(secret, path, claim.expires, claim.key_id)
    # As bytes: what others send need not be ASCII.
    if not hmac.compare_digest(expected.encode(), claim.signature.encode()):
        return None
    # What was signed is a number, but better not to depend on that.
    return whole_number(claim.expires, _DIGITS_MAX)


def check_duration(seconds: int) -> int:
    if not 1 <= seconds <= SIGNED_SECONDS_MAX:
        raise InvalidRequest(
            f"a signed address lasts from 1 to {SIGNED_SECONDS_MAX} seconds, not {seconds}"
        )
    return seconds


def _signature(secret: bytes, path: str, expires: str, key_id: str) -> str:
    # No part can hold a line feed but the path, and that comes last.
    message = "\n".join((_PURPOSE, METHOD, expires, key_id, path)).encode()
    return urlsafe_b64encode(hmac.digest(secret, message, "sha256")).rstrip(b"=").decode()
