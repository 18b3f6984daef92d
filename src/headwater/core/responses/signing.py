"""Signed addresses of responses.

`expires` (seconds since 1970) and `signature`, an HMAC-SHA-256 over the response's id and that
time, with a secret that only the server knows. Until then, such an address can read one response in
every way that a stream can be read, and abort it. The response itself expires at the same time.
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
    """Refuse an address with an invalid signature or one that has expired."""
    # Exactly one of each, so that it is clear which one counts.
    if len(expires) != 1 or len(signature) != 1:
        raise MissingSignature
    expected = _signature(secret, response_id, expires[0])
    # As bytes: input need not be ASCII.
    if not hmac.compare_digest(expected.encode(), signature[0].encode()):
        raise InvalidSignature
    # A signed value is a number, but it is safer not to depend on that.
    expires_s = whole_number(expires[0], _DIGITS_MAX)
    if expires_s is None:
        raise InvalidSignature
    if now_ms >= expires_s * 1000:
        raise SignatureExpired


def _signature(secret: bytes, response_id: str, expires: str) -> str:
    # Only the last part can contain a line feed: no id with one is ever signed.
    message = "\n".join((_PURPOSE, response_id, expires)).encode()
    return urlsafe_b64encode(hmac.digest(secret, message, "sha256")).rstrip(b"=").decode()
