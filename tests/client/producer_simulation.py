"""A producer, a model of the server, and a network between them that does its worst.

The network delivers requests in any order, loses them, loses their answers, refuses them, and
delivers requests after the client has given up waiting for them. Another instance may take the
producer over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.client.errors import (
    BadRequest,
    ConnectionFailed,
    HeadwaterError,
    RateLimited,
    SequenceConflict,
    StaleEpoch,
    StreamClosed,
    UnexpectedAnswer,
)
from headwater.client.protocol.producer_state import Entry, Outcome, ProducerState
from headwater.client.protocol.retry import RetryPolicy
from headwater.client.protocol.streams import Receipt

PATIENT = RetryPolicy(base_delay_s=1.0, max_delay_s=4.0, give_up_after_s=None)
LOST = ConnectionFailed("lost", in_doubt=True)


def gap(expected: int, received: int) -> SequenceConflict:
    headers = {"producer-expected-seq": str(expected), "producer-received-seq": str(received)}
    return SequenceConflict("gap", status=409, headers=headers)


def stale(current: int) -> StaleEpoch:
    return StaleEpoch("stale", status=403, headers={"producer-epoch": str(current)})


def closed() -> StreamClosed:
    return StreamClosed("closed", status=409, headers={"stream-closed": "true"})


@dataclass(frozen=True)
class Packet:
    """One request in the network."""

    entry: Entry[int]
    epoch: int
    seq: int
    body: bytes
    closes: bool


@dataclass
class ModelServer:
    """The server's side of the bargain."""

    log: list[bytes] = field(default_factory=list)
    epoch: int = -1
    last_seq: int = -1
    closed_by: tuple[int, int] | None = None

    def handle(self, packet: Packet) -> Receipt | HeadwaterError:
        if packet.epoch < self.epoch:
            return stale(self.epoch)
        if self.closed_by is not None:
            stored = packet.epoch == self.epoch and packet.seq <= self.last_seq
            return Receipt("end", closed=True, duplicate=True) if stored else closed()
        if packet.epoch > self.epoch:
            if packet.seq != 0:
                known = self.epoch >= 0
                return BadRequest("epoch", status=400) if known else gap(0, packet.seq)
        elif packet.seq <= self.last_seq:
            return Receipt(None, duplicate=True)
        elif packet.seq > self.last_seq + 1:
            return gap(self.last_seq + 1, packet.seq)
        self.epoch, self.last_seq = packet.epoch, packet.seq
        if packet.body:
            self.log.append(packet.body)
        if packet.closes:
            self.closed_by = (packet.epoch, packet.seq)
        return Receipt(str(len(self.log)), closed=packet.closes)


class Simulation:
    """A producer, a server, and the network between them."""

    def __init__(self, *, auto_claim: bool) -> None:
        self.state: ProducerState[int] = ProducerState(
            epoch=0, max_in_flight=5, auto_claim=auto_claim, retry=PATIENT
        )
        self.server = ModelServer()
        self.now = 0.0
        self.added: list[bytes] = []
        self.outcomes: dict[int, Receipt | HeadwaterError] = {}
        self.waiting: list[Packet] = []  # the client waits for an answer
        self.stray: list[Packet] = []  # the client has given up, the network has not
        self.answers: list[tuple[Packet, Receipt | HeadwaterError]] = []

    def add(self, *, closes: bool = False) -> None:
        if self.state.can_take():
            body = f"batch {len(self.added)}".encode()
            self.state.add(body, len(self.added), closes=closes)
            self.added.append(body)

    def send(self) -> None:
        for entry in self.state.take_due(self.now):
            packet = Packet(entry, self.state.epoch, entry.seq, entry.body, entry.closes)
            self.waiting.append(packet)
        assert len(self.waiting) + len(self.answers) <= 5
        stuck = self.state.entries and not self.waiting and not self.answers
        assert not stuck or self.state.next_due_at(self.now) is not None, "nobody will wake it"

    def deliver(self, packet: Packet) -> None:
        self.answers.append((packet, self.server.handle(packet)))

    def tell(self, packet: Packet, result: Receipt | HeadwaterError) -> None:
        if isinstance(result, Receipt):
            outcomes = self.state.accepted(packet.entry, result)
        else:
            outcomes = self.state.failed(packet.entry, result, now=self.now, random=0.5)
        self.record(outcomes)

    def record(self, outcomes: list[Outcome[int]]) -> None:
        for outcome in outcomes:
            assert outcome.entry.payload not in self.outcomes, "a batch has one outcome"
            self.outcomes[outcome.entry.payload] = outcome.result

    def step(self, action: str, choice: int) -> None:
        """Let one thing happen; `choice` says to which of those it could happen to."""
        if action == "add":
            self.add()
        elif action == "close":
            self.add(closes=True)
        elif action == "time":
            self.now += choice % 5
        elif action == "takeover":
            self.server.epoch, self.server.last_seq = max(self.server.epoch, 0) + 1, 0
        elif action == "stray" and self.stray:
            self.server.handle(self.stray.pop(choice % len(self.stray)))
        elif action == "answer" and self.answers:
            self.tell(*self.answers.pop(choice % len(self.answers)))
        elif action == "lose answer" and self.answers:
            self.tell(self.answers.pop(choice % len(self.answers))[0], LOST)
        elif self.waiting:
            self.step_request(action, self.waiting.pop(choice % len(self.waiting)))
        self.send()
        self.check()

    def step_request(self, action: str, packet: Packet) -> None:
        if action == "give up":
            self.stray.append(packet)
            self.tell(packet, LOST)
        elif action == "busy":
            self.tell(packet, RateLimited("busy", status=429, retry_after_s=2.0))
        elif action == "wrong answer":
            self.server.handle(packet)
            self.tell(packet, UnexpectedAnswer("?", status=200, in_doubt=True))
        else:
            self.deliver(packet)

    def settle(self) -> None:
        """From now on the network works. Everything must come to an end."""
        for _ in range(1_000):
            if not self.state.entries:
                break
            self.now += 5.0
            self.send()
            while self.waiting:
                self.deliver(self.waiting.pop(0))
            while self.answers:
                self.tell(*self.answers.pop(0))
        while self.stray:
            self.server.handle(self.stray.pop())
        self.check()
        assert set(self.outcomes) == set(range(len(self.added))), "every batch has an outcome"

    def check(self) -> None:
        numbers = [self.added.index(body) for body in self.server.log]
        assert numbers == sorted(set(numbers)), "stored twice or out of order"
        assert numbers == list(range(len(numbers))), "stored with a hole"
        for number, result in self.outcomes.items():
            if isinstance(result, Receipt):
                assert number in numbers, "reported stored"
            elif not result.in_doubt:
                assert number not in numbers, "reported failed without doubt"
