"""How requests are authenticated, in both directions.

**Outgoing.** A request to a webhook carries `Webhook-Signature: t=…,kid=…,ed25519=…`: the time in
seconds, the name of the key, and the Ed25519 signature of the time, a dot and the body, in base64
for URLs without padding. The public keys are a JSON Web Key Set; the name of a key is `ds_` and its
thumbprint (RFC 7638).

**Incoming.** A token is the generation of a wake, a dot, and a keyed hash of that generation and
the subscription's number. Numbers are never reused, so a token of a deleted subscription does not
match a younger one of the same name. It cannot be forged without the secret.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final

import msgspec

from headwater.core.subscriptions.errors import TokenInvalid

SECRET_BYTES: Final = 32
_TOKEN_CHARS_MAX: Final = 128


class SigningKey:
    """An Ed25519 key, from 32 secret bytes."""

    def __init__(self, seed: bytes) -> None:
        # Imported on demand: most servers have no webhooks, and all of them start.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        x = base64url(self._key.public_key().public_bytes_raw())
        # The thumbprint covers exactly these members, in this order, without spaces.
        thumbprint = sha256(msgspec.json.encode({"crv": "Ed25519", "kty": "OKP", "x": x})).digest()
        self.kid = f"ds_{base64url(thumbprint)}"
        self.jwk = {
            "kty": "OKP",
            "crv": "Ed25519",
            "x": x,
            "kid": self.kid,
            "use": "sig",
            "alg": "EdDSA",
        }

    def signature(self, body: bytes, now_s: int) -> str:
        """The value of the Webhook-Signature header for a body."""
        signed = self._key.sign(b"%d.%b" % (now_s, body))
        return f"t={now_s},kid={self.kid},ed25519={base64url(signed)}"


def make_token(secret: bytes, subscription_id: int, generation: int) -> str:
    message = b"%d.%d" % (subscription_id, generation)
    return f"{generation:x}.{base64url(hmac.digest(secret, message, 'sha256'))}"


def read_token(secret: bytes, subscription_id: int, token: str) -> int:
    """The generation of a token, if the token belongs to this subscription."""
    number, dot, _ = token.partition(".")
    plausible = dot and len(token) <= _TOKEN_CHARS_MAX and token.isascii() and len(number) <= 16
    try:
        generation = int(number, 16) if plausible else -1
    except ValueError:
        generation = -1
    # Compared in constant time and as a whole, so that a token has exactly one spelling.
    expected = make_token(secret, subscription_id, max(generation, 0))
    if generation < 0 or not hmac.compare_digest(expected.encode(), token.encode()):
        raise TokenInvalid
    return generation


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
