"""Which headers of a request are forwarded to the upstream.

All except those that concern the connection to this server (hop-by-hop headers and those named by
`Connection`, `Host`, `Expect`, `Content-Length`), access to this server and its site
(`Authorization`, and `Cookie`, which browsers add on their own), and the request to make
(`Upstream-…`). `Upstream-Authorization` is forwarded as `Authorization`. The answer is stored as it
arrives and others may read it, so it must not be encoded: `Accept-Encoding` is always `identity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UPSTREAM_AUTHORIZATION: Final = b"upstream-authorization"
_UPSTREAM: Final = b"upstream-"
_KEPT_BACK: Final = frozenset(
    {
        b"accept-encoding",
        b"authorization",
        b"connection",
        b"content-length",
        b"cookie",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"trailers",
        b"transfer-encoding",
        b"upgrade",
    }
)


def forwarded(headers: Mapping[bytes, bytes]) -> list[tuple[str, str]]:
    """The headers for the upstream, from a request's headers with lower-case names."""
    of_connection = {
        name.strip().lower() for name in headers.get(b"connection", b"").split(b",") if name
    }
    lines = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers.items()
        if name not in _KEPT_BACK and name not in of_connection and not name.startswith(_UPSTREAM)
    ]
    lines.append(("accept-encoding", "identity"))
    authorization = headers.get(UPSTREAM_AUTHORIZATION)
    if authorization is not None:
        lines.append(("authorization", authorization.decode("latin-1")))
    return lines
