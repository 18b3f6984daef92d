"""The checksum of a stored append.

XXH3 over the body, seeded with the place it belongs to, so that a body that was damaged is noticed
and one that turns up in the wrong place as well.
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

_MASK = 2**64 - 1
_SIGN = 2**63
_SPREAD = 0x9E3779B97F4A7C15


def append_checksum(stream_id: int, start: int, body: bytes) -> int:
    """A signed 64-bit number, which is what SQL databases store."""
    return xxh3_64_intdigest(body, (stream_id * _SPREAD + start) & _MASK) - _SIGN
