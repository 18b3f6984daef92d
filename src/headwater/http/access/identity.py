"""From a request to its caller: a key, a token, or a signed address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headwater.core.access import Caller, Credential, signed
from headwater.core.access.grants import Permission, read_only
from headwater.core.access.keys import PREFIX
from headwater.core.errors import InvalidQuery, Unauthorized
from headwater.http.access.keyring import Keyring
from headwater.http.access.tokens import Tokens, expired, refused
from headwater.http.messages import Request
from headwater.http.queries import parse_query
from headwater.http.routes.matching import STREAM_RESOURCE, Match

AUTHORIZATION: Final = b"authorization"
_READS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Identity:
    keyring: Keyring
    tokens: Tokens
    secret: bytes = field(repr=False)
    """The secret that addresses are signed with."""

    def find(self, request: Request, match: Match, now_ms: int) -> Caller:
        header = request.headers.get(AUTHORIZATION)
        if header is not None:
            return self._bearer(header, now_ms)
        if b"signature=" in request.query:
            return self._signed(request, match, now_ms)
        raise Unauthorized(sent=False)

    def _bearer(self, header: bytes, now_ms: int) -> Caller:
        scheme, _, token_bytes = header.partition(b" ")
        try:
            token = token_bytes.strip().decode("ascii")
        except UnicodeDecodeError:
            raise refused() from None
        if scheme.lower() != b"bearer" or not token:
            raise refused()
        if not token.startswith(PREFIX):
            return self.tokens.find(token, now_ms)
        caller = self.keyring.find(token)
        if caller is None:
            raise refused()
        if not caller.is_valid(now_ms):
            raise expired()
        return caller

    def _signed(self, request: Request, match: Match, now_ms: int) -> Caller:
        claim = _claim(request.query)
        if claim is None or match.resource is not STREAM_RESOURCE or request.method not in _READS:
            raise refused()
        (path,) = match.args
        expires_s = signed.verify(self.secret, path, claim)
        if expires_s is None:
            raise refused()
        credential, expires_at_ms = Credential(), expires_s * 1000
        if claim.key_id:
            signer = self.keyring.by_id(claim.key_id)
            if signer is None or not signer.grants.allow(Permission.READ, path):
                raise refused()
            credential = signer.credential
            expires_at_ms = min(expires_at_ms, signer.expires_at_ms or expires_at_ms)
        if now_ms >= expires_at_ms:
            raise expired()
        name = f"address of {claim.key_id or 'a token'} for {path}"
        return Caller(name, read_only(path), credential, expires_at_ms)


def _claim(query: bytes) -> signed.Claim | None:
    try:
        fields = parse_query(query)
    except InvalidQuery:
        return None
    values = [fields.get(name, []) for name in ("expires", "key", "signature")]
    # Exactly one of each, so that it is unambiguous which one counts.
    if any(len(value) != 1 for value in values):
        return None
    return signed.Claim(*[value[0] for value in values])
