"""The console: a page and its parts, served as they are in the package."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from headwater.http.answers import NO_STORE
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
# The page loads only what this server sends, and nobody may frame it. The page may also make images
# itself, from the bytes of a message. No text becomes markup or a script: browsers with trusted
# types refuse to parse any.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


class Console:
    """All parts are read once: they are few and small, and change only with the package."""

    def __init__(self) -> None:
        self._parts = {name: _part(name, content) for name, content in parts(files(__package__))}

    def part(self, request: Request, name: str = "") -> Response:
        part = self._parts.get(name or _PAGE)
        if part is None:
            return plain_error(404, "not_found", "the console has no such part")
        if request.headers.get(IF_NONE_MATCH) == dict(part.headers)["ETag"].encode():
            return Response(304, part.headers)
        return part

    def move(self, request: Request) -> Response:
        """Relative, so that it also works below the path of a reverse proxy."""
        query = f"?{request.query.decode('latin-1')}" if request.query else ""
        return Response(308, [("Location", f"console/{query}"), NO_STORE])


def parts(directory: Traversable, below: str = "") -> Iterator[tuple[str, bytes]]:
    """The files that a browser may load, by path below the console."""
    for one in directory.iterdir():
        if one.is_dir():
            yield from parts(one, f"{below}{one.name}/")
        elif _ending(one.name) in _TYPES:
            yield below + one.name, one.read_bytes()


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
