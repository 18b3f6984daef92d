"""Checksums of what is stored.

XXH3 over the bytes, seeded with their place, so that both damaged and misplaced bytes are detected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xxhash import xxh3_64, xxh3_64_intdigest

from headwater.core.limits import KIB

_MASK = 2**64 - 1
_SIGN = 2**63
_SPREAD = 0x9E3779B97F4A7C15
# For more than this, the library lets other threads run. To get the interpreter back from them
# takes a hundred times as long as the checksum.
_AT_ONCE_BYTES: Final = 64 * KIB


def checksum(data: bytes | bytearray | memoryview, seed: int) -> int:
    if len(data) <= _AT_ONCE_BYTES:
        return xxh3_64_intdigest(data, seed)
    view, digest = memoryview(data), xxh3_64(seed=seed)
    for start in range(0, len(view), _AT_ONCE_BYTES):
        digest.update(view[start : start + _AT_ONCE_BYTES])
    return digest.intdigest()


def append_checksum(stream_id: int, start: int, body: bytes) -> int:
    """The checksum of an append: a signed 64-bit number, as SQL databases store it."""
    return checksum(body, (stream_id * _SPREAD + start) & _MASK) - _SIGN


def append_checksums(stream_id: int, starts: Sequence[int], bodies: Sequence[bytes]) -> list[int]:
    """The checksums of many appends of a stream, in less time than one by one."""
    place = stream_id * _SPREAD
    seeds = [(place + start) & _MASK for start in starts]
    is_large = max(map(len, bodies), default=0) > _AT_ONCE_BYTES
    digest = checksum if is_large else xxh3_64_intdigest
    return [one - _SIGN for one in map(digest, bodies, seeds)]
