"""Figures that are updated incrementally, checked against a full count."""

from __future__ import annotations

from collections import Counter

from headwater.core.subscriptions.state import Phase
from headwater.service.groups.operations import Groups
from headwater.service.subscriptions.figures import Share
from headwater.service.subscriptions.operations import Subscriptions


def check_groups(groups: Groups) -> None:
    everyone = [g for stream in groups._by_path.values() for g in stream.groups.values()]
    loaded = [group for group in everyone if not group.gone]
    figures = groups.figures
    assert figures.loaded == len(loaded)
    assert figures.in_flight == sum(group.state.in_flight for group in loaded)
    assert figures.outstanding == sum(len(group.state.outstanding) for group in loaded)
    assert figures.waiting == sum(len(group.waiters) for group in everyone)
    for stream in groups._by_path.values():
        assert set(stream.awaited) == {g for g in stream.groups.values() if g.waiters}


def check_subscriptions(subscriptions: Subscriptions) -> None:
    known, figures = subscriptions._by_name, subscriptions.figures
    shares = [Share.of(subscription.state) for subscription in known.values()]
    phases = Counter(share.phase for share in shares)
    assert figures.phases == {phase: phases[phase] for phase in Phase}
    assert figures.failing == sum(share.is_failing for share in shares)
    assert figures.pending == sum(share.pending for share in shares)
    assert list(subscriptions.index.names("", "")) == sorted(known)
    named: dict[str, set[object]] = {}
    for subscription in known.values():
        for path, link in subscription.state.links.items():
            assert subscription in subscriptions.index.concerned(path)
            if link.explicit:
                named.setdefault(path, set()).add(subscription)
    assert {p: set(found) for p, found in subscriptions.index._by_stream.items()} == named
