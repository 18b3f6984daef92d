"""The bounds of durable responses, and where they may come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.core.limits import KIB, MIB
from headwater.core.responses.allow_list import AddressPattern
from headwater.core.targets import Network

ERROR_BODY_BYTES_MAX: Final = 64 * KIB
"""How much of an upstream's error body is shown."""


@dataclass(frozen=True, slots=True)
class ResponsePolicy:
    allow: tuple[AddressPattern, ...] = ()
    """Where requests may go; empty disables durable responses."""
    networks: tuple[Network, ...] = ()
    """Private networks that names may resolve to."""
    head_timeout_ms: int = 60_000
    idle_timeout_ms: int = 600_000
    response_bytes_max: int = 64 * MIB
    requests_max: int = 1_000
    requests_per_caller_max: int = 100
    ttl_s: int = 24 * 3600
