"""JSON Web Tokens: who is let in, and who only looks the part."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
import pytest

from headwater.core.access import Caller, Permission
from headwater.core.errors import Unauthorized
from headwater.http.access.key_sets import FixedKeys
from headwater.http.access.tokens import TokenPolicy, Tokens, UnknownSigner
from headwater.http.access.verification import (
    InvalidKeySet,
    merge,
    parse_key_set,
    shared_secret,
)
from tests.access.guests import AUDIENCE
from tests.access.issuers import Issuer, key_set, standard

RSA, EC, ED = Issuer.rsa(), Issuer.elliptic(), Issuer.edwards()
SECRET = b"a secret of more than 32 bytes, as it has to be"
ISSUERS = [RSA, EC, ED]


def tokens(**policy: Any) -> Tokens:
    chosen = {"audience": AUDIENCE} | policy
    return Tokens(
        [FixedKeys([shared_secret(SECRET)]), FixedKeys(parse_key_set(key_set(*ISSUERS)))],
        TokenPolicy(**chosen),
    )


def find(token: str, **policy: Any) -> Caller:
    return tokens(**policy).find(token, int(time.time() * 1000))


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def hs256(header: dict[str, Any], claims: object, secret: bytes) -> str:
    """Signed by hand: libraries refuse to sign what they should refuse to accept."""
    message = f"{part({'typ': 'JWT'} | header)}.{part(claims)}"
    signature = hmac.digest(secret, message.encode(), "sha256")
    return f"{message}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize("issuer", ISSUERS, ids=lambda i: i.algorithm)
@pytest.mark.parametrize("headers", [None, {}], ids=["named key", "any key"])
def test_each_algorithm(issuer: Issuer, headers: dict[str, Any] | None) -> None:
    caller = find(issuer.sign(headers, headwater={"read": ["a.*"]}, iss="us"))
    assert caller.grants.allow(Permission.READ, "a.b")
    assert not caller.grants.allow(Permission.WRITE, "a.b")
    assert caller.name == "token us guest"


def test_tokens_without_a_subject_share_no_limits() -> None:
    one, other = find(ED.sign(sub=None, jti="1")), find(ED.sign(sub=None, jti="2"))
    assert one.name != other.name


def test_a_shared_secret() -> None:
    token = jwt.encode(standard(), SECRET, "HS256")
    assert find(token).grants.administer_server


def test_a_token_ends_with_its_leeway() -> None:
    exp = int(time.time()) + 100
    caller = find(ED.sign(exp=exp), leeway_s=5.0)
    assert caller.expires_at_ms == (exp + 5) * 1000


# ── Refused ──────────────────────────────────────────────────────────────────────────────────

NOW = int(time.time())
REFUSED = {
    "expired": ED.sign(exp=NOW - 1),
    "no expiry": ED.sign(exp=None),
    "expiry is text": ED.sign(exp="soon"),
    "not yet": ED.sign(nbf=NOW + 600),
    "other audience": ED.sign(aud="others"),
    "no audience": ED.sign(aud=None),
    "grants are no grants": ED.sign(headwater=["read"]),
    "grants with a typo": ED.sign(headwater={"raed": ["a"]}),
    "a pattern that is none": ED.sign(headwater={"read": ["a*"]}),
    "none": f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(standard())}.",
    "None": f"{part({'alg': 'None', 'typ': 'JWT'})}.{part(standard())}.",
    "no algorithm": f"{part({'typ': 'JWT'})}.{part(standard())}.",
    "algorithm is a list": f"{part({'alg': ['EdDSA']})}.{part(standard())}.AA",
    "empty signature": ED.sign().rpartition(".")[0] + ".",
    "another key": Issuer.edwards("ed").sign(),
    "another secret": jwt.encode(standard(), b"x" * 40, "HS256"),
    "HS512": jwt.encode(standard(), SECRET * 2, "HS512"),
    "RS512": jwt.encode(standard(), RSA.private, "RS512", headers={"kid": "rsa"}),
    "PS256": jwt.encode(standard(), RSA.private, "PS256", headers={"kid": "rsa"}),
    "public key as secret": hs256({"alg": "HS256"}, standard(), RSA.pem),
    "public key as secret, with its id": hs256({"alg": "HS256", "kid": "rsa"}, standard(), RSA.pem),
    "jwk as secret": hs256({"alg": "HS256"}, standard(), json.dumps(RSA.jwk).encode()),
    "ed key as secret": hs256(
        {"alg": "HS256", "kid": "ed"}, standard(), base64.urlsafe_b64decode(ED.jwk["x"] + "=")
    ),
    "critical extension": ED.sign({"kid": "ed", "crit": ["exp2"], "exp2": 1}),
    "a jwk of its own": Issuer.edwards("x").sign({"jwk": Issuer.edwards("x").jwk}),
    "no object": hs256({"alg": "HS256"}, [1, 2], SECRET),
    "nothing": "",
    "dots": "..",
    "one part": "abc",
    "four parts": ED.sign() + ".AA",
    "not base64": "%%%.%%%.%%%",
    "deep header": base64.urlsafe_b64encode(b"[" * 5000).decode() + ".e30.AA",
    "too long": ED.sign(filler="x" * 20_000),
    "huge expiry": hs256({"alg": "HS256"}, standard(exp=float("inf")), SECRET),
}


@pytest.mark.parametrize("name", REFUSED)
def test_who_is_refused(name: str) -> None:
    with pytest.raises((Unauthorized, UnknownSigner)):
        find(REFUSED[name])


def test_the_payload_cannot_be_changed() -> None:
    header, _, signature = ED.sign(headwater={}).split(".")
    with pytest.raises(Unauthorized):
        find(f"{header}.{part(standard())}.{signature}")


def test_the_issuer_where_one_is_set() -> None:
    assert find(ED.sign(iss="us"), issuer="us").grants.administer_server
    for other in ("them", None):
        with pytest.raises(Unauthorized):
            find(ED.sign(iss=other), issuer="us")


def test_the_audience_where_none_is_set() -> None:
    assert find(ED.sign(aud="others"), audience="").grants.administer_server


def test_another_claim() -> None:
    caller = find(ED.sign(rights={"read": ["a"]}, headwater=None), claim="rights")
    assert caller.grants.allow(Permission.READ, "a")


def test_an_unknown_key_may_be_a_new_one() -> None:
    with pytest.raises(UnknownSigner):
        find(Issuer.edwards("new").sign())


def test_a_token_that_was_verified_still_expires() -> None:
    known = tokens()
    token = ED.sign(exp=int(time.time()) + 60)
    caller = known.find(token, int(time.time() * 1000))
    assert known.find(token, int(time.time() * 1000)) is caller
    for _ in range(2):
        with pytest.raises(Unauthorized):
            known.find(token, int(time.time() * 1000) + 61_000)


# ── Sets of keys ─────────────────────────────────────────────────────────────────────────────


def test_only_public_keys_of_known_kinds_are_taken() -> None:
    secret_jwk = {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET).decode(), "alg": "HS256"}
    private_jwk = ED.jwk | {"d": "AAAA"}
    odd = [
        secret_jwk,
        private_jwk,
        EC.jwk | {"use": "enc"},
        RSA.jwk | {"alg": "HS256"},
        RSA.jwk | {"alg": "RS512"},
        Issuer.rsa(bits=1024).jwk,
        {"kty": "EC", "crv": "P-256", "x": "!", "y": "!"},
        {"kty": "OKP", "crv": "X25519", "x": ED.jwk["x"]},
        {"kty": ["RSA"]},
        "key",
    ]
    keys = parse_key_set(json.dumps({"keys": [*odd, ED.jwk]}).encode())
    assert [(key.algorithm, key.id) for key in keys] == [("EdDSA", "ed")]
    with pytest.raises(InvalidKeySet):
        parse_key_set(json.dumps({"keys": odd}).encode())


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"keys": {}}', b"\xff", b'{"keys": []}'])
def test_what_is_no_set_of_keys(raw: bytes) -> None:
    with pytest.raises(InvalidKeySet):
        parse_key_set(raw)


def test_too_many_keys() -> None:
    with pytest.raises(InvalidKeySet, match="most"):
        parse_key_set(json.dumps({"keys": [ED.jwk] * 101}).encode())


def test_a_short_secret() -> None:
    with pytest.raises(InvalidKeySet):
        shared_secret(b"short")


def test_callers_end_with_the_key_that_vouched_for_them() -> None:
    source = FixedKeys(parse_key_set(key_set(ED, EC)))
    known = Tokens([source], TokenPolicy(AUDIENCE))
    now = int(time.time() * 1000)
    token = ED.sign()
    stays, goes = known.find(EC.sign(), now), known.find(token, now)
    source.replace(parse_key_set(key_set(EC)))
    assert stays.is_valid(now)
    assert not goes.is_valid(now)
    with pytest.raises(UnknownSigner):
        known.find(token, now)


def test_keys_that_stay_are_the_same() -> None:
    known = parse_key_set(key_set(ED, EC))
    merged = merge(known, parse_key_set(key_set(EC, RSA)))
    assert merged[0] is known[1]
    assert [key.credential.ended for key in known] == [True, False]


def test_nothing_shows_a_secret() -> None:
    key = shared_secret(SECRET)
    assert SECRET.decode() not in repr(key)
    assert hashlib.sha256(SECRET).hexdigest() not in repr(key)
