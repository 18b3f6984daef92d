"""What a stream keeps, and what an offset before that means."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core.errors import InvalidHeader, OffsetExpired, UnknownOffset
from headwater.core.lineage import Inherited, Lineage
from headwater.core.offsets import Anchor, Offset
from headwater.core.retention import (
    HELD_BACK_LOOK_MS_MAX,
    KEEP_ALL,
    LOOK_AFTER_MS,
    Retention,
    locate,
    parse_retention,
    trim_due_after_append,
    trim_due_after_look,
    trim_due_at_first,
)
from headwater.core.stream import StreamConfig

NOW = 1_000_000_000
BY_AGE = Retention(age_s=60)
BY_SIZE = Retention(size_bytes=1000)
BY_BOTH = Retention(60, 1000)


@pytest.mark.parametrize(
    "age, size, wanted",
    [
        (None, None, None),
        ("60", None, Retention(age_s=60)),
        (None, "1000", Retention(size_bytes=1000)),
        ("1", "9007199254740991", Retention(1, 2**53 - 1)),
    ],
)
def test_headers_are_read(age: str | None, size: str | None, wanted: Retention | None) -> None:
    assert parse_retention(age, size) == wanted


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", " 1", "1e3", "٣", "9" * 30, "many"])
def test_anything_but_a_plain_count_is_refused(text: str) -> None:
    with pytest.raises(InvalidHeader, match="Stream-Retention-Seconds"):
        parse_retention(text, None)
    with pytest.raises(InvalidHeader, match="Stream-Retention-Bytes"):
        parse_retention(None, text)


def test_offsets_before_the_first_kept_one_are_expired() -> None:
    lineage = Lineage(7, (Inherited(3, 100),))
    config = StreamConfig(7, "s", "text/plain", 5, lineage=lineage, kept_from=60)
    assert locate(config, Anchor.START, 200) == 60
    assert locate(config, Anchor.TAIL, 200) == 200
    assert locate(config, Offset(3, 60), 200) == 60
    assert locate(config, Offset(7, 150), 200) == 150
    for offset in (Offset(0, 0), Offset(3, 59)):
        with pytest.raises(OffsetExpired) as caught:
            locate(config, offset, 200)
        assert caught.value.earliest == str(Offset(3, 60))
    with pytest.raises(UnknownOffset):
        locate(config, Offset(9, 10), 200)


@pytest.mark.parametrize(
    "retention, before, drops",
    [
        (KEEP_ALL, KEEP_ALL, False),
        (Retention(60), KEEP_ALL, True),
        (KEEP_ALL, Retention(60), False),
        (Retention(59), Retention(60), True),
        (Retention(61), Retention(60), False),
        (Retention(60, 5), Retention(60), True),
        (Retention(61, 4), Retention(60, 5), True),
        (Retention(61), Retention(60, 5), False),
        (Retention(60), Retention(60), False),
        (Retention(60, 5), Retention(60, 5), False),
    ],
)
def test_whether_a_stream_keeps_less_than_before(
    retention: Retention, before: Retention, drops: bool
) -> None:
    assert retention.drops_more_than(before) is drops


def test_what_is_too_old_and_what_is_too_much() -> None:
    assert BY_AGE.first_moment_ms(NOW) == NOW - 60_000
    assert BY_SIZE.first_moment_ms(NOW) is None
    assert BY_SIZE.first_position(1500) == 500
    assert BY_AGE.first_position(1500) == 0


def test_without_a_retention_nobody_looks() -> None:
    assert trim_due_at_first(None, NOW) is None
    assert trim_due_after_append(None, None, NOW) is None
    assert trim_due_after_look(BY_BOTH, None, NOW, held_back=True) is None
    assert trim_due_after_look(BY_SIZE, NOW - 5, NOW, held_back=False) is None


def test_a_new_limit_is_looked_at_soon() -> None:
    assert trim_due_at_first(BY_AGE, NOW) == NOW + LOOK_AFTER_MS


@pytest.mark.parametrize(
    "retention, after_ms", [(BY_AGE, 60_000), (BY_SIZE, LOOK_AFTER_MS), (BY_BOTH, LOOK_AFTER_MS)]
)
def test_an_append_is_looked_at_when_it_may_be_too_much_or_too_old(
    retention: Retention, after_ms: int
) -> None:
    due = NOW + after_ms
    assert trim_due_after_append(retention, None, NOW) == due
    assert trim_due_after_append(retention, due + 1, NOW) == due
    assert trim_due_after_append(retention, due, NOW) is None
    assert trim_due_after_append(retention, due - 1, NOW) is None


@given(st.integers(0, 120_000))
@example(60_000)
@example(58_000)
@example(57_999)
def test_the_next_look_is_when_the_first_append_is_too_old(age_ms: int) -> None:
    due = trim_due_after_look(BY_AGE, NOW - age_ms, NOW, held_back=False)
    assert due == NOW + max(60_000 - age_ms, LOOK_AFTER_MS)


@given(st.sampled_from([BY_AGE, BY_SIZE, BY_BOTH]), st.integers(0, 10**7))
def test_the_longer_a_group_holds_something_back_the_less_often_it_is_looked_at(
    retention: Retention, overdue_ms: int
) -> None:
    written = NOW - 1000 * (retention.age_s or 0) - overdue_ms
    due = trim_due_after_look(retention, written, NOW, held_back=True)
    assert due is not None
    wait = due - NOW
    assert wait == sorted((LOOK_AFTER_MS, overdue_ms // 4, HELD_BACK_LOOK_MS_MAX))[1]
