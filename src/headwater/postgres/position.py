"""Positions of changes: the order of everything that one replication slot yields. No IO.

Changes come in commit order, and within a transaction in the order in which they were made. So a
change is identified by the LSN of its commit and its number within the transaction, counted from 0
over everything that PostgreSQL sends. Both are properties of the write-ahead log: they are the same
however often the log is decoded, however appends are split and whatever version of this program
does it.

A snapshot has the LSN at which its slot begins. A transaction may have the same LSN, so positions
have a phase between the two: 0 for a snapshot, 1 for what follows.

Every record carries its position in its headers (`lsn`, `seq`, `snapshot`), and every append
carries that of its last change as `Stream-Seq`, in a form that sorts bytewise.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from headwater.core.state_protocol import SNAPSHOT_END

SNAPSHOT: Final = 0
CHANGES: Final = 1

_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> int:
    """Parse an LSN as PostgreSQL writes it.

    >>> parse_lsn("1/A0")
    4294967456
    """
    found = _LSN.fullmatch(text)
    if found is None:
        raise ValueError(f"not an LSN: {text!r}")
    return int(found[1], 16) << 32 | int(found[2], 16)


def format_lsn(lsn: int) -> str:
    """Format an LSN so that PostgreSQL can parse it, and texts sort like LSNs.

    >>> format_lsn(4294967456)
    '00000001/000000A0'
    """
    return f"{lsn >> 32:08X}/{lsn & 0xFFFFFFFF:08X}"


class Position(NamedTuple):
    """The position of a change; positions compare in stream order."""

    lsn: int
    phase: int
    seq: int

    @property
    def token(self) -> str:
        """The position as `Stream-Seq`.

        >>> Position(255, CHANGES, 3).token
        '00000000000000FF.1.0000000000000003'
        """
        return f"{self.lsn:016X}.{self.phase}.{self.seq:016X}"


class LastRecord(NamedTuple):
    """The last record in the stream written by this package."""

    position: Position
    unfinished_slot: str | None = None
    """The slot whose snapshot is incomplete, if this record is part of one."""


class _Headers(msgspec.Struct):
    lsn: str
    seq: int
    snapshot: str | None = None
    control: str | None = None


class _Record(msgspec.Struct):
    headers: _Headers


_decoder: Final = msgspec.json.Decoder(_Record)


def read_record(message: bytes | msgspec.Raw) -> LastRecord | None:
    """The position of a message in the stream; None if it is not one of ours."""
    try:
        headers = _decoder.decode(message).headers
        lsn = parse_lsn(headers.lsn)
    except (msgspec.DecodeError, ValueError):
        return None
    if headers.seq < 0:
        return None
    phase = CHANGES if headers.snapshot is None else SNAPSHOT
    unfinished = None if headers.control == SNAPSHOT_END else headers.snapshot
    return LastRecord(Position(lsn, phase, headers.seq), unfinished)
