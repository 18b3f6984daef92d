"""The idempotent producer as a state machine without IO, clock or randomness.

The server accepts the batches of one producer and epoch strictly by sequence number, each number
once. The producer's side of that bargain:

1. A number, once sent, always stands for the same bytes. A batch is sent again under its number
   until the server has said yes or no, so a repetition can only be recognised, never stored twice.
2. Up to `max_in_flight` batches are under way together, but a batch is sent only when all before it
   are settled or under way. The first batch of an epoch goes alone: only after it does the server
   know the producer. A batch that closes the stream goes alone as well, because once the stream
   is closed, a batch before it whose answer was lost could not be asked about any more.
3. A yes for a number is a yes for all lower ones.
4. "No, there is a gap" (409 with the expected number): batches overtook each other. The batch is
   parked until it is the first one, then sent again. If it was the first one when it was sent, the
   server misses something that it has acknowledged before. If it insists on that, it has lost
   data; that cannot be repaired from here, and the producer stops.
5. "No, your epoch is stale" (403): without `auto_claim` the producer stops. With it, it waits for
   everything under way to be answered, takes an epoch above the server's, and starts again from 0
   with what is not settled. But if the answer to any attempt was lost, that batch may be stored
   under the old epoch and would be stored again under the new one. Then the producer stops rather
   than guess. Two instances may claim at the same time. So that they do not claim the same epoch,
   it is a little above the server's by chance; and if "duplicate" is the answer to the very first
   attempt under a claimed epoch, somebody else has it, and another one is claimed. A producer that
   was given no epoch (`claims`) begins in this way: until the server has taken its first batch, any
   epoch that turns out to be used or stale is left for a higher one.
6. An answer that cannot be about our request (see 4 and 5; a confused proxy may give the answer to
   an earlier one) tells nothing: the request is repeated, a few times, over other connections.
7. Lost connections, 5xx and 429 are waited out with growing delays. Every other refusal is final:
   the batch fails, and with it everything after it, because writing on would leave a hole in
   the order. What is in front of it is still brought to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, TypeGuard, TypeVar

from headwater.client.errors import (
    HeadwaterError,
    ProducerStopped,
    SequenceConflict,
    StaleEpoch,
    UnexpectedAnswer,
)
from headwater.client.protocol.retry import Retries, RetryPolicy
from headwater.client.protocol.streams import Receipt

P = TypeVar("P")

CLAIM_SPREAD: Final = 1_000


@dataclass(slots=True, eq=False)
class Entry(Generic[P]):
    """One batch on its way. `payload` is the caller's own and means nothing here."""

    seq: int
    body: bytes
    closes: bool
    payload: P
    retries: Retries = field(repr=False)
    in_flight: bool = False
    was_first: bool = False
    in_doubt: bool = False
    stored: bool = False
    parked: bool = False
    doomed: bool = False
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome(Generic[P]):
    """What became of one batch."""

    entry: Entry[P]
    result: Receipt | HeadwaterError


