"""The files of the browser module, below /js/ and, permanently, below /js/{version}/."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Final

from headwater import __version__
from headwater.http import compression
from headwater.http.errors import plain_error
from headwater.http.headers import ACCEPT_ENCODING, IF_NONE_MATCH
from headwater.http.messages import Request, Response

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".d.ts": "text/plain; charset=utf-8",
}
_ASKED_FOR: Final = "no-cache"
# Another version has another address.
_FOR_GOOD: Final = "public, max-age=31536000, immutable"


class BrowserModule:
    def file(self, request: Request, name: str = "") -> Response:
        version, _, bare = name.rpartition("/")
        content = _contents().get(bare) if version in ("", __version__) else None
        if not name:
            listing = "".join(f"/js/{__version__}/{each}\n" for each in _contents())
            return Response(200, [("Content-Type", "text/plain; charset=utf-8")], listing.encode())
        if content is None:
            message = f"the browser module has no such file; /js/ lists those of {__version__}"
            return plain_error(404, "not_found", message)
        tag = _tag(bare)
        headers = [
            ("Content-Type", next(_TYPES[end] for end in _TYPES if bare.endswith(end))),
            ("Cache-Control", _FOR_GOOD if version else _ASKED_FOR),
            ("ETag", tag),
            ("Vary", "Accept-Encoding"),
        ]
        if request.headers.get(IF_NONE_MATCH) == tag.encode():
            return Response(304, headers)
        accepted = request.headers.get(ACCEPT_ENCODING, b"").decode("latin-1")
        encoding = compression.choose_encoding(accepted) if accepted else None
        if encoding is None:
            return Response(200, headers, content)
        headers.append(("Content-Encoding", encoding))
        return Response(200, headers, _encoded(bare, encoding))


# Read on first use: most servers are never asked for them.
@cache
def _contents() -> dict[str, bytes]:
    found = {
        part.name: part.read_bytes()
        for part in files(__package__).iterdir()
        if part.name.endswith(tuple(_TYPES))
    }
    return dict(sorted(found.items()))


@cache
def _tag(name: str) -> str:
    # Weak: it is the same for every encoding.
    return f'W/"{blake2b(_contents()[name], digest_size=8).hexdigest()}"'


@cache
def _encoded(name: str, encoding: str) -> bytes:
    return compression.ENCODERS[encoding](_contents()[name])
