"""What --from understands, and where the last items of a stream begin."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.exits import CliError, ExitCode
from headwater.cli.positions import At, Last, Since, Where, parse_where
from headwater.cli.quantities import parse_span_ms
from headwater.cli.units import Unit, find_tail
from headwater.client import Batch, Position

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    "text, where",
    [
        ("start", At("-1")),
        ("now", At("now")),
        ("-1", Last(1)),
        ("-0", Last(0)),
        ("-250", Last(250)),
        ("@1h", Since(NOW_MS - 3_600_000)),
        ("@1h30m", Since(NOW_MS - 5_400_000)),
        ("@250ms", Since(NOW_MS - 250)),
        ("@2d", Since(NOW_MS - 172_800_000)),
        ("@1w", Since(NOW_MS - 604_800_000)),
        ("@2026-01-31T12:00:00Z", Since(1_769_860_800_000)),
        ("@2026-01-31T13:00:00+01:00", Since(1_769_860_800_000)),
        ("@2026-01-31T12:00:00.250Z", Since(1_769_860_800_250)),
        ("0000000000000001_0000000000000032", At("0000000000000001_0000000000000032")),
        ("0000000000000001_0000000000000032/3", At("0000000000000001_0000000000000032/3")),
    ],
)
def test_places(text: str, where: Where) -> None:
    assert parse_where(text, now_ms=NOW_MS) == where


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "-x",
        "--5",
        "-1.5",
        "-²",
        "@",
        "@soon",
        "@-1h",
        "@1",
        "@1y",
        "@2026-01-31",
        "@2026-01-31T12:00:00",
        "a b",
        "a\nb",
        "-12345678901234567",
    ],
)
def test_no_places(text: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_where(text)
    assert caught.value.code is ExitCode.USAGE
    assert "\n" not in str(caught.value)


def test_times_ago_are_counted_from_now() -> None:
    where = parse_where("@10s")
    assert isinstance(where, Since)
    assert abs(datetime.now(UTC).timestamp() - 10 - where.at_ms / 1000) < 5


@given(st.integers(0, 10_000), st.sampled_from(["ms", "s", "m", "h", "d", "w"]))
def test_spans_add_up(count: int, unit: str) -> None:
    assert parse_span_ms(f"{count}{unit}{count}{unit}") == 2 * parse_span_ms(f"{count}{unit}")


@pytest.mark.parametrize(
    "content_type, unit",
    [
        ("application/json", Unit.MESSAGE),
        ("Application/JSON; charset=utf-8", Unit.MESSAGE),
        ("text/plain", Unit.LINE),
        ("text/csv; header=present", Unit.LINE),
        ("application/octet-stream", Unit.BYTE),
        ("application/x-ndjson", Unit.BYTE),
        (None, Unit.BYTE),
    ],
)
def test_what_is_counted(content_type: str | None, unit: Unit) -> None:
    assert Unit.of(content_type) is unit


def batches(bodies: list[bytes], content_type: str) -> list[Batch]:
    """What a reader yields for these appends."""
    offsets = [f"{sum(map(len, bodies[:n])):06}" for n in range(len(bodies) + 1)]
    return [
        Batch(Position(start), end, content_type, payloads=(body,))
        for start, end, body in zip(offsets, offsets[1:], bodies, strict=False)
    ]


def rest(run: list[Batch], position: Position) -> bytes:
    """What follows a position."""
    index = next(n for n, batch in enumerate(run) if batch.start.offset == position.offset)
    data = b"".join(batch.data for batch in run[index:])
    return data[position.skip :]


@given(
    st.lists(st.sampled_from([b"\n", b"a\n", b"b", b"\n\nc", b"dd\ne"]), max_size=8),
    st.integers(1, 6),
)
def test_the_last_lines_are_those_that_tail_shows(bodies: list[bytes], count: int) -> None:
    run = batches(bodies, "text/plain")
    lines = b"".join(bodies).split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    position = find_tail(run, Unit.LINE, count)
    if position is None:
        assert not lines
    else:
        assert rest(run, position) == b"".join(lines[-count:])


@given(
    st.lists(st.sampled_from([b"\n", b"a\n", b"b", b"\n\nc", b"dd\ne"]), max_size=8),
    st.integers(1, 6),
)
def test_in_a_part_of_a_stream_the_first_line_may_be_cut(bodies: list[bytes], count: int) -> None:
    run = batches(bodies, "text/plain")
    data = b"".join(bodies)
    starts = [n + 1 for n in range(len(data) - 1) if data[n : n + 1] == b"\n"]
    position = find_tail(run, Unit.LINE, count, whole=False)
    if len(starts) < count:
        assert position is None
    else:
        assert position is not None
        assert rest(run, position) == data[starts[-count] :]


@given(st.lists(st.binary(min_size=1, max_size=5), max_size=8), st.integers(1, 20), st.booleans())
def test_the_last_bytes(bodies: list[bytes], count: int, whole: bool) -> None:
    run = batches(bodies, "application/octet-stream")
    data = b"".join(bodies)
    position = find_tail(run, Unit.BYTE, count, whole=whole)
    if not data or (len(data) < count and not whole):
        assert position is None
    else:
        assert position is not None
        assert rest(run, position) == data[-count:]


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=6), st.integers(1, 12)
)
def test_the_last_messages(groups: list[list[int]], count: int) -> None:
    run = batches([msgspec.json.encode(group) for group in groups], "application/json")
    position = find_tail(run, Unit.MESSAGE, count)
    everything = [value for group in groups for value in group]
    if position is None:
        assert not everything
        return
    index = next(n for n, batch in enumerate(run) if batch.start.offset == position.offset)
    found = [value for batch in run[index:] for value in batch.messages()]
    assert found[position.skip :] == everything[-count:]
