"""Writers and readers of shared streams, all at once, until the server is gone.

Each participant runs until its connection is lost, is started again after the restart, and goes on
where it was: producers send again what was not answered, readers resume at their last offset.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from tests.crash.history import Append, Fate, Kind, Tape, Violation, compose
from tests.crash.wire import EventStream, Lost, Reply, Wire

TTL_S: Final = "86400"
_CLOSE_CHANCE: Final = 0.002
_PRODUCER_DEPTH: Final = 3
_PAUSE_S: Final = 0.05
_PAUSE_WHEN_LARGE_S: Final = 0.3


class Participant(Protocol):
    async def run(self) -> None:
        """Work until the server goes away."""


class Slot:
    """A place where there is always an open stream: when one is closed, the next is created."""

    def __init__(self, name: str, kind: Kind, *, ttl: bool, least_bytes: int = 0) -> None:
        self.name = name
        self.least_bytes = least_bytes
        self.kind = kind
        self.ttl = ttl
        self.tapes: list[Tape] = []
        self._add()

    @property
    def tape(self) -> Tape:
        return self.tapes[-1]

    def _add(self) -> None:
        path = f"shared/{self.name}/{len(self.tapes)}"
        self.tapes.append(Tape(path, self.kind, self.least_bytes))

    def closed(self, tape: Tape) -> None:
        if tape is self.tape:
            self._add()

    def after(self, tape: Tape) -> Tape:
        return self.tapes[self.tapes.index(tape) + 1]


class Writer:
    """Plain appends, one at a time. What was not answered is not sent again."""

    def __init__(self, name: str, port: int, slots: Sequence[Slot], rng: Random) -> None:
        self.name = name
        self.port = port
        self.slots = slots
        self.rng = rng
        self.numbers = 0
        self.acked = 0
        self.unavailable = 0
        """How often the storage was said to be unavailable: nothing was written then."""

    async def run(self) -> None:
        wire = Wire(self.port)
        try:
            while True:
                slot, tape = await self.choose(wire)
                append = self.compose(tape, closes=self.rng.random() < _CLOSE_CHANCE)
                self.note(slot, tape, append, await self.send(wire, tape, append, {}))
                if append.fate is Fate.REFUSED:
                    await asyncio.sleep(_PAUSE_S)
        except Lost:
            pass
        finally:
            await wire.close()

    async def choose(self, wire: Wire) -> tuple[Slot, Tape]:
        slot = self.rng.choice(self.slots)
        tape = slot.tape
        if tape.least_bytes:
            await asyncio.sleep(_PAUSE_WHEN_LARGE_S)
        headers = {"Content-Type": tape.kind.content_type}
        if slot.ttl:
            headers["Stream-TTL"] = TTL_S
        while not tape.created:
            reply = await wire.request("PUT", tape.path, headers)
            # Someone else may have created it first, and someone even have closed it already.
            if reply.status in (200, 201, 409):
                tape.created = True
            elif reply.status == 503:
                await asyncio.sleep(_PAUSE_S)
            else:
                raise Violation(f"creating {tape.path}: {reply}")
        return slot, tape

    def compose(self, tape: Tape, *, closes: bool = False) -> Append:
        number, self.numbers = self.numbers, self.numbers + 1
        id_ = f"{self.name}.{number}"
        body, stored = compose(tape.kind, id_, self.rng, tape.least_bytes)
        return tape.record(Append(id_, self.name, number, body, stored, closes))

    async def send(self, wire: Wire, tape: Tape, append: Append, extra: dict[str, str]) -> Reply:
        headers = {"Content-Type": tape.kind.content_type, **extra}
        if append.closes:
            headers["Stream-Closed"] = "true"
        return await wire.request("POST", tape.path, headers, append.body)

    def note(self, slot: Slot, tape: Tape, append: Append, reply: Reply) -> None:
        if reply.status in (200, 204):
            append.fate = Fate.ACKED
            self.acked += 1
            duplicate = reply.status == 204 and "producer-seq" in reply.headers
            if not duplicate:
                append.token = reply.next_offset
        elif reply.status == 409 and reply.closed:
            append.fate = Fate.REFUSED
        elif _is_unavailable(reply):
            append.fate = Fate.REFUSED
            self.unavailable += 1
        else:
            raise Violation(f"append {append.id} to {tape.path}: {reply}")
        if reply.closed:
            slot.closed(tape)


def _is_unavailable(reply: Reply) -> bool:
    return reply.status == 503 and b'{"error":{"code":"storage_' in reply.body


@dataclass(eq=False)
class _Session:
    """What one producer has sent to one stream."""

    slot: Slot
    tape: Tape
    epoch: int = 0
    seq: int = 0
    open: list[tuple[int, Append]] = field(default_factory=list)
    """Sent in this epoch and not answered."""


class Producer(Writer):
    """Appends with producer headers, several in flight. What was not answered is sent again."""

    def __init__(self, name: str, port: int, slots: Sequence[Slot], rng: Random) -> None:
        super().__init__(name, port, slots, rng)
        self._sessions: dict[Tape, _Session] = {}

    async def run(self) -> None:
        wires = [Wire(self.port) for _ in range(_PRODUCER_DEPTH)]
        try:
            await self._make_good(wires[0])
            while True:
                await self._produce(wires)
        except Lost:
            pass
        finally:
            for wire in wires:
                await wire.close()

    async def _make_good(self, wire: Wire) -> None:
        """After a crash: send again what was not answered, or take over with a new epoch."""
        for session in self._sessions.values():
            if session.open and self.rng.random() < 0.2:
                await self._take_over(wire, session)
            while session.open:
                await self._again(wire, session)

    async def _again(self, wire: Wire, session: _Session) -> None:
        seq, append = session.open[0]
        session.tape.expect_again(append)
        reply = await self.send(wire, session.tape, append, self._stamp(session, seq))
        if reply.status == 409 and reply.closed:
            # It may have been stored before the stream was closed: that is not said any more.
            session.open.clear()
            session.slot.closed(session.tape)
            return
        self.note(session.slot, session.tape, append, reply)
        if reply.status == 503:
            await asyncio.sleep(_PAUSE_S)
        else:
            session.open.pop(0)

    async def _take_over(self, wire: Wire, session: _Session) -> None:
        """As a new instance would: the old one's unanswered requests stay as they are."""
        stale_seq, stale = session.open[0]
        old_stamp = self._stamp(session, stale_seq)
        session.epoch, session.seq, session.open = session.epoch + 1, 0, []
        first = self.compose(session.tape)
        await self._send_all([wire], session, [first])
        if first.fate is not Fate.ACKED:
            return  # The stream is closed, so nobody took over.
        while _is_unavailable(reply := await self.send(wire, session.tape, stale, old_stamp)):
            self.unavailable += 1
            await asyncio.sleep(_PAUSE_S)
        if reply.status != 403:
            raise Violation(f"a fenced producer of {session.tape.path} was answered {reply}")

    async def _produce(self, wires: Sequence[Wire]) -> None:
        slot, tape = await self.choose(wires[0])
        session = self._sessions.setdefault(tape, _Session(slot, tape))
        if self.rng.random() < _CLOSE_CHANCE:
            appends = [self.compose(tape, closes=True)]
        else:
            appends = [self.compose(tape) for _ in range(self.rng.randint(1, len(wires)))]
        await self._send_all(wires, session, appends)

    async def _send_all(
        self, wires: Sequence[Wire], session: _Session, appends: Sequence[Append]
    ) -> None:
        """Send at once over several connections; they may arrive in any order."""
        for append in appends:
            session.open.append((session.seq, append))
            session.seq += 1
        sent = list(session.open)
        replies = await asyncio.gather(
            *(
                self.send(wire, session.tape, append, self._stamp(session, seq))
                for wire, (seq, append) in zip(wires, sent, strict=False)
            ),
            return_exceptions=True,
        )
        for (seq, append), reply in zip(sent, replies, strict=True):
            if isinstance(reply, BaseException):
                continue
            if (
                reply.status == 409
                and not reply.closed
                and "producer-expected-seq" in reply.headers
            ):
                continue  # It overtook the others and waited in vain; it is sent again.
            self.note(session.slot, session.tape, append, reply)
            if reply.status != 503:
                session.open.remove((seq, append))
        lost = next((reply for reply in replies if isinstance(reply, BaseException)), None)
        if lost is not None:
            raise lost
        while session.open:
            await self._again(wires[0], session)

    def _stamp(self, session: _Session, seq: int) -> dict[str, str]:
        return {
            "Producer-Id": self.name,
            "Producer-Epoch": str(session.epoch),
            "Producer-Seq": str(seq),
        }


