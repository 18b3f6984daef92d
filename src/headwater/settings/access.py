"""Who may do what: keys, tokens and signed addresses."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings


class AccessSettings(BaseSettings):
    insecure: bool = Field(
        False, description="Listen on an address other than loopback without access control."
    )
    access: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether requests need a key or token; auto: only if there are keys, or tokens "
        "are set up.",
    )
    keys_file: str = Field(
        "",
        description="File of API keys; by default, keys.json in the data directory, or the "
        "engine's database.",
    )
    signing_secret_file: str = Field(
        "",
        description="File with the secret for signed addresses; by default, one is created in the "
        "data directory, or in the engine's database.",
    )
    jwt_secret_file: str = Field(
        "", description="File with the secret that tokens are signed with (HS256)."
    )
    jwt_jwks: str = Field(
        "",
        description="File or https address of the public keys for tokens, a JWK set (RS256, "
        "ES256, EdDSA).",
    )
    jwt_audience: str = Field("", description="The audience that tokens must name.")
    jwt_issuer: str = Field("", description="The issuer that tokens must name.")
    jwt_leeway_ms: int = Field(
        10_000, ge=0, le=600_000, description="How far off the clocks of token issuers may be."
    )
    jwt_claim: str = Field("headwater", description="Claim of a token that holds its grants.")

    @model_validator(mode="after")
    def _check_tokens(self) -> Self:
        if (self.jwt_issuer or self.jwt_audience) and not (self.jwt_secret_file or self.jwt_jwks):
            raise ValueError("no tokens are accepted without jwt_secret_file or jwt_jwks")
        return self
