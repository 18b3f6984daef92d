"""Nodes that share a database: the rules, over anything that can happen."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.cluster import NodeSeen, Sightings, plan, shard_of

NODES = st.lists(st.integers(1, 20), unique=True, max_size=8)


@st.composite
def ownerships(draw: st.DrawFn) -> dict[int, int | None]:
    owners = st.one_of(st.none(), st.integers(1, 20))
    return dict(enumerate(draw(st.lists(owners, min_size=1, max_size=64))))


@given(ownerships(), NODES)
def test_shards_are_spread_evenly_over_those_who_want_some(
    owners: dict[int, int | None], nodes: list[int]
) -> None:
    planned = plan(owners, nodes)
    assert set(planned.values()) <= set(nodes)
    if not nodes:
        assert planned == {}
        return
    assert planned.keys() == owners.keys()
    counts = Counter(planned.values())
    held = [counts[node] for node in nodes]
    assert max(held) - min(held) <= 1


@given(ownerships(), NODES)
def test_no_more_change_hands_than_must(owners: dict[int, int | None], nodes: list[int]) -> None:
    if not nodes:
        return
    planned = plan(owners, nodes)
    least, extra = divmod(len(owners), len(nodes))
    before = sorted((list(owners.values()).count(node) for node in nodes), reverse=True)
    kept = sum(min(n, least + (rank < extra)) for rank, n in enumerate(before))
    assert sum(owners[shard] == node for shard, node in planned.items()) == kept
    assert plan(dict(planned), nodes) == planned, "once it is as planned, nothing moves"


@given(st.text(min_size=1), st.integers(1, 1024))
def test_a_path_has_one_shard(path: str, shards: int) -> None:
    if any("\ud800" <= c <= "\udfff" for c in path):
        return
    assert 0 <= shard_of(path, shards) < shards
    assert shard_of(path, shards) == shard_of(path, shards)


def node(counter: int, epoch: int = 1, lease_ms: int = 3_000) -> NodeSeen:
    return NodeSeen(7, "seven", "http://7", epoch, counter, lease_ms, False)


@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), st.booleans()), min_size=1, max_size=40),
    st.sampled_from([1_000, 3_000]),
)
def test_nobody_is_taken_for_gone_who_moved_within_a_lease(
    looks: list[tuple[float, float, bool]], lease_ms: int
) -> None:
    """Whoever raised its counter asked for that before anybody saw it, and has a lease from then
    on. Nobody may be taken for gone within that."""
    sightings = Sightings(1_000)
    now, counter, moved_at = 0.0, 0, 0.0
    for pause, took, moves in looks:
        now += pause
        if moves:
            counter, moved_at = counter + 1, now
        asked = now
        now += took
        gone = sightings.note([node(counter, lease_ms=lease_ms)], asked, now)
        if gone:
            assert asked - moved_at >= lease_ms / 1000


def test_who_stands_still_for_a_whole_lease_is_gone() -> None:
    sightings = Sightings(1_000)
    assert sightings.note([node(5)], 0.0, 0.5) == ()
    assert sightings.note([node(5)], 3.4, 3.5) == ()
    assert sightings.note([node(5)], 3.5, 3.6) == (node(5),)
    assert sightings.note([node(6)], 9.0, 9.0) == ()
    assert sightings.note([node(6, epoch=2)], 20.0, 20.0) == (), "a new epoch is a sign of life"
    # One that left is forgotten; if its id came back, it would be new.
    assert sightings.note([], 30.0, 30.0) == ()
    assert sightings.note([node(6, epoch=2)], 40.0, 40.0) == ()
