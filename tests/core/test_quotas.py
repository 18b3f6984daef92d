"""Quotas: which account a stream counts for, and what is admitted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import QuotaExceeded
from headwater.core.quotas import GOOD_FOR_S, LONG_S, Amount, Estimate, Ledger, parse_quotas


def test_streams_count_for_the_segments_that_they_begin_with() -> None:
    (tenants,) = parse_quotas("tenants/*: streams=1")
    assert tenants.account_of("tenants/acme") == "tenants/acme"
    assert tenants.account_of("tenants/acme/orders/eu") == "tenants/acme"
    assert tenants.account_of("tenants") is None
    assert tenants.account_of("other/acme") is None
    (everything,) = parse_quotas("**: streams=1")
    assert everything.account_of("a/b") == ""


def test_what_a_setting_says() -> None:
    one, two = parse_quotas("a/*: streams=2 bytes=3KiB; b: producers=7 bytes=5MB;")
    assert (one.segments, one.limits) == (("a", "*"), {"streams": 2, "bytes": 3072})
    assert (two.segments, two.limits) == (("b",), {"producers": 7, "bytes": 5_000_000})
    assert parse_quotas("") == ()


@pytest.mark.parametrize(
    "setting",
    [
        *("a", "a:", ": streams=1", "a: streams", "a: streams=-1", "a: streams=1KiB"),
        *("a: files=1", "a//b: streams=1", "a b: streams=1", "a: bytes=1XB", "a: bytes=1e3"),
    ],
)
def test_what_is_no_quota(setting: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_quotas(setting)


def test_every_quota_has_to_agree_and_says_whose_it_is() -> None:
    ledger = Ledger(parse_quotas("t/*: bytes=10; **: bytes=15"))
    for number, path in enumerate(("t/a/x", "t/a/y", "t/b", "other")):
        ledger.open(number, path)
        ledger.admit(number, Amount(streams=1))
    ledger.admit(0, Amount(bytes=6))
    with pytest.raises(QuotaExceeded, match="'t/a' may hold 10 bytes"):
        ledger.admit(1, Amount(bytes=5))
    ledger.admit(2, Amount(bytes=9))
    with pytest.raises(QuotaExceeded, match="this server may hold 15 bytes"):
        ledger.admit(3, Amount(bytes=1))
    ledger.close(0)
    ledger.admit(1, Amount(bytes=6))


def test_what_is_deleted_but_needed_counts_for_its_bytes() -> None:
    ledger = Ledger(parse_quotas("t: streams=1 bytes=10 producers=1"))
    ledger.open(1, "t/a")
    ledger.admit(1, Amount(1, 8, 1))
    ledger.hide(1)
    assert ledger.used(0, "t") == Amount(0, 8, 0)
    ledger.open(2, "t/fork")
    ledger.admit(2, Amount(1, 2, 1))
    with pytest.raises(QuotaExceeded):
        ledger.admit(2, Amount(bytes=1))
    ledger.close(1)
    ledger.admit(2, Amount(bytes=8))


def test_producers_that_are_forgotten_make_room() -> None:
    ledger = Ledger(parse_quotas("t: producers=3"))
    ledger.open(1, "t/a")
    ledger.admit(1, Amount(streams=1, producers=3))
    ledger.forget_producers(1, 2)
    assert ledger.used(0, "t") == Amount(1, 0, 1)
    ledger.forget_producers(1, 5)
    assert ledger.used(0, "t") == Amount(1, 0, 0)
    ledger.forget_producers(2, 1)
    ledger.admit(1, Amount(producers=3))


def test_what_a_stream_holds() -> None:
    ledger = Ledger(parse_quotas("t: bytes=10"))
    ledger.open(1, "t/a")
    ledger.admit(1, Amount(bytes=7))
    assert ledger.held(1) == 7
    assert ledger.held(2) == 0


def test_an_account_lasts_as_long_as_its_streams() -> None:
    ledger = Ledger(parse_quotas("t: streams=2"))
    for stream in (1, 2):
        ledger.open(stream, f"t/{stream}")
        ledger.admit(stream, Amount(streams=1))
    ledger.close(1)
    assert ledger.used(0, "t") == Amount(streams=1)
    ledger.close(2)
    assert ledger.used(0, "t") == Amount()
    # With the last of them it is gone: what was never here leaves nothing.
    assert not ledger._accounts


def test_whoever_is_over_a_limit_may_do_what_needs_no_more_of_it() -> None:
    ledger = Ledger(parse_quotas("t: streams=2 bytes=5"))
    ledger.open(1, "t/a")
    ledger.charge(1, Amount(streams=1, bytes=9))
    ledger.admit(1, Amount(streams=1))
    with pytest.raises(QuotaExceeded):
        ledger.admit(1, Amount(bytes=1))


def test_as_much_again_may_be_kept_of_what_is_deleted() -> None:
    estimate = Estimate({"bytes": 10})
    assert estimate.may_keep(10)
    assert not estimate.may_keep(11)
    estimate.counted(Amount(), 4, 0.0, 0.0)
    assert estimate.may_keep(6)
    assert not estimate.may_keep(7)
    assert Estimate({"streams": 1}).may_keep(10**12)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "append", "keeps", "hide", "close"]),
        st.integers(0, 3),
        st.integers(0, 9),
    ),
    max_size=40,
)


@given(STEPS)
def test_accounts_are_the_sum_of_their_streams(steps: list[tuple[str, int, int]]) -> None:
    ledger = Ledger(parse_quotas("*: bytes=20 streams=3"))
    held: dict[int, Amount] = {}
    for what, stream, size in steps:
        if what == "open" and stream not in held:
            ledger.open(stream, f"t/{stream}")
            held[stream] = Amount()
            amount = Amount(streams=1)
        elif what == "append" and stream in held:
            amount = Amount(bytes=size)
        else:
            amount = Amount()
        try:
            ledger.admit(stream, amount)
            if stream in held:
                held[stream].add(amount)
        except QuotaExceeded:
            pass
        if what == "keeps" and stream in held:
            ledger.keeps(stream, size)
            held[stream].bytes = min(held[stream].bytes, size)
        if what == "hide" and stream in held:
            ledger.hide(stream)
            held[stream].streams = 0
        if what == "close":
            ledger.close(stream)
            held.pop(stream, None)
        total = Amount()
        for one in held.values():
            total.add(one)
        assert ledger.used(0, "t") == total
        assert total.bytes <= 20
        assert total.streams <= 3


def verdict(estimate: Estimate, more: Amount, nodes: int, now_s: float) -> bool | str:
    try:
        return estimate.admits(more, nodes, now_s)
    except QuotaExceeded:
        return "refused"


def test_an_estimate_is_asked_for_and_decides_once() -> None:
    estimate = Estimate({"streams": 3})
    one = Amount(streams=1)
    assert verdict(estimate, one, 2, 0.0) is False, "nothing is known yet"
    estimate.asking()
    estimate.counted(Amount(streams=2), 0, 0.0, 0.01)
    assert verdict(estimate, Amount(streams=2), 2, 0.0) == "refused"
    assert verdict(estimate, one, 2, 0.0) is False, "something may have been deleted meanwhile"
    estimate.asking()
    estimate.counted(Amount(streams=2), 0, 0.0, 0.01)
    assert verdict(estimate, one, 2, 0.0) is True
    estimate.accept(one)
    assert verdict(estimate, one, 2, 0.0) is False, "the last place is taken"
    # What is under way may not be in the database yet, so it counts besides.
    estimate.asking()
    estimate.counted(Amount(streams=2), 0, 0.0, 0.01)
    assert verdict(estimate, one, 2, 0.0) == "refused"
    estimate.settle(one)
    estimate.asking()
    estimate.counted(Amount(streams=1), 0, 0.0, 0.01)
    assert verdict(estimate, Amount(streams=2), 2, 0.0) is True


def test_a_share_of_the_room_is_given_away_without_asking() -> None:
    estimate = Estimate({"bytes": 1_000})
    estimate.asking()
    estimate.counted(Amount(bytes=200), 0, 0.0, 0.01)
    # 800 are left: a quarter for two nodes.
    for _ in range(10):
        assert verdict(estimate, Amount(bytes=10), 2, 0.5) is True
        estimate.accept(Amount(bytes=10))
        estimate.settle(Amount(bytes=10))
    assert verdict(estimate, Amount(bytes=1), 2, 0.5) is False, "the share is used up"
    assert verdict(estimate, Amount(streams=1), 2, 0.5) is True, "there is no limit for these"
    estimate.counted(Amount(bytes=200), 0, 0.0, 0.01)
    assert verdict(estimate, Amount(bytes=1), 2, GOOD_FOR_S) is False, "it is too long ago"


def test_what_takes_long_to_count_is_not_counted_for_each_refusal() -> None:
    estimate = Estimate({"bytes": 10})
    estimate.asking()
    estimate.counted(Amount(bytes=10), 10, 0.0, 2 * LONG_S)
    assert [verdict(estimate, Amount(bytes=1), 1, LONG_S) for _ in range(3)] == ["refused"] * 3
    assert not estimate.may_keep(1)
    assert Estimate({"streams": 1}).may_keep(10**9)


def test_a_count_does_not_decide_again_after_others_may_have_used_it() -> None:
    estimate = Estimate({"bytes": 3_000})
    estimate.asking()
    estimate.counted(Amount(bytes=1_000), 0, 0.0, 0.0)
    assert estimate.admits(Amount(bytes=1), 3, 0.0)
    estimate.accept(Amount(bytes=1))
    assert not estimate.admits(Amount(bytes=1_900), 3, 0.0), "other nodes had time to take it"