class Reader:
    """Follows a slot from its first byte, over crashes and from each stream to the next."""

    def __init__(self, port: int, slot: Slot) -> None:
        self.port = port
        self.slot = slot
        self.tape = slot.tapes[0]
        self.offset = "-1"
        self.received = bytearray()
        self.glimpse = b""
        """Received behind the last offset, without the offset that follows it."""
        self.at_end = False
        self.read_to_the_end: list[tuple[Tape, bytes]] = []
        self.unavailable = 0

    async def run(self) -> None:
        try:
            while True:
                await self.follow()
                if self.at_end:
                    self._next_stream()
        except Lost:
            pass
        finally:
            await self.hang_up()

    async def follow(self) -> None:
        """Receive some more of the stream."""
        raise NotImplementedError

    async def hang_up(self) -> None:
        pass

    async def refused(self) -> None:
        """The storage could not be read."""
        self.unavailable += 1
        await asyncio.sleep(_PAUSE_S)

    def take(self, data: bytes, offset: str, *, at_end: bool) -> None:
        self.received += data
        self.offset = offset
        self.glimpse = b""
        self.at_end = at_end

    def _next_stream(self) -> None:
        self.slot.closed(self.tape)
        self.read_to_the_end.append((self.tape, bytes(self.received)))
        self.tape, self.offset, self.at_end = self.slot.after(self.tape), "-1", False
        self.received.clear()

    def check(self) -> None:
        """Everything received must be there, in the same order, without gap or repetition."""
        seen = bytes(self.received) + self.glimpse
        if not self.tape.content.startswith(seen):
            raise Violation(
                f"a {type(self).__name__} of {self.tape.path} received {len(seen)} bytes "
                f"that are not the first of the {len(self.tape.content)} stored ones"
            )
        for tape, received in self.read_to_the_end:
            if received != tape.content:
                raise Violation(f"{tape.path}: a reader was told of the end, but not of all data")
        self.read_to_the_end.clear()


