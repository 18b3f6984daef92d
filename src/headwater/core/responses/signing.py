"""Signed addresses of responses.

`expires` (seconds since 1970) and `signature`, an HMAC-SHA-256 over the id of the response and that
moment, made with a secret that only the server knows. Such an address reads one response in every
way that a stream can be read, and aborts it, until that moment, which is also the end of the
response itself.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from typing import Final

from headwater.core.numbers import whole_number
from headwater.core.responses.errors import InvalidSignature, MissingSignature, SignatureExpired

_PURPOSE: Final = "headwater response 1"
_DIGITS_MAX: Final = 15


def sign(secret: bytes, response_id: str, expires_s: int) -> str:
    return _signature(secret, response_id, str(expires_s))


def verify(
    secret: bytes,
    response_id: str,
    expires: list[str],
    signature: list[str],
    now_ms: int,
) -> None:
    """Refuse an address that was not signed, or was meant to last until earlier."""
    # Exactly one of each, so that there is no doubt which one counts.
    if len(expires) != 1 or len(signature) != 1:
        raise MissingSignature
    expected = _signature(secret, response_id, expires[0])
    # As bytes: what others send need not be ASCII.
    if not hmac.compare_digest(expected.encode(), signature[0].encode()):
        raise InvalidSignature
    # What was signed is a number, but better not to depend on that.
    expires_s = whole_number(expires[0], _DIGITS_MAX)
    if expires_s is None:
        raise InvalidSignature
    if now_ms >= expires_s * 1000:
        raise SignatureExpired


def _signature(secret: bytes, response_id: str, expires: str) -> str:
    # No part can hold a line feed but the last: an id that does is signed for nobody.
    message = "\n".join((_PURPOSE, response_id, expires)).encode()
    return urlsafe_b64encode(hmac.digest(secret, message, "sha256")).rstrip(b"=").decode()
