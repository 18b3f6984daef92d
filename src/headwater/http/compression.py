"""Content encodings: zstd, br, gzip and deflate, for bodies that are worth it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import brotli  # type: ignore[import-untyped]  # it has no stubs
import zstandard

from headwater.core.content_types import media_type

MINIMUM_BYTES: Final = 1024
# Larger bodies take long enough to compress that it is moved off the event loop.
INLINE_BYTES_MAX: Final = 8 * 1024

_COMPRESSIBLE: Final = frozenset(
    {
        "application/json",
        "application/x-ndjson",
        "application/javascript",
        "application/xml",
        "application/graphql",
        "image/svg+xml",
    }
)


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(body)


def _brotli(body: bytes) -> bytes:
    compressed: bytes = brotli.compress(body, quality=4)
    return compressed


# In order of preference, if a client ranks several equally.
ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "zstd": _zstd,
    "br": _brotli,
    "gzip": lambda body: gzip.compress(body, compresslevel=5, mtime=0),
    "deflate": lambda body: zlib.compress(body, 5),
}


@lru_cache(maxsize=256)
def is_compressible(content_type: str) -> bool:
    media = media_type(content_type)
    return media.startswith("text/") or media in _COMPRESSIBLE or media.endswith(("+json", "+xml"))


@lru_cache(maxsize=256)
def choose_encoding(accept_encoding: str) -> str | None:
    """The encoding that the client ranks highest among those we support."""
    weights: dict[str, float] = {}
    for item in accept_encoding.lower().split(","):
        name, _, parameters = item.strip().partition(";")
        weights[name.strip()] = _quality(parameters)
    ranked = [
        (weight, -order, name)
        for order, name in enumerate(ENCODERS)
        if (weight := weights.get(name, weights.get("*", 0.0))) > 0
    ]
    if not ranked:
        return None
    best = max(ranked)
    return best[2] if best[0] >= weights.get("identity", 0.0) else None


def _quality(parameters: str) -> float:
    key, _, value = parameters.partition("=")
    if key.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
