"""Cross-origin requests: the headers for browsers. `browsers` checks the requests."""

from __future__ import annotations

from typing import Final

from headwater.http.messages import Headers
from headwater.http.routes import headers

METHODS: Final = "GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS"
EXPOSED: Final = ", ".join(headers.RESPONSE)


def constant_headers(origins: frozenset[str] | None) -> bytes:
    """The part of every response head that never changes."""
    lines = [
        "X-Content-Type-Options: nosniff",
        "Cross-Origin-Resource-Policy: cross-origin",
    ]
    if origins is None or origins:
        lines.append(f"Access-Control-Expose-Headers: {EXPOSED}")
        lines.append("Access-Control-Allow-Origin: *" if origins is None else "Vary: Origin")
    return "".join(f"{line}\r\n" for line in lines).encode()


def preflight_headers() -> Headers:
    return [
        ("Access-Control-Allow-Methods", METHODS),
        ("Access-Control-Allow-Headers", ", ".join(headers.REQUEST)),
        ("Access-Control-Max-Age", "86400"),
    ]
