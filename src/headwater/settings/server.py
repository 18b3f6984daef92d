"""Where the server listens, who may reach it from a browser, and what it logs."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from headwater.core.browsers import parse_hosts, parse_origins
from headwater.settings.fields import parsed_by, web_address


def _parse_origins(text: str) -> frozenset[str] | None:
    return parse_origins("" if text == "auto" else text)


class ServerSettings(BaseSettings):
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(4437, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    public_url: str = Field(
        "",
        description="URL where others reach this server, for callbacks; by default, the one they "
        "used.",
    )
    tls_cert: str = Field("", description="Certificate chain in PEM; turns on https.")
    tls_key: str = Field("", description="Private key of the certificate, in PEM.")
    cors_origin: Annotated[str, parsed_by(_parse_origins)] = Field(
        "auto",
        description="Origins whose web pages may use this server, separated by commas; * for all, "
        "empty for none. auto: all with access control, none without.",
    )
    allowed_host: Annotated[str, parsed_by(parse_hosts)] = Field(
        "",
        description="Other names of this server, separated by commas; * for any. Its addresses, "
        "localhost and the host of its public URL are always allowed. Without access control, "
        "requests for any other name are refused (421).",
    )
    console: bool = Field(True, description="Serve the web console at /console/.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line to print."
    )
    log_format: Literal["console", "json"] = Field("console", description="Format of log lines.")
    access_log: bool = Field(False, description="Log every request.")
    slow_request_ms: int = Field(
        1_000,
        ge=0,
        le=86_400_000,
        description="Log requests slower than this; 0 logs none.",
    )
    otel: bool = Field(
        False, description="Send traces with OpenTelemetry; set its OTEL_… variables too."
    )
    long_poll_timeout_ms: int = Field(
        30_000, ge=1, le=600_000, description="How long a long-poll waits for data."
    )
    sse_lifetime_ms: int = Field(
        60_000, ge=100, le=86_400_000, description="About how long an SSE connection stays open."
    )
    shutdown_grace_ms: int = Field(
        10_000, ge=0, le=600_000, description="How long requests may take to finish at shutdown."
    )

    @property
    def listens_on_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def origins(self, *, access: bool) -> frozenset[str] | None:
        """Whose pages may use the server; None for everyone's."""
        if self.cors_origin == "auto":
            return None if access else frozenset()
        return parse_origins(self.cors_origin)

    def hosts(self, *, access: bool) -> frozenset[str] | None:
        """The names that requests may use for the server; None for any."""
        names = parse_hosts(self.allowed_host)
        if access or names is None:
            return None
        public = urlsplit(self.public_url).hostname
        return names | {public} if public else names

    @field_validator("host")
    @classmethod
    def _check_host(cls, value: str) -> str:
        try:
            if value.encode("idna"):
                return value
        except UnicodeError:
            pass
        raise ValueError("must be an address or a name of this machine")

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, value: str) -> str:
        if value and web_address(value) is None:
            raise ValueError("must be an address such as https://streams.example.com")
        return value
