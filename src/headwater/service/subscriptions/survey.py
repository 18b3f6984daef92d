"""The tails of streams, while they keep growing.

A survey reads the tails of many streams from the engine, page by page, on a thread. Commits
meanwhile are recorded, and applied to the result at the end. A page may or may not show a recorded
commit; applying it again does no harm. A commit reported as failed may have taken effect, so its
streams are read again. Reports of other nodes count as well (`hints`): how far a stream has grown,
or that it has to be read again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final

from headwater.core.stream import Appended, Created, Deleted, SoftDeleted, Undeleted
from headwater.core.subscriptions.state import StreamTail
from headwater.service.batches import Effect
from headwater.service.entries import Entry
from headwater.service.log import Log

if TYPE_CHECKING:
    from headwater.service.subscriptions.hints import Hearing, Hint

_PAGE: Final = 2_000

Fact = Created | Undeleted | Appended | Deleted | SoftDeleted


class Found:
    """The streams that a survey found, for many users who each want some of them."""

    def __init__(self, tails: Mapping[str, StreamTail]) -> None:
        self._tails = tails
        self._paths = sorted(tails)

    def of(self, prefix: str | None, paths: Iterable[str]) -> Iterator[StreamTail]:
        """The streams below a prefix, and those of some single paths that exist."""
        if prefix is not None:
            for index in range(bisect_left(self._paths, prefix), len(self._paths)):
                path = self._paths[index]
                if not path.startswith(prefix):
                    break
                yield self._tails[path]
        for path in paths:
            if path in self._tails and (prefix is None or not path.startswith(prefix)):
                yield self._tails[path]


class Survey:
    def __init__(self, streams: Log, hearing: Hearing | None = None) -> None:
        self._streams = streams
        self._hearing = hearing
        self._facts: dict[str, list[Fact]] = {}
        self._grown: dict[str, Hint] = {}
        self._prefixes: tuple[str, ...] = ()
        self._paths: Set[str] = frozenset()
        self._doubtful: set[str] = set()

    async def run(self, prefixes: Iterable[str], paths: Iterable[str]) -> dict[str, StreamTail]:
        """The streams below some prefixes, and some single ones."""
        writer, found = self._streams.writer, dict[str, StreamTail]()
        self._prefixes, self._paths = tuple(_without_overlap(prefixes)), {*paths}
        writer.observers.append(self._note)
        writer.failure_observers.append(self._doubt)
        if self._hearing is not None:
            self._hearing.surveys.add(self)
        try:
            for prefix in self._prefixes:
                await self._read(prefix, found)
            for path in self._paths:
                if path not in found:
                    await self._read_one(path, found)
            while self._doubtful:
                await self._read_one(self._doubtful.pop(), found)
        finally:
            writer.observers.remove(self._note)
            writer.failure_observers.remove(self._doubt)
            if self._hearing is not None:
                self._hearing.surveys.discard(self)
        for path, facts in self._facts.items():
            for fact in facts:
                _apply(found, path, fact)
        for hint in self._grown.values():
            known = found.get(hint.path)
            if known is not None and known.lineage.own == hint.stream_id:
                found[hint.path] = known._replace(tail=max(known.tail, hint.tail))
        return found

    def heard(self, hints: Sequence[Hint]) -> None:
        for hint in hints:
            path = hint.path
            if path in self._paths or path.startswith(self._prefixes):
                if hint.stream_id:
                    self._grown[path] = hint
                else:
                    self._look_again(path)

    def _note(self, effects: Sequence[Effect]) -> None:
        for owner, mutation in effects:
            if isinstance(mutation, Fact):
                assert isinstance(owner, Entry)
                self._facts.setdefault(owner.path, []).append(mutation)

    def _doubt(self, effects: Sequence[Effect]) -> None:
        for owner, _ in effects:
            if isinstance(owner, Entry):
                self._look_again(owner.path)

    def _look_again(self, path: str) -> None:
        """What was recorded before may be outdated by something that is not known here."""
        self._facts.pop(path, None)
        self._doubtful.add(path)

    async def _read_one(self, path: str, found: dict[str, StreamTail]) -> None:
        # Of all paths with this prefix, it sorts first.
        page = await self._page(path, "", 1)
        found.pop(path, None)
        found.update({tail.path: tail for tail in page if tail.path == path})

    async def _read(self, prefix: str, found: dict[str, StreamTail]) -> None:
        after = ""
        while page := await self._page(prefix, after, _PAGE):
            found.update({tail.path: tail for tail in page})
            after = page[-1].path

    async def _page(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        return await self._streams.in_thread(
            self._streams.engine.streams.tails, prefix, after, limit
        )


def _apply(found: dict[str, StreamTail], path: str, fact: Fact) -> None:
    known = found.get(path)
    match fact:
        case Created(config):
            # Ids grow, so the known one may be a younger stream of the same name.
            if known is None or known.lineage.own < config.id:
                found[path] = tail_of(path, fact)
        case Undeleted():
            if known is None:
                found[path] = tail_of(path, fact)
        case Appended(stream_id=stream_id):
            if known is not None and known.lineage.own == stream_id and known.tail < fact.end:
                found[path] = known._replace(tail=fact.end)
        case Deleted(stream_id) | SoftDeleted(stream_id):
            if known is not None and known.lineage.own == stream_id:
                del found[path]


def tail_of(path: str, came: Created | Undeleted) -> StreamTail:
    """The tail of a stream that was just created or undeleted."""
    if isinstance(came, Undeleted):
        return StreamTail(path, came.state.config.lineage, came.state.tail)
    return StreamTail(path, came.config.lineage, came.config.lineage.base)


def _without_overlap(prefixes: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for prefix in sorted(prefixes):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return kept
