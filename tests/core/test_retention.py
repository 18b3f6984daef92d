"""What a stream keeps, and what an offset before that means."""

from __future__ import annotations

import pytest

from headwater.core.errors import InvalidHeader, OffsetExpired, UnknownOffset
from headwater.core.lineage import Inherited, Lineage
from headwater.core.offsets import Anchor, Offset
from headwater.core.retention import KEEP_ALL, Retention, locate, parse_retention
from headwater.core.stream import StreamConfig


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
    ],
)
def test_whether_a_stream_keeps_less_than_before(
    retention: Retention, before: Retention, drops: bool
) -> None:
    assert retention.drops_more_than(before) is drops
