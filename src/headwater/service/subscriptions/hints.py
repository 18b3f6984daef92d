"""Hints: what other nodes of a cluster report about their streams, for subscriptions.

After each commit, every other node tells a node with subscriptions which streams changed and where
they end now. A channel is complete and in order, so nothing has to be queried. Hints can only be
missed while there is no channel, and then the database has the answer:

- when a channel opens, everything that the other node committed before is looked up;
- while there is none to a live node, all streams are looked up repeatedly; the longer that takes,
  the less often;
- when a node is gone, they are looked up once more: the row of a node is removed only after its
  last transaction has ended.

A node that does not know how one of its commits ended reports it once it does. Requests do not rely
on hints: a claim queries the database first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.core.stream import Appended, Created, Deleted, SoftDeleted, Undeleted
from headwater.service.background import Retried
from headwater.service.batches import Effect
from headwater.service.entries import Entry

if TYPE_CHECKING:
    from headwater.service.subscriptions.registry import SubscriptionRegistry
    from headwater.service.subscriptions.subscription import Subscription
    from headwater.service.subscriptions.survey import Survey

_LOOK_MS: Final = 500
_REST_PER_LOOK: Final = 10
_PATHS_KNOWN_MAX: Final = 20_000


class Hint(NamedTuple):
    path: str
    stream_id: int = 0
    """0 if the stream was created or deleted, or may have been: followers have to look it up."""
    tail: int = 0


def hints_of(effects: Iterable[Effect]) -> list[Hint]:
    """The hints for a commit, one per stream."""
    changed: dict[str, Hint] = {}
    for owner, mutation in effects:
        if isinstance(mutation, Appended):
            assert isinstance(owner, Entry)
            known = changed.get(owner.path)
            if known is None or known.stream_id:
                changed[owner.path] = Hint(owner.path, mutation.stream_id, mutation.end)
        elif isinstance(mutation, Created | Undeleted | Deleted | SoftDeleted):
            assert isinstance(owner, Entry)
            changed[owner.path] = Hint(owner.path)
    return list(changed.values())


class Hearing:
    """What this node hears about the streams of others."""

    def __init__(self, registry: SubscriptionRegistry) -> None:
        self._registry = registry
        self._concerned: dict[str, tuple[int, list[Subscription]]] = {}
        """By path, the possible followers, as of some version of the links."""
        self._looks = Retried(registry.streams.watch("subscription_hints"))
        self._everything = False
        self._paths: set[str] = set()
        """What to look up next, if not everything."""
        self._is_deaf = self._is_planned = False
        self.surveys: set[Survey] = set()
        """Those in progress."""
        self.on_held: Callable[[], None] = lambda: None
        """Called when the first subscription was added, or the last one removed."""

    # ── Hints from other nodes ───────────────────────────────────────────────────────────────

    def heard(self, hints: Sequence[Hint]) -> None:
        for survey in self.surveys:
            survey.heard(hints)
        for hint in hints:
            for subscription in self._followers(hint.path):
                if subscription.over:
                    continue
                state = subscription.state
                link = state.links.get(hint.path)
                if link is not None and hint.stream_id and link.stream_id == hint.stream_id:
                    subscription.grew(link, hint.stream_id, hint.tail)
                elif link is not None or state.globs(hint.path):
                    # A link to a stream that did not exist has no id either.
                    self._look_soon(hint.path)

    def _followers(self, path: str) -> list[Subscription]:
        version = self._registry.version
        known = self._concerned.get(path)
        if known is None or known[0] != version:
            if len(self._concerned) >= _PATHS_KNOWN_MAX:
                self._concerned.clear()
            known = self._concerned[path] = version, self._registry.index.concerned(path)
        return known[1]

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Something may have been missed: look up every stream in the database."""
        self._everything = True
        self._begin()

    def _look_soon(self, path: str) -> None:
        self._paths.add(path)
        self._begin()

    def _begin(self) -> None:
        if not len(self._looks):
            self._looks.start(self._look)

    async def _look(self) -> None:
        while self._everything or self._paths:
            began = monotonic()
            everything, self._everything = self._everything, False
            paths, self._paths = self._paths, set()
            try:
                if everything:
                    await self._registry.look_at_all()
                else:
                    await self._registry.look_at_paths(paths)
            except BaseException:
                self._everything |= everything
                self._paths |= paths
                raise
            self._plan(max(_LOOK_MS, _REST_PER_LOOK * int(1000 * (monotonic() - began))))

    # ── Without a channel ────────────────────────────────────────────────────────────────────

    def set_deaf(self, is_deaf: bool) -> None:
        """Whether there is a live node without a channel."""
        self._is_deaf = is_deaf
        self._plan(_LOOK_MS)

    def _plan(self, after_ms: int) -> None:
        if self._is_deaf and not self._is_planned:
            self._is_planned = True
            self._registry.timers.at(self._registry.streams.clock() + after_ms, self._poll)

    def _poll(self) -> None:
        self._is_planned = False
        if self._is_deaf:
            self.look()

    async def stop(self) -> None:
        await self._looks.stop()
