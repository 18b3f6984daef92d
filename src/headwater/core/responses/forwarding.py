"""Which headers of a request go on to the upstream.

All but those that are about something else: the connection to this server (hop-by-hop headers and
whatever `Connection` names, `Host`, `Expect`, `Content-Length`), who may use this server and what
is next to it (`Authorization`, and `Cookie`, which browsers add unasked), and how to make the
request (`Upstream-…`). `Upstream-Authorization` goes on as `Authorization`. The answer is stored as
it comes and read by others than who asked, so it is asked for without an encoding:
`Accept-Encoding` is always `identity`.
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
    """The headers for the upstream, from those of a request with its names in lower case."""
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
