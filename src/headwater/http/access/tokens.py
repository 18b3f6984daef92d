"""JSON Web Tokens: from a token to a caller.

A token must be signed with a known key, must not have expired, must match the audience and issuer
if those are set, and says in one claim what its bearer may do: `{"read": ["orders.*"]}`. A token
without that claim is valid but permits nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from headwater.core.access import Caller, parse_grants
from headwater.core.errors import Unauthorized
from headwater.core.limits import TOKEN_BYTES_MAX
from headwater.core.patterns import InvalidPattern
from headwater.http.access.key_sets import KeySource
from headwater.http.access.verification import VerificationKey

_VERIFIED_MAX: Final = 10_000
_NAME_CHARS_MAX: Final = 256


class UnknownSigner(Exception):
    """No known key could have signed this; there may be a newer one."""


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """What a token must say. Empty values are not checked."""

    audience: str = ""
    issuer: str = ""
    leeway_s: float = 0.0
    claim: str = "headwater"


class Tokens:
    def __init__(self, sources: Sequence[KeySource], policy: TokenPolicy) -> None:
        # Imported here: most servers use no tokens and start sooner without it.
        import jwt

        self._jwt = jwt
        self.sources = sources
        self._policy = policy
        self._verified: OrderedDict[bytes, Caller] = OrderedDict()

    def find(self, token: str, now_ms: int) -> Caller:
        """The caller of a token. Verification is expensive, so it happens once per token."""
        digest = sha256(token.encode()).digest()
        caller = self._verified.get(digest)
        if caller is None or caller.credential.ended:
            caller = self._verified[digest] = self._verify(token, digest.hex())
            if len(self._verified) > _VERIFIED_MAX:
                self._verified.popitem(last=False)
        if not caller.is_valid(now_ms):
            raise expired()
        return caller

    async def look_again(self) -> bool:
        """Fetch newer keys. False if nothing can have changed."""
        return any([await source.look_again() for source in self.sources])

    def _verify(self, token: str, digest: str) -> Caller:
        jwt = self._jwt
        if len(token) > TOKEN_BYTES_MAX:
            raise refused()
        try:
            candidates = self._candidates(jwt.get_unverified_header(token))
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise refused() from None
        if not candidates:
            raise UnknownSigner
        for key in candidates:
            claims = self._claims(token, key)
            if claims is not None:
                return self._caller(claims, key, digest)
        raise refused()

    def _candidates(self, header: dict[str, Any]) -> list[VerificationKey]:
        """Keys that may have signed the token. Unsigned tokens have none."""
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ("HS256", "RS256", "ES256", "EdDSA"):
            raise ValueError("no such algorithm")
        return [
            key
            for source in self.sources
            for key in source.keys
            if key.algorithm == algorithm and (None in (key.id, key_id) or key.id == key_id)
        ]

    def _claims(self, token: str, key: VerificationKey) -> dict[str, Any] | None:
        """The token's claims; None if it was not signed with this key."""
        policy, jwt = self._policy, self._jwt
        options: Any = {"require": ["exp"], "verify_aud": bool(policy.audience)}
        if policy.issuer:
            options["require"].append("iss")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.material,
                algorithms=[key.algorithm],
                audience=policy.audience or None,
                issuer=policy.issuer or None,
                leeway=policy.leeway_s,
                options=options,
            )
        except jwt.InvalidSignatureError:
            return None
        except jwt.ExpiredSignatureError:
            raise expired() from None
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError):
            raise refused() from None
        return claims

    def _caller(self, claims: dict[str, Any], key: VerificationKey, digest: str) -> Caller:
        try:
            grants = parse_grants(claims.get(self._policy.claim, {}))
        except InvalidPattern as error:
            raise Unauthorized(
                f"the claim {self._policy.claim!r} of the token is not valid: {error.message}",
                sent=True,
            ) from None
        # Limits are counted by name; a token without a subject gets its own name.
        subject = str(claims["sub"]) if "sub" in claims else digest
        issuer = str(claims.get("iss", ""))
        return Caller(
            name=f"token {issuer} {subject}"[:_NAME_CHARS_MAX],
            grants=grants,
            credential=key.credential,
            expires_at_ms=int(claims["exp"]) * 1000 + int(self._policy.leeway_s * 1000),
        )


def refused() -> Unauthorized:
    return Unauthorized("the key or token is not valid here; get another one", sent=True)


def expired() -> Unauthorized:
    return Unauthorized("the key or token has expired; get a new one", sent=True)
