"""Addresses of servers and streams."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote, urlsplit

DEFAULT_ROOT: Final = "/v1/stream"

# Characters that may stand in a path segment as they are (RFC 3986, without the slash).
_SEGMENT_SAFE: Final = "-._~!$&'()*+,;=:@"


def stream_root(url: str) -> str:
    """The address below which the streams are.

    >>> stream_root("http://localhost:4437")
    'http://localhost:4437/v1/stream'
    >>> stream_root("https://example.com/my/streams/")
    'https://example.com/my/streams'
    """
    origin, path = _split(url)
    return origin + (path.rstrip("/") or DEFAULT_ROOT)


def _split(url: str) -> tuple[str, str]:
    """The origin and the path of an address that has nothing else."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"not an http(s) address: {url!r}")
    if parts.query or parts.fragment:
        raise ValueError(f"the address has a query or a fragment: {url!r}; use params for those")
    return f"{parts.scheme}://{parts.netloc}", parts.path


def origin_of(url: str) -> str:
    """Scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def stream_url(root: str, path: str) -> str:
    """The address of one stream, its path escaped segment by segment. A whole address stays as is.

    >>> stream_url("http://localhost:4437/v1/stream", "orders/2025 q1")
    'http://localhost:4437/v1/stream/orders/2025%20q1'
    >>> stream_url("http://localhost:4437/v1/stream", "https://example.com/any/path")
    'https://example.com/any/path'
    """
    if path.startswith(("http://", "https://")):
        origin, path = _split(path)
        if not path.strip("/"):
            raise ValueError(f"the address names a server, not a stream: {origin}")
        return origin + path
    segments = path.strip("/").split("/")
    if any(segment in ("", ".", "..") for segment in segments):
        raise ValueError(f"not a stream path: {path!r}")
    return f"{root}/" + "/".join(quote(segment, safe=_SEGMENT_SAFE) for segment in segments)


def stream_path(root: str, path: str) -> str:
    """The path by which the server at `root` knows a stream that was named by path or address."""
    if not path.startswith(("http://", "https://")):
        return path.strip("/")
    url = stream_url(root, path)
    below = url.removeprefix(f"{root}/")
    return unquote(below if below != url else urlsplit(url).path.strip("/"))
