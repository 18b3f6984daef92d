"""Idempotent producers.

A producer sends its name, its epoch (one per start of the producer) and the sequence number of the
request within that epoch. These are compared with what the stream remembers of that producer:

- unknown: sequence 0 is accepted, anything else is a gap that expects 0;
- a lower epoch is stale: a newer instance has taken over;
- a higher epoch must begin at sequence 0 and fences the older one;
- in the same epoch the next sequence is accepted, an earlier one is a duplicate of something
  already stored, a later one is a gap.

A producer that has sent nothing for `ProducerLimits.idle_ms` is forgotten, and unknown from then
on. Its last use is stored to the hour, rounded down, so that an active producer does not change it
with each request; that hour is added before it counts as idle. So a producer is never forgotten
early, and at most an hour late.

A stream knows at most `count_max` producers. An unknown producer beyond that is refused; known ones
never are.

Requests of one producer may overtake each other. If one is ahead by no more than the client's
pipeline depth, it is worth waiting briefly for the gap to close; see `worth_waiting`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.core.errors import (
    EpochMustStartAtZero,
    InvalidHeader,
    SequenceGap,
    StaleEpoch,
    TooManyProducers,
)
from headwater.core.limits import PRODUCER_ID_CHARS_MAX, PRODUCER_NUMBER_MAX
from headwater.core.numbers import whole_number

USED_STEP_MS: Final = 3_600_000


class ProducerStamp(NamedTuple):
    """The producer headers of a request."""

    id: str
    epoch: int
    seq: int


class ProducerState(NamedTuple):
    """What a stream remembers of a producer: its last accepted request, and the hour of it."""

    epoch: int
    seq: int
    used_at_ms: int = 0


class ProducerLimits(NamedTuple):
    """How long a stream remembers producers, and how many."""

    idle_ms: int
    count_max: int

    def idle_before(self, now_ms: int) -> int:
        """Producers last used before this, to the hour, are forgotten."""
        return now_ms - self.idle_ms - USED_STEP_MS + 1

    def remembered(self, known: ProducerState | None, now_ms: int) -> ProducerState | None:
        """What a stream remembers of a producer now."""
        if known is None or known.used_at_ms < self.idle_before(now_ms):
            return None
        return known

    def check_room(self, count: int) -> None:
        """Refuse a producer beyond the limit of a stream."""
        if count >= self.count_max:
            raise TooManyProducers(self.count_max)


UNLIMITED: Final = ProducerLimits(idle_ms=2**62, count_max=2**62)


def state_after(stamp: ProducerStamp, at_ms: int) -> ProducerState:
    """What a stream remembers after accepting a request."""
    return ProducerState(stamp.epoch, stamp.seq, at_ms - at_ms % USED_STEP_MS)


def parse_stamp(id_: str | None, epoch: str | None, seq: str | None) -> ProducerStamp | None:
    """Parse the three headers, which must be sent together or not at all."""
    if id_ is None and epoch is None and seq is None:
        return None
    if id_ is None or epoch is None or seq is None:
        raise InvalidHeader(
            "Producer-Id", "send Producer-Id, Producer-Epoch and Producer-Seq together, or none"
        )
    if not id_ or len(id_) > PRODUCER_ID_CHARS_MAX:
        raise InvalidHeader("Producer-Id", f"must have 1 to {PRODUCER_ID_CHARS_MAX} characters")
    return ProducerStamp(id_, _number("Producer-Epoch", epoch), parse_seq(seq))


def parse_seq(text: str) -> int:
    return _number("Producer-Seq", text)


def _number(header: str, text: str) -> int:
    value = whole_number(text, digits_max=16)
    if value is None or value > PRODUCER_NUMBER_MAX:
        raise InvalidHeader(header, f"must be digits, 0 to {PRODUCER_NUMBER_MAX}")
    return value


def check_epoch(known: ProducerState | None, stamp: ProducerStamp) -> None:
    """Refuse a fenced producer. This comes before every other check of an append."""
    if known is not None and stamp.epoch < known.epoch:
        raise StaleEpoch(known.epoch)


def was_stored(known: ProducerState, stamp: ProducerStamp) -> bool:
    """Whether the stream has accepted this request, as far as it remembers the producer."""
    return stamp.epoch == known.epoch and stamp.seq <= known.seq


def is_duplicate(known: ProducerState | None, stamp: ProducerStamp) -> bool:
    """Whether the request was stored before; raises if it is not the next one either."""
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


def is_next(known: ProducerState | None, stamp: ProducerStamp) -> bool:
    """Whether the request simply follows the last one: neither fenced nor a duplicate nor a gap."""
    return known is not None and stamp.epoch == known.epoch and stamp.seq == known.seq + 1


def worth_waiting(gap: SequenceGap, window: int) -> bool:
    """Whether the missing requests are probably on their way on another connection."""
    return 0 < gap.received - gap.expected <= window
