"""How long a stream lives: headers, deadlines, and the lag of what is stored."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core.errors import InvalidHeader
from headwater.core.expiry import FOREVER, Lifetime, parse_lifetime, touch_interval_ms
from headwater.core.limits import TTL_SECONDS_MAX
from tests.support.properties import THOROUGH

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
times_ms = st.integers(0, 2**42)
ttls = st.integers(0, TTL_SECONDS_MAX)


def test_without_headers_a_stream_lives_for_ever() -> None:
    assert parse_lifetime(None, None) == FOREVER
    assert FOREVER.is_forever
    assert FOREVER.deadline_ms(0) is None
    assert not FOREVER.is_over(0, 2**60)


@THOROUGH
@given(ttls, times_ms, st.integers(-(10**6), 2**43))
def test_a_ttl_counts_from_the_last_access(ttl_s: int, touched: int, later: int) -> None:
    lifetime = parse_lifetime(str(ttl_s), None)
    assert not lifetime.is_forever
    assert lifetime.deadline_ms(touched) == touched + ttl_s * 1000
    assert lifetime.is_over(touched, touched + later) == (later >= ttl_s * 1000)


@pytest.mark.parametrize(
    "ttl",
    [
        "",
        "-1",
        "+1",
        "00",
        "01",
        "1.0",
        "1e3",
        " 1",
        "1 ",
        "1s",
        "٣",
        "²",
        str(TTL_SECONDS_MAX + 1),
        "9" * 5_000,
    ],
)
def test_a_ttl_is_whole_seconds_in_plain_digits(ttl: str) -> None:
    with pytest.raises(InvalidHeader, match="Stream-TTL"):
        parse_lifetime(ttl, None)


def test_a_ttl_and_an_expiry_exclude_each_other() -> None:
    with pytest.raises(InvalidHeader):
        parse_lifetime("1", "2030-01-01T00:00:00Z")


# ── Instants ─────────────────────────────────────────────────────────────────────────────────


@st.composite
def written_instants(draw: st.DrawFn) -> tuple[str, int]:
    """An instant as RFC 3339 allows to write it, and its milliseconds counted in integers."""
    zone = timedelta(minutes=draw(st.integers(-23 * 60 - 59, 23 * 60 + 59)))
    seconds = draw(st.integers(-62_135_000_000, 253_402_000_000))
    moment = EPOCH + timedelta(seconds=seconds, microseconds=draw(st.integers(0, 999_999)))
    moment = moment.astimezone(timezone(zone))
    digits = draw(st.integers(0, 9))
    fraction = f"{moment.microsecond:06d}{draw(st.integers(0, 999)):03d}"[:digits]
    minutes = zone // timedelta(minutes=1)
    sign = "-" if minutes < 0 else "+"
    suffix = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    if minutes == 0:
        suffix = draw(st.sampled_from(["Z", "z", "+00:00", "-00:00"]))
    text = (
        f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
        f"{draw(st.sampled_from('Tt '))}{moment:%H:%M:%S}"
        f"{'.' + fraction if fraction else ''}{suffix}"
    )
    whole_ms = (moment.replace(microsecond=0) - EPOCH) // timedelta(milliseconds=1)
    return text, whole_ms + int((fraction + "000")[:3])


@THOROUGH
@given(written_instants())
@example(("2030-01-31T12:00:00Z", 1_896_091_200_000))
@example(("1969-12-31T23:59:59.9995Z", -1))
@example(("0001-01-01T00:00:00+01:00", -62_135_600_400_000))  # before the calendar begins
@example(("9999-12-31T23:59:59-01:00", 253_402_304_399_000))  # after it ends
def test_an_instant_is_read_to_the_millisecond(written: tuple[str, int]) -> None:
    text, expected_ms = written
    lifetime = parse_lifetime(None, text)
    assert lifetime.expires_at_ms == expected_ms
    assert lifetime.expires_at_text == text
    assert lifetime.deadline_ms(0) == lifetime.deadline_ms(10**15) == expected_ms
    assert lifetime.is_over(0, expected_ms)
    assert not lifetime.is_over(0, expected_ms - 1)


@THOROUGH
@given(written_instants(), written_instants())
def test_two_spellings_of_an_instant_are_the_same_lifetime(
    a: tuple[str, int], b: tuple[str, int]
) -> None:
    one, other = parse_lifetime(None, a[0]), parse_lifetime(None, b[0])
    assert one.same_as(other) == (a[1] == b[1])
    utc = EPOCH + timedelta(milliseconds=a[1])
    respelled = f"{utc.year:04d}{utc:-%m-%dT%H:%M:%S}.{utc.microsecond:06d}Z"
    assert one.same_as(parse_lifetime(None, respelled))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-01-01T00:00Z",
        "2030-1-1T00:00:00Z",
        "2030-01-01T00:00:00.Z",
        "2030-01-01T00:00:00,5Z",
        "2030-01-01T00:00:00.1234567890Z",
        "2030-13-01T00:00:00Z",
        "2030-02-30T00:00:00Z",
        "2030-01-01T24:00:00Z",
        "2030-01-01T00:60:00Z",
        "2030-01-01T00:00:61Z",
        "2030-01-01T00:00:00+24:00",
        "2030-01-01T00:00:00+10:60",
        "2030-01-01T00:00:00+1000",
        "2030-01-01T00:00:00Z ",
        "2030-01-01T00:00:00Z\n",
        "+2030-01-01T00:00:00Z",
        "1893456000",
        "٢٠٣٠-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(InvalidHeader, match="Stream-Expires-At"):
        parse_lifetime(None, text)


@THOROUGH
@given(st.text("0123456789-:.TZ+ ", max_size=35))
def test_noise_is_refused_or_read_but_never_an_accident(text: str) -> None:
    with suppress(InvalidHeader):
        assert parse_lifetime(None, text).expires_at_ms is not None


# ── What is stored may lag ───────────────────────────────────────────────────────────────────


@THOROUGH
@given(ttls, times_ms, st.integers(0, 10**8))
def test_a_stored_access_never_shortens_a_life(ttl_s: int, stored: int, since: int) -> None:
    """Accesses are written down once per interval, so a loaded one is at most that much older."""
    lifetime = Lifetime(ttl_s=ttl_s)
    interval = touch_interval_ms(lifetime)
    assert 250 <= interval <= 60_000
    real = stored + since % interval
    loaded_deadline = lifetime.deadline_ms(stored + interval)
    real_deadline = lifetime.deadline_ms(real)
    assert loaded_deadline is not None
    assert real_deadline is not None
    assert real_deadline <= loaded_deadline <= real_deadline + interval


@given(ttls)
@example(1)
@example(2)
@example(480)
@example(481)
def test_the_moment_of_access_is_stored_eight_times_in_a_ttl_or_once_a_minute(ttl_s: int) -> None:
    interval = touch_interval_ms(Lifetime(ttl_s=ttl_s))
    assert interval == sorted((250, ttl_s * 125, 60_000))[1]


def test_the_longest_ttl() -> None:
    assert parse_lifetime(str(TTL_SECONDS_MAX), None) == Lifetime(ttl_s=TTL_SECONDS_MAX)
    with pytest.raises(InvalidHeader):
        parse_lifetime(str(TTL_SECONDS_MAX + 1), None)


def test_only_a_ttl_has_to_be_written_down() -> None:
    assert touch_interval_ms(FOREVER) == 0
    assert touch_interval_ms(Lifetime(expires_at_ms=5)) == 0


@pytest.mark.parametrize(
    "lifetime, before, earlier",
    [
        (FOREVER, FOREVER, False),
        (FOREVER, Lifetime(ttl_s=5), False),
        (Lifetime(ttl_s=5), FOREVER, True),
        (Lifetime(ttl_s=5), Lifetime(ttl_s=5), False),
        (Lifetime(ttl_s=4), Lifetime(ttl_s=5), True),
        (Lifetime(ttl_s=6), Lifetime(ttl_s=5), False),
        (Lifetime(expires_at_ms=4), Lifetime(expires_at_ms=5), True),
        (Lifetime(expires_at_ms=6), Lifetime(expires_at_ms=5), False),
        (Lifetime(expires_at_ms=6), Lifetime(ttl_s=5), True),
    ],
)
def test_whether_a_stream_may_end_earlier(
    lifetime: Lifetime, before: Lifetime, earlier: bool
) -> None:
    assert lifetime.may_end_before(before) is earlier
