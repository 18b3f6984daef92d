"""Owners: each has a few streams of its own and puts them through everything that can happen.

An owner does one thing at a time, so it knows exactly what its streams look like: `World` is a
model of them. A crash leaves at most one step unanswered. After the restart all of its streams
together must look as they did before that step, or as they do after it. Steps that carry a
sequence (of a producer, or `Stream-Seq`) are then sent again, and must take effect exactly once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.crash.check import read_all
from tests.crash.history import Kind, Violation, padding
from tests.crash.wire import Lost, Reply, Wire
from tests.crash.workload import TTL_S

_PATHS: Final = 6
_RETIRED_KEPT: Final = 4
_PAUSE_S: Final = 0.02


@dataclass(frozen=True)
class Stream:
    kind: Kind
    content: bytes = b""
    marks: tuple[tuple[int, str], ...] = ((0, "-1"),)
    """Positions between appends, with the offsets that the server gave for them."""
    closed: bool = False
    gone: bool = False
    """Deleted, but there are forks of it."""
    source: str | None = None
    seq: int = 0

    def grown(self, more: bytes, *, closed: bool) -> Stream:
        marks = self.marks
        if more:
            marks = (*marks, (len(self.content) + len(more), "?"))
        return replace(self, content=self.content + more, marks=marks, closed=closed)

    def boundary(self, token: str) -> int | None:
        """Where a read from any offset begins; None if it is none of this stream.

        A fork keeps the offsets of what it inherits. Those between two appends of a run are rounded
        down, and so is one past the tail; one past the end of another run belongs to its source.
        """
        run, _, number = token.partition("_")
        ends = [end for end, mark in self.marks if mark.partition("_")[0] == run]
        position = int(number)
        if not ends or position > ends[-1] + (ends[-1] == len(self.content)):
            return None
        return max(end for end, _ in self.marks if end <= min(position, ends[-1]))


World = dict[str, Stream]


def without(world: World, path: str) -> World:
    """The world after a delete: what has forks stays for them, and goes with the last one."""
    stream = world[path]
    if any(other.source == path for other in world.values()):
        return {**world, path: replace(stream, gone=True)}
    rest = {other: model for other, model in world.items() if other != path}
    source = stream.source
    if source is not None and world[source].gone:
        return without(rest, source)
    return rest


@dataclass(frozen=True)
class Step:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    before: World
    after: World
    status: int
    repeated: int | None = None
    """The status when a step that took effect is sent again; None when it must not be."""


class Owner:
    def __init__(self, name: str, port: int, rng: Random) -> None:
        self.name = name
        self.port = port
        self.rng = rng
        self.world: World = {}
        self.unanswered: Step | None = None
        self.steps = 0
        self.unavailable = 0
        self._paths = [f"own/{name}/{number}" for number in range(_PATHS)]
        self._retired: dict[str, deque[str]] = {
            path: deque(maxlen=_RETIRED_KEPT) for path in self._paths
        }

    async def run(self) -> None:
        wire = Wire(self.port)
        try:
            await self._repeat(wire)
            while True:
                self.unanswered = step = self._plan()
                reply = await self._send(wire, step)
                if reply.status == step.status:
                    self._done(step, reply.headers.get("stream-next-offset", ""))
                elif reply.status == 503:
                    self.unanswered = None
                    self.unavailable += 1
                    await asyncio.sleep(_PAUSE_S)
                else:
                    raise Violation(f"{step.method} {step.path}: {reply}, expected {step.status}")
        except Lost:
            pass
        finally:
            await wire.close()

    async def _send(self, wire: Wire, step: Step) -> Reply:
        return await wire.request(step.method, step.path, step.headers, step.body)

    def _done(self, step: Step, tail: str) -> None:
        """The step took effect; `tail` is the offset at the end of its stream."""
        self.unanswered = None
        self.steps += 1
        for path, stream in step.before.items():
            if path not in step.after and len(stream.marks) > 1:
                self._retired[path].append(stream.marks[-1][1])
        self.world = step.after
        stream_after = self.world.get(step.path)
        if stream_after is not None and stream_after.marks[-1][1] == "?":
            marks = (*stream_after.marks[:-1], (len(stream_after.content), tail))
            self.world = {**self.world, step.path: replace(stream_after, marks=marks)}

    async def _repeat(self, wire: Wire) -> None:
        """Send the unanswered step again, if it says by itself whether it was there before."""
        step = self.unanswered
        if step is None:
            return
        took_effect = self.world is not step.before
        if step.repeated is not None:
            reply = await self._send(wire, step)
            expected = step.repeated if took_effect else step.status
            if reply.status != expected:
                raise Violation(f"{step.path} sent again: {reply}, expected {expected}")
            if not took_effect:
                self._done(step, reply.next_offset)
        self.unanswered = None

    # ── Steps ────────────────────────────────────────────────────────────────────────────────

    def _plan(self) -> Step:
        path = self.rng.choice([p for p in self._paths if not self._is_gone(p)] or self._paths)
        stream = self.world.get(path)
        if stream is None:
            sources = [p for p, model in self.world.items() if not model.gone]
            if sources and self.rng.random() < 0.6:
                return self._fork(path, self.rng.choice(sources))
            return self._create(path)
        if stream.gone:
            return self._step("POST", path, {"Content-Type": "text/plain"}, b"x", self.world, 410)
        dice = self.rng.random()
        if dice < 0.12:
            return self._step("DELETE", path, {}, b"", without(self.world, path), 204)
        if stream.closed:
            headers = {"Content-Type": stream.kind.content_type}
            return self._step("POST", path, headers, b'"late"', self.world, 409)
        return self._append(path, stream, closes=dice < 0.2)

    def _is_gone(self, path: str) -> bool:
        return path in self.world and self.world[path].gone

    def _step(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        after: World,
        status: int,
        repeated: int | None = None,
    ) -> Step:
        return Step(method, path, headers, body, self.world, after, status, repeated)

    def _create(self, path: str) -> Step:
        kind = self.rng.choice(list(Kind))
        headers = {"Content-Type": kind.content_type}
        if self.rng.random() < 0.3:
            headers["Stream-TTL"] = TTL_S
        body, stored = self._content(kind) if self.rng.random() < 0.5 else (b"", b"")
        closed = bool(body) and self.rng.random() < 0.2
        if closed:
            headers["Stream-Closed"] = "true"
        stream = Stream(kind).grown(stored, closed=closed)
        return self._step("PUT", path, headers, body, {**self.world, path: stream}, 201)

    def _append(self, path: str, stream: Stream, *, closes: bool) -> Step:
        headers = {"Content-Type": stream.kind.content_type}
        body, stored = self._content(stream.kind)
        if closes:
            headers["Stream-Closed"] = "true"
            if self.rng.random() < 0.5:
                body = stored = b""
        grown = stream.grown(stored, closed=closes)
        status, repeated, dice = 204, None, self.rng.random()
        if dice < 0.5:
            headers |= {
                "Producer-Id": self.name,
                "Producer-Epoch": "0",
                "Producer-Seq": str(stream.seq),
            }
            grown = replace(grown, seq=stream.seq + 1)
            status, repeated = (200 if body else 204), 204
        elif dice < 0.75 and body:
            headers["Stream-Seq"] = f"{self.steps:09d}"
            repeated = 409
        after = {**self.world, path: grown}
        return self._step("POST", path, headers, body, after, status, repeated)

    def _fork(self, path: str, source_path: str) -> Step:
        source = self.world[source_path]
        headers = {"Stream-Forked-From": source_path}
        cut = len(source.content)
        index = self.rng.randrange(len(source.marks))
        if self.rng.random() < 0.7:
            cut, headers["Stream-Fork-Offset"] = source.marks[index]
            if index + 1 < len(source.marks):
                lengths = self._sub_lengths(source, index)
                count = self.rng.randrange(len(lengths))
                headers["Stream-Fork-Sub-Offset"] = str(count)
                cut += lengths[count]
        inherited = tuple(mark for mark in source.marks if mark[0] < cut)
        marks = (*inherited, (cut, "?")) if cut else Stream.marks
        fork = Stream(source.kind, source.content[:cut], marks, source=source_path)
        return self._step("PUT", path, headers, b"", {**self.world, path: fork}, 201)

    @staticmethod
    def _sub_lengths(source: Stream, index: int) -> list[int]:
        """How many bytes each possible sub-offset behind a mark takes in, from 0 on."""
        (start, _), (end, _) = source.marks[index : index + 2]
        if source.kind is Kind.TEXT:
            return list(range(end - start + 1))
        lengths = [0]
        for message in source.content[start:end].split(b"},")[:-1]:
            lengths.append(lengths[-1] + len(message) + 2)
        return lengths

    def _content(self, kind: Kind) -> tuple[bytes, bytes]:
        """A body, and its bytes in the stream."""
        if kind is Kind.TEXT:
            text = padding(self.rng) + b"\n"
            return text, text
        messages = [b'{"v":"%b"}' % padding(self.rng) for _ in range(self.rng.randint(1, 4))]
        return b"[" + b",".join(messages) + b"]", b"".join(m + b"," for m in messages)

    # ── Checks ───────────────────────────────────────────────────────────────────────────────

    async def check(self, wire: Wire) -> None:
        """All streams together look as before the unanswered step, or as after it."""
        step = self.unanswered
        possible = [self.world] if step is None else [step.before, step.after]
        wrong: list[str] = []
        for world in possible:
            difference = await self._difference(wire, world)
            if difference is None:
                self.world = world
                if step is not None and world is step.after is not step.before:
                    tail = await wire.request("HEAD", step.path)
                    self._done(step, tail.headers.get("stream-next-offset", ""))
                    self.unanswered = step
                await self._check_offsets(wire)
                return
            wrong.append(difference)
        raise Violation(f"owner {self.name} after {step}: {' | '.join(wrong)}")

    async def _difference(self, wire: Wire, world: World) -> str | None:
        for path in self._paths:
            found, expected = await self._observe(wire, path), self._expected(world.get(path))
            if found != expected:
                return f"{path} is {_short(found)}, expected {_short(expected)}"
        return None

    async def _observe(self, wire: Wire, path: str) -> tuple[int, bytes, bool]:
        head = await wire.request("HEAD", path)
        if head.status != 200:
            return head.status, b"", False
        kind = Kind(head.headers["content-type"])
        content, _, closed = await read_all(wire, path, kind, "-1")
        return 200, content, closed

    @staticmethod
    def _expected(stream: Stream | None) -> tuple[int, bytes, bool]:
        if stream is None:
            return 404, b"", False
        return (410, b"", False) if stream.gone else (200, stream.content, stream.closed)

    async def _check_offsets(self, wire: Wire) -> None:
        for path, stream in self.world.items():
            if stream.gone:
                continue
            position, token = self.rng.choice(stream.marks)
            content, tail, _ = await read_all(wire, path, stream.kind, token)
            if content != stream.content[position:] or stream.marks[-1][1] not in (tail, "-1"):
                raise Violation(f"{path}: offset {token} does not read on at {position}")
        for path, tokens in self._retired.items():
            for token in tokens:
                await self._check_retired(wire, path, token)

    async def _check_retired(self, wire: Wire, path: str, token: str) -> None:
        """An offset of a stream that was here once reads what this one shares with it, or not."""
        stream = self.world.get(path)
        start = None if stream is None or stream.gone else stream.boundary(token)
        if stream is None or stream.gone or start is None:
            reply = await wire.request("GET", path, query=f"offset={token}")
            expected = 400 if stream and not stream.gone else self._expected(stream)[0]
            if reply.status != expected:
                raise Violation(f"{path}: old offset {token} is {reply}, expected {expected}")
            return
        content, _, _ = await read_all(wire, path, stream.kind, token)
        if content != stream.content[start:]:
            raise Violation(f"{path}: old offset {token} does not read on at {start}")


def _short(observed: tuple[int, bytes, bool]) -> str:
    status, content, closed = observed
    return f"{status} with {len(content)} bytes{', closed' if closed else ''}"
