"""Idempotent producers.

A producer names itself, its epoch (one per start of the producer) and the sequence number of the
request within that epoch. Against what the stream remembers of that producer:

- unknown: sequence 0 is accepted, anything else is a gap that expects 0;
- a lower epoch is stale: a newer instance has taken over;
- a higher epoch must begin at sequence 0 and fences the older one;
- in the same epoch the next sequence is accepted, an earlier one is a duplicate of something
  already stored, a later one is a gap.

Requests of one producer may overtake each other on their way. One that is ahead by no more than
the client's pipeline depth is worth a short wait for the gap to close; see `worth_waiting`.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.core.errors import EpochMustStartAtZero, InvalidHeader, SequenceGap, StaleEpoch
from headwater.core.limits import PRODUCER_ID_CHARS_MAX, PRODUCER_NUMBER_MAX


class ProducerStamp(NamedTuple):
    """What a request says of its producer."""

    id: str
    epoch: int
    seq: int


class ProducerState(NamedTuple):
    """What a stream remembers of a producer: the last request it accepted."""

    epoch: int
    seq: int


def parse_stamp(id_: str | None, epoch: str | None, seq: str | None) -> ProducerStamp | None:
    """Read the three headers, which come together or not at all."""
    if id_ is None and epoch is None and seq is None:
        return None
    if id_ is None or epoch is None or seq is None:
        raise InvalidHeader(
            "Producer-Id", "send Producer-Id, Producer-Epoch and Producer-Seq together, or none"
        )
    if not id_ or len(id_) > PRODUCER_ID_CHARS_MAX:
        raise InvalidHeader("Producer-Id", f"must have 1 to {PRODUCER_ID_CHARS_MAX} characters")
    return ProducerStamp(id_, _number("Producer-Epoch", epoch), _number("Producer-Seq", seq))


def _number(header: str, text: str) -> int:
    # The length test keeps int() away from absurdly long digit strings.
    if text.isascii() and text.isdigit() and len(text) <= 16:
        value = int(text)
        if value <= PRODUCER_NUMBER_MAX:
            return value
    raise InvalidHeader(header, f"must be digits, 0 to {PRODUCER_NUMBER_MAX}")


def check_epoch(known: ProducerState | None, stamp: ProducerStamp) -> None:
    """Refuse a fenced producer. This comes before every other check of an append."""
    if known is not None and stamp.epoch < known.epoch:
        raise StaleEpoch(known.epoch)


def is_duplicate(known: ProducerState | None, stamp: ProducerStamp) -> bool:
    """Whether the request was stored before; raises when it is neither that nor the next one."""
    if known is None:
        expected = 0
    elif stamp.epoch > known.epoch:
        if stamp.seq != 0:
            raise EpochMustStartAtZero(stamp.epoch, stamp.seq)
        return False
    else:
        check_epoch(known, stamp)
        if stamp.seq <= known.seq:
            return True
        expected = known.seq + 1
    if stamp.seq != expected:
        raise SequenceGap(expected, stamp.seq)
    return False


def worth_waiting(gap: SequenceGap, window: int) -> bool:
    """Whether the missing requests are probably on their way on another connection."""
    return 0 < gap.received - gap.expected <= window