class ProducerState(Generic[P]):
    """Which batches are on their way, and what to do with each answer."""

    def __init__(
        self,
        *,
        epoch: int,
        max_in_flight: int,
        auto_claim: bool,
        retry: RetryPolicy,
        claims: bool = False,
    ) -> None:
        self.epoch = epoch
        self.entries: list[Entry[P]] = []
        self.stopped_by: HeadwaterError | None = None
        self.distrusts_connections = False
        self._max_in_flight = max_in_flight
        self._auto_claim = auto_claim
        self._begins_with_claim = claims
        self._retry = retry
        self._next_seq = 0
        self._known_to_server = False
        self._epoch_is_claimed = claims
        self._fence: _Fence | None = None

    # --- Batches out -----------------------------------------------------------------------------

    def can_take(self) -> bool:
        """Whether another batch could be sent at once or soon. Until then, let it grow."""
        closing = any(entry.closes for entry in self.entries)
        accepting = self.stopped_by is None and self._fence is None and not closing
        return accepting and len(self.entries) < self._window()

    def add(self, body: bytes, payload: P, *, closes: bool = False) -> None:
        """Give the next batch its number."""
        self.entries.append(Entry(self._next_seq, body, closes, payload, Retries(self._retry)))
        self._next_seq += 1

    def take_due(self, now: float) -> list[Entry[P]]:
        """The batches to be sent now; each must be reported back exactly once."""
        due: list[Entry[P]] = []
        in_flight = sum(entry.in_flight for entry in self.entries)
        for index, entry in enumerate(self.entries):
            if entry.in_flight:
                continue
            alone = entry.parked or entry.closes
            if (
                self._fence is not None
                or in_flight + len(due) >= self._window()
                or entry.not_before > now
                or (alone and index > 0)
            ):
                break
            due.append(entry)
        for entry in due:
            entry.in_flight, entry.parked = True, False
            entry.was_first = entry is self.entries[0]
        return due

    def next_due_at(self, now: float) -> float | None:
        """When `take_due` is worth asking again if nothing else happens before."""
        waiting = next((entry for entry in self.entries if not entry.in_flight), None)
        if waiting is None or waiting.not_before <= now or self._fence is not None:
            return None
        return waiting.not_before

    def _window(self) -> int:
        return self._max_in_flight if self._known_to_server else 1

    # --- Answers in ------------------------------------------------------------------------------

    def accepted(self, entry: Entry[P], receipt: Receipt) -> list[Outcome[P]]:
        """The server has stored the batch, now or before."""
        entry.in_flight = False
        if self._is_taken_by_another(entry, receipt):
            self._fence = _Fence(self.epoch + 1, _epoch_taken(self.epoch))
            return self._claim_if_drained()
        self._known_to_server = True
        self._begins_with_claim = False
        outcomes = [self._settle(entry, receipt)]
        for other in tuple(self.entries):
            if other.seq < entry.seq:
                other.stored = True
                if not other.in_flight:
                    outcomes.append(self._settle(other, Receipt(None, duplicate=True)))
        return outcomes + self._claim_if_drained()

    def failed(
        self, entry: Entry[P], error: HeadwaterError, *, now: float, random: float
    ) -> list[Outcome[P]]:
        """The attempt was refused, or nobody knows."""
        entry.in_flight = False
        if entry.stored:
            outcomes = [self._settle(entry, Receipt(None, duplicate=True))]
        elif entry.doomed:
            entry.in_doubt = entry.in_doubt or error.in_doubt
            outcomes = [self._give_up(entry)]
        elif isinstance(error, StaleEpoch) and self._is_about_us(error):
            outcomes = self._stop_or_fence(entry, error, random=random)
        elif _is_gap(error) and _is_repairable(entry, error):
            entry.parked = True
            outcomes = []
        else:
            outcomes = self._retry_or_stop(entry, error, now=now, random=random)
        return outcomes + self._claim_if_drained()

    def abort(self, error: HeadwaterError) -> list[Outcome[P]]:
        """Give everything up, answered or not; nothing may be reported back afterwards."""
        self.stopped_by = self.stopped_by or error
        for entry in self.entries:
            entry.in_doubt = entry.in_doubt or entry.in_flight
        return [self._give_up(entry) for entry in tuple(self.entries)]

    def _retry_or_stop(
        self, entry: Entry[P], error: HeadwaterError, *, now: float, random: float
    ) -> list[Outcome[P]]:
        reason = error
        if isinstance(error, StaleEpoch) or _is_gap(error):
            reason = UnexpectedAnswer("not about our request", status=error.status, in_doubt=True)
        self.distrusts_connections |= isinstance(reason, UnexpectedAnswer)
        entry.in_doubt = entry.in_doubt or reason.in_doubt
        delay_s = entry.retries.delay_after(reason, repeatable=True, now=now, random=random)
        if delay_s is None:
            return self._stop(entry, error)
        entry.not_before = now + delay_s
        return []

    def _is_about_us(self, error: StaleEpoch) -> bool:
        return error.current_epoch is not None and error.current_epoch > self.epoch

    # --- Fencing and stopping --------------------------------------------------------------------

    def _is_taken_by_another(self, entry: Entry[P], receipt: Receipt) -> bool:
        first_of_claim = self._epoch_is_claimed and not self._known_to_server
        return first_of_claim and receipt.duplicate and not entry.in_doubt

    def _stop_or_fence(
        self, entry: Entry[P], error: StaleEpoch, *, random: float
    ) -> list[Outcome[P]]:
        if not (self._auto_claim or self._begins_with_claim):
            return self._stop(entry, error)
        assert error.current_epoch is not None
        self._fence = _Fence(error.current_epoch + 1 + int(random * CLAIM_SPREAD), error)
        return []

    def _claim_if_drained(self) -> list[Outcome[P]]:
        if self._fence is None or any(entry.in_flight for entry in self.entries):
            return []
        fence, self._fence = self._fence, None
        if any(entry.in_doubt for entry in self.entries):
            return self._stop(self.entries[0], fence.error)
        self.epoch, self._epoch_is_claimed = fence.next_epoch, True
        self._known_to_server = False
        for seq, entry in enumerate(self.entries):
            entry.seq, entry.parked, entry.not_before = seq, False, 0.0
        self._next_seq = len(self.entries)
        return []

    def _stop(self, entry: Entry[P], error: HeadwaterError) -> list[Outcome[P]]:
        """The batch fails for good, and everything after it.

        What comes after it and is under way cannot be called back. Its answer is still awaited: if
        our batch had been stored without our knowing, that one may be too.
        """
        self.stopped_by = self.stopped_by or error
        error.in_doubt = error.in_doubt or entry.in_doubt
        followers = self.entries[self.entries.index(entry) + 1 :]
        self.entries.remove(entry)
        for follower in followers:
            follower.doomed = True
        given_up = [self._give_up(follower) for follower in followers if not follower.in_flight]
        return [Outcome(entry, error), *given_up]

    def _give_up(self, entry: Entry[P]) -> Outcome[P]:
        error = ProducerStopped(
            f"the producer has stopped: {self.stopped_by}", in_doubt=entry.in_doubt
        )
        error.__cause__ = self.stopped_by
        self.entries.remove(entry)
        return Outcome(entry, error)

    def _settle(self, entry: Entry[P], receipt: Receipt) -> Outcome[P]:
        self.entries.remove(entry)
        return Outcome(entry, receipt)


@dataclass(frozen=True, slots=True)
class _Fence:
    """The epoch to claim, once nothing is under way, and why."""

    next_epoch: int
    error: StaleEpoch


def _epoch_taken(epoch: int) -> StaleEpoch:
    return StaleEpoch(
        f"another instance has claimed epoch {epoch} too",
        status=204,
        headers={"producer-epoch": str(epoch)},
    )


def _is_gap(error: HeadwaterError) -> TypeGuard[SequenceConflict]:
    return isinstance(error, SequenceConflict) and error.expected_seq is not None


def _is_repairable(entry: Entry[P], error: SequenceConflict) -> bool:
    """Whether it is our batch that came too early, and something on its way will fill the gap."""
    expected, received = error.expected_seq, error.received_seq
    assert expected is not None
    return expected < entry.seq and received in (entry.seq, None) and not entry.was_first
