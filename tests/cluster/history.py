"""What clients of a cluster asked for and were told, and whether any server could have done that.

All clients run in one process, so there is one clock, and "before" means before. Every message that
is sent has an id of its own. At the end, when nothing is under way and everything works again, each
stream is read from its beginning: that is its order, and everything recorded is held against it.

- *order*: nothing is there that nobody sent or that was refused, and nothing twice, however often a
  producer repeated it; what a reader saw, piece by piece, is the beginning of that order.
- *lost*: everything that was acknowledged is there.
- *real time*: an append that was acknowledged before another one was sent stands before it.
- *stale*: whoever asks at the tail sees everything that was acknowledged, or seen by somebody else,
  before the question; and nothing that was only sent after the answer.
- *transactions*: all of one is there or nothing, and who has seen one part finds the others.
- *groups*: a message is settled once and not delivered again afterwards; in the end all are.
- *wakes*: nobody waits on for long when there is something new.
- *documents*: all editors end with the same one, and what was acknowledged is in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from math import inf
from typing import Final, overload

WAKE_PATIENCE_S: Final = 10.0
"""How much later than the acknowledgement a waiter may hear of an append, on a busy machine."""


class Fate(Enum):
    UNKNOWN = "no answer, or one that left it open"
    ACKED = "acknowledged"
    REFUSED = "refused"


@dataclass(slots=True, eq=False)
class Sent:
    """An append, or a transaction: messages by stream, in the order in which they were sent."""

    client: str
    messages: dict[str, list[str]]
    began: float
    ended: float = inf
    fate: Fate = Fate.UNKNOWN


class Part(Sequence[str]):
    """Some neighbouring messages of a list that only grows. They take no room of their own."""

    __slots__ = ("_end", "_start", "_whole")

    def __init__(self, whole: list[str], start: int, end: int) -> None:
        self._whole, self._start, self._end = whole, start, end

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        return self._whole[self._start : self._end][at]


@dataclass(slots=True, eq=False)
class Seen:
    """A reader's question and what it got; `before` is how many messages it had already."""

    reader: str
    stream: str
    before: int
    messages: Sequence[str]
    began: float
    ended: float
    at_tail: bool = True
    waited: bool = False

    @property
    def count(self) -> int:
        return self.before + len(self.messages)


@dataclass(slots=True, eq=False)
class Delivered:
    """Messages of a stream that a group gave to a worker."""

    stream: str
    messages: list[str]
    began: float
    ended: float


@dataclass(slots=True, eq=False)
class Settled:
    """Messages that a worker reported as done."""

    stream: str
    messages: list[str]
    began: float
    ended: float = inf
    fate: Fate = Fate.UNKNOWN


@dataclass(slots=True, eq=False)
class Edited:
    """A document in the end: how much each editor has of what everybody wrote, and shows."""

    written: dict[int, int]
    """How much was acknowledged, by the number that its writer had."""
    states: list[dict[int, int]]
    shown: list[tuple[str, str]]


@dataclass
class History:
    sent: list[Sent] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    final: dict[str, list[str]] = field(default_factory=dict)
    """Every stream as it was in the end."""
    unsettled: dict[str, int] = field(default_factory=dict)
    """By stream, how many messages its group has not settled in the end."""

    edited: dict[str, Edited] = field(default_factory=dict)
    known: dict[str, list[str]] = field(default_factory=dict)
    """What has been seen of each stream by anyone, in that order."""

    def saw(self, seen: Seen) -> None:
        """Record what a reader got. Nearly always others have seen it too, in the same order: then
        it is not kept once more, or an hour of reading from the start would fill the memory."""
        known = self.known.setdefault(seen.stream, [])
        there = known[seen.before : seen.count]
        if seen.before <= len(known) and there == seen.messages[: len(there)]:
            known += seen.messages[len(there) :]
            seen.messages = Part(known, seen.before, seen.count)
        self.seen.append(seen)

    @property
    def acknowledged(self) -> int:
        return sum(one.fate is Fate.ACKED for one in self.sent)


