"""Those who sign tokens, each with a key of its own kind."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.access.guests import AUDIENCE, secret

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@dataclass
class Issuer:
    algorithm: str
    private: Private = field(repr=False)
    key_id: str

    @classmethod
    def rsa(cls, key_id: str = "rsa", bits: int = 2048) -> Issuer:
        return cls("RS256", rsa.generate_private_key(65537, bits), key_id)

    @classmethod
    def elliptic(cls, key_id: str = "ec") -> Issuer:
        return cls("ES256", ec.generate_private_key(ec.SECP256R1()), key_id)

    @classmethod
    def edwards(cls, key_id: str = "ed") -> Issuer:
        return cls("EdDSA", ed25519.Ed25519PrivateKey.generate(), key_id)

    @property
    def jwk(self) -> dict[str, Any]:
        public: Any = self.private.public_key()
        encode: Any = {
            "RS256": RSAAlgorithm.to_jwk,
            "ES256": ECAlgorithm.to_jwk,
            "EdDSA": OKPAlgorithm.to_jwk,
        }[self.algorithm]
        fields: dict[str, Any] = json.loads(encode(public))
        return fields | {"kid": self.key_id, "use": "sig"}

    @property
    def pem(self) -> bytes:
        return self.private.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )

    def sign(self, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        headers = {"kid": self.key_id} if headers is None else headers
        token = jwt.encode(standard(**claims), self.private, self.algorithm, headers=headers)
        return secret(token)


def standard(**claims: Any) -> dict[str, Any]:
    """What a token of ours says, unless told otherwise. None leaves a claim out."""
    usual = {
        "exp": int(time.time()) + 600,
        "aud": AUDIENCE,
        "sub": "guest",
        "headwater": {"admin": ["**"]},
    }
    return {name: value for name, value in (usual | claims).items() if value is not None}


def key_set(*issuers: Issuer) -> bytes:
    return json.dumps({"keys": [issuer.jwk for issuer in issuers]}).encode()