class SseReader(Reader):
    async def follow(self) -> None:
        stream = EventStream(self.port, self.tape.path, self.offset)
        created, data = self.tape.created, b""
        async with aclosing(stream.events()) as events:
            async for event in events:
                if event.kind == "data":
                    data = self.glimpse = self.tape.kind.stored(event.data)
                elif event.kind == "control":
                    control = json.loads(event.data)
                    at_end = control.get("streamClosed", False)
                    self.take(data, control["streamNextOffset"], at_end=at_end)
                    data = b""
                else:
                    raise Violation(f"{self.tape.path}: unexpected event {event}")
        if stream.status == 404 and not created:
            await asyncio.sleep(_PAUSE_S)
        elif stream.status == 503:
            await self.refused()
        elif stream.status != 200:
            raise Violation(f"SSE of {self.tape.path} at {self.offset}: {stream.status}")


class PollReader(Reader):
    def __init__(self, port: int, slot: Slot) -> None:
        super().__init__(port, slot)
        self._wire = Wire(port)

    async def follow(self) -> None:
        created, query = self.tape.created, f"offset={self.offset}&live=long-poll"
        reply = await self._wire.request("GET", self.tape.path, query=query)
        if reply.status == 200:
            self.take(self.tape.kind.stored(reply.body), reply.next_offset, at_end=reply.closed)
        elif reply.status == 404 and not created:
            await asyncio.sleep(_PAUSE_S)
        elif reply.status == 503:
            await self.refused()
        elif reply.status == 204:
            self.take(b"", reply.next_offset, at_end=reply.closed)
        else:
            raise Violation(f"long-poll of {self.tape.path} at {self.offset}: {reply}")

    async def hang_up(self) -> None:
        await self._wire.close()