def check(history: History) -> list[str]:
    """Every broken promise, in words."""
    checker = _Checker(history)
    return [
        *checker.order(),
        *checker.lost(),
        *checker.real_time(),
        *checker.stale(),
        *checker.transactions(),
        *checker.groups(),
        *checker.wakes(),
        *checker.documents(),
    ]


class _Tails:
    """Reads of a stream to its end, by when they began."""

    def __init__(self, seen: list[Seen]) -> None:
        ordered = sorted(seen, key=lambda one: one.began)
        self._times = [one.began for one in ordered]
        counts = [one.count for one in ordered]
        self._least = [*reversed(list(accumulate(reversed(counts), min)))]

    def after(self, time: float) -> float:
        """The fewest messages that anyone saw who asked after a moment."""
        at = bisect_right(self._times, time)
        return self._least[at] if at < len(self._least) else inf


class _Checker:
    def __init__(self, history: History) -> None:
        self._history = history
        self._places = {
            stream: {message: place for place, message in enumerate(messages)}
            for stream, messages in history.final.items()
        }
        self._sent: dict[tuple[str, str], Sent] = {}
        for sent in history.sent:
            for stream, messages in sent.messages.items():
                self._sent |= {(stream, message): sent for message in messages}
        self._in_order = {
            stream: [self._sent.get((stream, message)) for message in messages]
            for stream, messages in history.final.items()
        }
        """Who sent what a stream holds."""

    def _place(self, stream: str, message: str) -> int | None:
        return self._places.get(stream, {}).get(message)

    def order(self) -> Iterator[str]:
        for stream, messages in self._history.final.items():
            for message, count in Counter(messages).items():
                if count > 1:
                    yield f"order: {stream} has {message} {count} times"
                sent = self._sent.get((stream, message))
                if sent is None:
                    yield f"order: {stream} has {message}, which nobody sent"
                elif sent.fate is Fate.REFUSED:
                    yield f"order: {stream} has {message}, which was refused"
        for seen in self._history.seen:
            there = self._history.final.get(seen.stream, [])[seen.before : seen.count]
            if there != seen.messages[:]:
                yield (
                    f"order: {seen.reader} saw {seen.messages[:5]}… in {seen.stream} after"
                    f" {seen.before} messages, and there are {there[:5]}…"
                )

    def lost(self) -> Iterator[str]:
        for sent in self._history.sent:
            if sent.fate is not Fate.ACKED:
                continue
            for stream, messages in sent.messages.items():
                for message in messages:
                    if self._place(stream, message) is None:
                        yield f"lost: {stream} has no {message} of {sent.client}"
                places = [self._place(stream, message) or 0 for message in messages]
                if places != sorted(places):
                    yield f"order: {stream} has {messages} of {sent.client} in another order"

    def real_time(self) -> Iterator[str]:
        for stream in self._history.final:
            latest, whose = -inf, ""
            for message, sent in zip(
                self._history.final[stream], self._in_order[stream], strict=True
            ):
                if sent is None:
                    continue
                if sent.ended < latest and sent.fate is Fate.ACKED:
                    yield (
                        f"real time: {stream} has {message} after {whose}, which was sent when"
                        " it had been acknowledged"
                    )
                if sent.began > latest:
                    latest, whose = sent.began, message

    def stale(self) -> Iterator[str]:
        due = {stream: self._due(stream) for stream in self._history.final}
        last_sent = {stream: self._last_sent(stream) for stream in self._history.final}
        for seen in self._history.seen:
            if seen.stream not in due:
                continue
            times, counts = due[seen.stream]
            at = bisect_left(times, seen.began) - 1
            if seen.at_tail and at >= 0 and counts[at] > seen.count:
                yield (
                    f"stale: {seen.reader} saw {seen.count} messages of {seen.stream}, and"
                    f" {counts[at]} were known before it asked"
                )
            newest = last_sent[seen.stream]
            if newest[min(seen.count, len(newest) - 1)] <= seen.ended:
                continue
            for message in seen.messages:
                sent = self._sent.get((seen.stream, message))
                if sent is not None and sent.began > seen.ended:
                    yield f"stale: {seen.reader} saw {message} before it was sent"

    def _last_sent(self, stream: str) -> list[float]:
        """When the last of the first so many messages of a stream was sent."""
        began = (sent.began if sent is not None else inf for sent in self._in_order[stream])
        return [*accumulate(began, max, initial=-inf)]

    def _due(self, stream: str) -> tuple[list[float], list[int]]:
        """How many messages of a stream must be seen from when on."""
        events = [
            (sent.ended, place + 1)
            for place, sent in enumerate(self._in_order[stream])
            if sent is not None and sent.fate is Fate.ACKED
        ]
        events += [(s.ended, s.count) for s in self._history.seen if s.stream == stream]
        events.sort()
        return [time for time, _ in events], list(accumulate((n for _, n in events), max))

    def transactions(self) -> Iterator[str]:
        first_seen = self._first_seen()
        at_tail: dict[str, list[Seen]] = {stream: [] for stream in self._history.final}
        for seen in self._history.seen:
            if seen.at_tail and seen.stream in at_tail:
                at_tail[seen.stream].append(seen)
        tails = {stream: _Tails(seen) for stream, seen in at_tail.items()}
        for sent in self._history.sent:
            if len(sent.messages) < 2:
                continue
            places = {
                (stream, message): self._place(stream, message)
                for stream, messages in sent.messages.items()
                for message in messages
            }
            missing = [key for key, place in places.items() if place is None]
            if missing and len(missing) < len(places):
                yield f"transactions: of one of {sent.client}, {missing} is missing"
            known = min((first_seen.get(key, inf) for key in places), default=inf)
            for (stream, message), place in places.items():
                shortest = tails[stream].after(known)
                if place is not None and place >= shortest:
                    yield (
                        f"transactions: {message} was not seen in {stream}, and another part had"
                        " been seen before"
                    )

    def _first_seen(self) -> dict[tuple[str, str], float]:
        """When each message was first seen by anyone."""
        found: dict[tuple[str, str], float] = {}
        # Where the messages begin that nobody had seen, if those before them were read in order.
        new_from: Counter[str] = Counter()
        for seen in sorted(self._history.seen, key=lambda one: one.ended):
            stream, messages = seen.stream, seen.messages
            if seen.before <= new_from[stream]:
                messages = messages[new_from[stream] - seen.before :]
                new_from[stream] = max(new_from[stream], seen.count)
            for message in messages:
                found.setdefault((stream, message), seen.ended)
        return found

    def groups(self) -> Iterator[str]:
        done: dict[tuple[str, str], float] = {}
        for settled in self._history.settled:
            if settled.fate is not Fate.ACKED:
                continue
            for message in settled.messages:
                if (settled.stream, message) in done:
                    yield f"groups: {message} of {settled.stream} was settled twice"
                done[settled.stream, message] = settled.ended
        for delivered in self._history.delivered:
            for message in delivered.messages:
                if delivered.began > done.get((delivered.stream, message), inf):
                    yield f"groups: {message} of {delivered.stream} was delivered when settled"
                if self._place(delivered.stream, message) is None:
                    yield f"groups: {message} was delivered and is not in {delivered.stream}"
        for stream, count in self._history.unsettled.items():
            if count:
                yield f"groups: {count} messages of {stream} were never settled"

    def wakes(self) -> Iterator[str]:
        for seen in self._history.seen:
            if not seen.waited or seen.messages:
                continue
            sent = self._in_order.get(seen.stream, [])
            for place in range(seen.count, len(sent)):
                one = sent[place]
                if one is None or one.fate is not Fate.ACKED:
                    continue
                waited_s = seen.ended - max(one.ended, seen.began)
                if waited_s > WAKE_PATIENCE_S:
                    yield (
                        f"wakes: {seen.reader} waited {waited_s:.1f} s longer on {seen.stream}"
                        f" although {one.client} had written"
                    )
                break

    def documents(self) -> Iterator[str]:
        for name, edited in self._history.edited.items():
            state = edited.states[0]
            if any(one != state for one in edited.states) or len(set(edited.shown)) > 1:
                yield f"documents: not everyone has the same {name}"
            for writer, count in edited.written.items():
                if state.get(writer, 0) < count:
                    yield f"documents: {name} lacks acknowledged changes of {writer}"
