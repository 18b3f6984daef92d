"""The checksum of a stored append.

XXH3 over the body, seeded with everything else that matters about the append, so that a body that
was damaged is noticed and one that turns up in the wrong place as well.
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

_MASK = 2**64 - 1
_SIGN = 2**63


def append_checksum(
    stream_id: int, start: int, first_message: int, messages: int, at_ms: int, body: bytes
) -> int:
    """A signed 64-bit number, which is what SQL databases store."""
    seed = (stream_id * 0x9E3779B97F4A7C15 + start) & _MASK
    seed = (seed * 0xC2B2AE3D27D4EB4F + first_message) & _MASK
    seed = (seed * 0x165667B19E3779F9 + (messages << 48) + at_ms) & _MASK
    return xxh3_64_intdigest(body, seed) - _SIGN
