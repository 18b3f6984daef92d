"""Nodes that share a database: the rules, over anything that can happen."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.cluster import (
    Binding,
    ClusterSeen,
    NodeSeen,
    ShardSeen,
    Sightings,
    parse_labels,
    plan,
    shard_of,
)

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


LABELS = st.sampled_from(["region=eu", "region=us"])


@given(ownerships(), NODES, st.data())
def test_a_label_is_for_nodes_that_carry_it_while_there_are_any(
    owners: dict[int, int | None], nodes: list[int], data: st.DataObject
) -> None:
    labels = data.draw(st.dictionaries(st.sampled_from(sorted(owners)), LABELS))
    carried = {one: data.draw(st.frozensets(LABELS)) for one in nodes}
    planned = plan(owners, nodes, labels, carried)
    assert planned.keys() == (owners.keys() if nodes else set())
    for shard, owner in planned.items():
        label = labels.get(shard)
        carrying = [one for one in nodes if label in carried[one]]
        assert owner in (carrying or nodes)
    assert plan(dict(planned), nodes, labels, carried) == planned, "nothing moves any more"
    # What has no label evens out what has, as far as that goes.
    counts = Counter(planned.values())
    plain = Counter(owner for shard, owner in planned.items() if shard not in labels)
    for one in nodes:
        if plain[one]:
            assert counts[one] <= min(counts[other] for other in nodes) + 1


@given(st.text("ab/", min_size=1, max_size=6))
def test_a_new_stream_goes_where_its_longest_prefix_is_bound_to(path: str) -> None:
    labels = [None, None, "x=1", "x=2", "x=2", None]
    shards = tuple(ShardSeen(n, 0, None, label) for n, label in enumerate(labels))
    bindings = (Binding("a", "x=1"), Binding("a/b", "x=2"), Binding("b", "x=3"))
    home = ClusterSeen((), shards, bindings).home(path)
    if path == "a/b" or path.startswith("a/b/"):
        assert labels[home] == "x=2"
    elif path == "a" or path.startswith("a/"):
        assert labels[home] == "x=1"
    elif path != "b" and not path.startswith("b/"):
        assert labels[home] is None
    assert ClusterSeen((), shards).home(path) == shard_of(path, len(shards))


@pytest.mark.parametrize("text", ["eu", "region=", "=eu", "a=b=c", "a b=c", "a=b,c"])
def test_what_is_no_label(text: str) -> None:
    with pytest.raises(ValueError, match="is not a label"):
        parse_labels(text)


def test_labels_have_commas_between_them() -> None:
    assert parse_labels("") == frozenset()
    assert parse_labels("region=eu, zone=a,") == {"region=eu", "zone=a"}
    with pytest.raises(ValueError, match="may be 16"):
        parse_labels(",".join(f"l{n}=x" for n in range(17)))
