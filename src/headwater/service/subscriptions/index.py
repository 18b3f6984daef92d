"""Which subscriptions may concern a stream, without checking all of them.

A subscription names streams, or has a pattern, which begins with literal segments, or both. The
index finds it by the names, and by those first segments. The subscription itself decides whether it
has a stream: this only excludes those that certainly do not. Names are also kept sorted, for lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.service.subscriptions.subscription import Subscription


class SubscriptionIndex:
    def __init__(self) -> None:
        self._names: list[str] = []
        self._by_stream: dict[str, dict[Subscription, None]] = {}
        self._by_prefix: dict[str, dict[Subscription, None]] = {}

    def add(self, subscription: Subscription) -> None:
        insort(self._names, subscription.name)
        for path, link in subscription.state.links.items():
            if link.explicit:
                self.link(subscription, path)
        pattern = subscription.state.pattern
        if pattern is not None:
            self._by_prefix.setdefault(pattern.prefix, {})[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        del self._names[bisect_left(self._names, subscription.name)]
        for path, link in subscription.state.links.items():
            if link.explicit:
                self.unlink(subscription, path)
        pattern = subscription.state.pattern
        if pattern is not None:
            _discard(self._by_prefix, pattern.prefix, subscription)

    def link(self, subscription: Subscription, path: str) -> None:
        """A subscription names a stream."""
        self._by_stream.setdefault(path, {})[subscription] = None

    def unlink(self, subscription: Subscription, path: str) -> None:
        _discard(self._by_stream, path, subscription)

    def concerned(self, path: str) -> list[Subscription]:
        """Subscriptions that may concern a stream, each once."""
        found = dict(self._by_stream.get(path, {}))
        for prefix in _prefixes(path):
            found |= self._by_prefix.get(prefix, {})
        return list(found)

    def names(self, prefix: str, after: str) -> Iterator[str]:
        """Names with a prefix that sort after another, in order."""
        first = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        for name in islice(self._names, first, None):
            if not name.startswith(prefix):
                break
            yield name


def _prefixes(path: str) -> Iterator[str]:
    """What a pattern that covers a path may begin with: all of it, or whole segments."""
    yield ""
    end = path.find("/")
    while end >= 0:
        yield path[: end + 1]
        end = path.find("/", end + 1)
    yield path


def _discard(
    index: dict[str, dict[Subscription, None]], key: str, subscription: Subscription
) -> None:
    found = index.get(key, {})
    found.pop(subscription, None)
    if not found:
        index.pop(key, None)
