"""Keys that tokens are verified with.

Each key works with exactly one algorithm, which depends on the kind of key and never on the token.
So a public key cannot be mistaken for a shared secret, and `none` fits no key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headwater.core.access import Credential

KEYS_MAX: Final = 100
SECRET_BYTES_MIN: Final = 32
_RSA_BITS_MIN: Final = 2048
_ALGORITHMS: Final = {
    ("RSA", None): "RS256",
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
}


class InvalidKeySet(Exception):
    """Not a set of keys; the message says why in one line."""


@dataclass(frozen=True, slots=True, eq=False)
class VerificationKey:
    algorithm: str
    id: str | None
    material: Any = field(repr=False)
    source: bytes = field(repr=False)
    """The key as given, to detect changes."""
    credential: Credential = field(default_factory=Credential)


def shared_secret(secret: bytes) -> VerificationKey:
    if len(secret) < SECRET_BYTES_MIN:
        raise InvalidKeySet(f"the secret for tokens must have at least {SECRET_BYTES_MIN} bytes")
    return VerificationKey("HS256", None, secret, secret)


def parse_key_set(raw: bytes) -> list[VerificationKey]:
    """The public keys of a JWK set; keys for other purposes are left out."""
    try:
        document = msgspec.json.decode(raw)
        entries = document["keys"]
        if not isinstance(entries, list):
            raise TypeError
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        raise InvalidKeySet("it is not a JWK set: a JSON object with a list of keys") from None
    if len(entries) > KEYS_MAX:
        raise InvalidKeySet(f"it has {len(entries)} keys; {KEYS_MAX} is the most")
    keys = [key for key in map(_parse_key, entries) if key is not None]
    if not keys:
        raise InvalidKeySet("it has no public key for RS256, ES256 or EdDSA")
    return keys


def _parse_key(entry: Any) -> VerificationKey | None:
    if not isinstance(entry, dict) or "d" in entry or entry.get("use", "sig") != "sig":
        return None
    kind = entry.get("kty")
    curve = entry.get("crv") if kind != "RSA" else None
    algorithm = _ALGORITHMS.get((str(kind), None if curve is None else str(curve)))
    if algorithm is None or entry.get("alg", algorithm) != algorithm:
        return None
    # Imported here: most servers use no tokens and start sooner without it.
    import jwt
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    key_id = entry.get("kid")
    try:
        material = jwt.PyJWK(entry, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(material, RSAPublicKey) and material.key_size < _RSA_BITS_MIN:
        return None
    source = msgspec.json.encode(entry, order="deterministic")
    return VerificationKey(algorithm, key_id if isinstance(key_id, str) else None, material, source)


def merge(
    known: Sequence[VerificationKey], current: Sequence[VerificationKey]
) -> list[VerificationKey]:
    """The current keys: known ones stay the same objects, removed ones are ended."""
    by_source = {key.source: key for key in known}
    merged = [by_source.pop(key.source, key) for key in current]
    for gone in by_source.values():
        gone.credential.ended = True
    return merged
