"""The rules of groups one by one: keys, turns, and settings with a version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import GroupConflict
from headwater.core.groups.config import GroupConfig, parse_wanted, reconfigured
from headwater.core.groups.keys import key_of
from headwater.core.groups.turns import Taker, deal, next_turns
from tests.support.nesting import TOO_DEEP

# ── Keys ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "one, other",
    [
        (b'{"k": "a"}', b'{"k":"\\u0061", "x": 1}'),
        (b'{"k": {"a": 1, "b": [2]}}', b'{"k":{"b":[2],"a":1}}'),
        (b'{"k": 1e400}', b'{"x": 1e999, "k":1e400}'),
        (b'{"k": 12345678901234567890123}', b'{"k":12345678901234567890123}'),
    ],
)
def test_the_same_key_however_it_is_written(one: bytes, other: bytes) -> None:
    assert key_of(one, ["k"]) == key_of(other, ["k"]) is not None


@pytest.mark.parametrize(
    "message",
    [
        b"{}",
        b'{"k": null}',
        b"7",
        b'"k"',
        b"[1, 2]",
        b'{"x": {"k": 1}}',
        b'{"k":' + b"[" * TOO_DEEP + b"]" * TOO_DEEP + b"}",
    ],
)
def test_a_message_without_a_key_that_can_be_read_has_none(message: bytes) -> None:
    assert key_of(message, ["k"]) is None


def test_a_pointer_leads_through_arrays_by_number() -> None:
    assert key_of(b'{"a": [{"k": 1}, {"k": 2}]}', ["a", "1", "k"]) == "2"
    for step in ("2", "-1", "x", "²", "9" * 250):
        assert key_of(b"[1, 2]", [step]) is None


def test_a_long_key_costs_no_more_than_a_short_one() -> None:
    keys = [key_of(b'{"k": "%b"}' % (letter * 1_000_000), ["k"]) for letter in (b"a", b"b")]
    assert len(set(keys)) == 2
    assert all(key is not None and len(key) <= 128 for key in keys)


# ── Turns ────────────────────────────────────────────────────────────────────────────────────

TAKERS = st.lists(
    st.builds(Taker, st.just("ann"), st.integers(0, 5), st.sampled_from([0, 7, 20, 1000])),
    min_size=1,
    max_size=5,
)


@given(sizes=st.lists(st.integers(1, 30), max_size=30), takers=TAKERS)
def test_messages_go_round_in_order(sizes: list[int], takers: list[Taker]) -> None:
    dealt = deal(sizes, takers)
    given = sorted(index for share in dealt for index in share)
    assert given == list(range(len(given))), "in order, none left out, none twice"
    for taker, share in zip(takers, dealt, strict=True):
        assert list(share) == sorted(share)
        assert len(share) <= taker.most
        assert len(share) <= 1 or sum(sizes[index] for index in share) <= taker.most_bytes
    if len(given) < len(sizes):
        rest = sizes[len(given)]
        for taker, share in zip(takers, dealt, strict=True):
            used = sum(sizes[index] for index in share)
            full = len(share) == taker.most or (share and used + rest > taker.most_bytes)
            assert full, "someone had room"


@given(count=st.integers(0, 40), members=st.integers(1, 5), batches=st.integers(1, 5))
def test_turns_go_on_from_hand_out_to_hand_out(count: int, members: int, batches: int) -> None:
    order = list(range(members))
    got = [0] * members
    for _ in range(batches):
        dealt = deal([1] * count, [Taker("", 1000, 1_000_000) for _ in order])
        for place, share in zip(order, dealt, strict=True):
            got[place] += len(share)
        order = [order[index] for index in next_turns(dealt)]
    assert max(got) - min(got) <= 1


# ── Settings ─────────────────────────────────────────────────────────────────────────────────

CURRENT = GroupConfig(max_in_flight=7, max_deliveries=3, version=5)


def test_without_a_version_only_what_is_named_changes() -> None:
    assert reconfigured(CURRENT, parse_wanted(b"")) == CURRENT
    changed = reconfigured(CURRENT, parse_wanted(b'{"max_deliveries": 0, "start": "latest"}'))
    assert changed == GroupConfig(max_in_flight=7, version=5)


def test_a_newer_version_states_all_settings() -> None:
    changed = reconfigured(CURRENT, parse_wanted(b'{"version": 6, "max_deliveries": 4}'))
    assert changed == GroupConfig(max_deliveries=4, version=6)


def test_an_older_version_changes_nothing() -> None:
    older = parse_wanted(b'{"version": 4, "max_in_flight": 9, "order_by": "/k", "durable": false}')
    assert reconfigured(CURRENT, older) == CURRENT


def test_the_same_version_has_the_same_settings() -> None:
    same = b'{"version": 5, "max_in_flight": 7, "max_deliveries": 3, "start": "latest"}'
    assert reconfigured(CURRENT, parse_wanted(same)) == CURRENT
    with pytest.raises(GroupConflict, match="max_in_flight is 7, not 1000"):
        reconfigured(CURRENT, parse_wanted(b'{"version": 5, "max_deliveries": 3}'))


@pytest.mark.parametrize("version", [b"", b'"version": 6, '])
def test_order_and_durability_stay_whatever_the_version(version: bytes) -> None:
    for setting in (b'"order_by": "/k"', b'"durable": false'):
        with pytest.raises(GroupConflict):
            reconfigured(CURRENT, parse_wanted(b"{" + version + setting + b"}"))
