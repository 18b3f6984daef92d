"""What the server sends to others: webhooks, and the requests of durable responses."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from headwater.core.limits import Limits
from headwater.core.responses.allow_list import parse_networks, parse_patterns
from headwater.core.responses.policy import ResponsePolicy
from headwater.settings.fields import parsed_by

_LIMITS: Final = Limits()
_RESPONSES: Final = ResponsePolicy()


class OutboundSettings(BaseSettings):
    subscriptions_max: int = Field(
        _LIMITS.subscriptions_max, ge=0, description="Subscriptions on the server (429 beyond)."
    )
    webhooks_at_once_max: int = Field(
        _LIMITS.webhooks_at_once_max, ge=1, description="Requests to webhooks at a time."
    )
    webhook_timeout_ms: int = Field(
        _LIMITS.webhook_timeout_ms,
        ge=100,
        le=600_000,
        description="How long a webhook may take to answer.",
    )
    webhook_local: Literal["auto", "allow", "refuse"] = Field(
        "auto",
        description="Webhooks on http://localhost and http://127.0.0.x. auto allows them when the "
        "server listens on loopback only and has no public URL.",
    )
    proxy_allow: Annotated[str, parsed_by(parse_patterns)] = Field(
        "",
        description="Addresses that durable responses may be fetched from, separated by commas: "
        "https://api.example.com/v1/*, https://*.example.com. Empty for none.",
    )
    proxy_networks: Annotated[str, parsed_by(parse_networks)] = Field(
        "",
        description="Private networks that names in proxy_allow may resolve to, separated by "
        "commas: 10.0.0.0/8.",
    )
    proxy_head_timeout_ms: int = Field(
        _RESPONSES.head_timeout_ms,
        ge=1,
        le=3_600_000,
        description="How long an upstream may take to start its answer (504 beyond).",
    )
    proxy_idle_timeout_ms: int = Field(
        _RESPONSES.idle_timeout_ms,
        ge=1,
        le=86_400_000,
        description="How long an upstream may send nothing before its response is closed.",
    )
    proxy_response_bytes_max: int = Field(
        _RESPONSES.response_bytes_max,
        ge=1,
        description="Largest durable response; beyond that, it is closed.",
    )
    proxy_requests_max: int = Field(
        _RESPONSES.requests_max,
        ge=1,
        description="Requests to upstreams at a time (429 beyond).",
    )
    proxy_requests_per_caller_max: int = Field(
        _RESPONSES.requests_per_caller_max,
        ge=1,
        description="Requests to upstreams at a time for one key or token, or otherwise for one "
        "address (429 beyond).",
    )
    proxy_ttl_s: int = Field(
        _RESPONSES.ttl_s,
        ge=1,
        le=366 * 24 * 3_600,
        description="How long durable responses and their signed addresses last.",
    )

    def response_policy(self) -> ResponsePolicy | None:
        """What durable responses may be; None if there are none."""
        if not self.proxy_allow.strip():
            return None
        return ResponsePolicy(
            parse_patterns(self.proxy_allow),
            parse_networks(self.proxy_networks),
            self.proxy_head_timeout_ms,
            self.proxy_idle_timeout_ms,
            self.proxy_response_bytes_max,
            self.proxy_requests_max,
            self.proxy_requests_per_caller_max,
            self.proxy_ttl_s,
        )

    @model_validator(mode="after")
    def _check_networks(self) -> Self:
        if self.proxy_networks and not self.proxy_allow.strip():
            raise ValueError("proxy_networks is for addresses in proxy_allow, which is empty")
        return self
