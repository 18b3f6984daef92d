"""The console: a page and its parts, sent as they are in the package."""

from __future__ import annotations

from hashlib import blake2b
from importlib.resources import files
from typing import Final

from headwater.http.errors import plain_error
from headwater.http.headers import IF_NONE_MATCH
from headwater.http.messages import Headers, Request, Response

CONSOLE: Final = "/console/"
_PAGE: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The page runs and asks for nothing but what this server sends, and nobody may frame it.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Console:
    """All parts are read once: they are few and small, and change only with the package."""

    def __init__(self) -> None:
        self._parts = {
            part.name: _part(part.name, part.read_bytes())
            for part in files(__package__).iterdir()
            if _ending(part.name) in _TYPES
        }

    def part(self, request: Request, name: str = "") -> Response:
        part = self._parts.get(name or _PAGE)
        if part is None:
            return plain_error(404, "not_found", "the console has no such part")
        if request.headers.get(IF_NONE_MATCH) == dict(part.headers)["ETag"].encode():
            return Response(304, part.headers)
        return part


def _ending(name: str) -> str:
    return name[name.rfind(".") :]


def _part(name: str, content: bytes) -> Response:
    headers: Headers = [
        ("Content-Type", _TYPES[_ending(name)]),
        ("Cache-Control", "no-cache"),
        ("ETag", f'"{blake2b(content, digest_size=8).hexdigest()}"'),
        ("Content-Security-Policy", _POLICY),
        ("Referrer-Policy", "no-referrer"),
    ]
    return Response(200, headers, content)
