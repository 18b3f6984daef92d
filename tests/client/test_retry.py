"""When a request is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.errors import (
    BadRequest,
    ConnectionFailed,
    HeadwaterError,
    RateLimited,
    ServerUnavailable,
    StreamNotFound,
    UnexpectedAnswer,
)
from headwater.client.protocol.retry import UNEXPECTED_ANSWERS_MAX, Retries, RetryPolicy

LOST = ConnectionFailed("lost", in_doubt=True)
REFUSED = ConnectionFailed("refused", in_doubt=False)


@given(failures=st.integers(1, 10_000), random=st.floats(0, 1))
def test_delays_grow_to_the_cap_and_are_jittered(failures: int, random: float) -> None:
    policy = RetryPolicy(base_delay_s=0.1, max_delay_s=5.0)
    delay = policy.delay_s(failures=failures, random=random)
    step = min(5.0, 0.1 * 2 ** min(failures - 1, 10))
    assert step / 2 <= delay <= step


def test_retry_after_is_a_lower_bound() -> None:
    policy = RetryPolicy(base_delay_s=0.1, max_delay_s=5.0, give_up_after_s=None)
    assert policy.delay_s(failures=1, random=1.0, retry_after_s=60.0) == 60.0
    assert policy.delay_s(failures=20, random=1.0, retry_after_s=1.0) == 5.0


def retry(error: HeadwaterError, *, repeatable: bool = True) -> float | None:
    return Retries(RetryPolicy()).delay_after(error, repeatable=repeatable, now=0.0, random=0.5)


@pytest.mark.parametrize(
    "error, repeatable, again",
    [
        (LOST, True, True),
        (LOST, False, False),
        (REFUSED, False, True),
        (RateLimited("busy", status=429), False, True),
        (ServerUnavailable("down", status=502, in_doubt=True), True, True),
        (ServerUnavailable("down", status=502, in_doubt=True), False, False),
        (ServerUnavailable("down", status=503), False, True),
        (BadRequest("no", status=400), True, False),
        (StreamNotFound("no", status=404), True, False),
    ],
)
def test_only_what_can_help_and_does_no_harm_is_repeated(
    error: HeadwaterError, repeatable: bool, again: bool
) -> None:
    assert (retry(error, repeatable=repeatable) is not None) is again


def test_it_gives_up_after_a_while_without_success() -> None:
    retries = Retries(RetryPolicy(give_up_after_s=10.0))
    assert retries.delay_after(LOST, repeatable=True, now=100.0, random=0.5) is not None
    assert retries.delay_after(LOST, repeatable=True, now=109.0, random=0.5) is not None
    assert retries.delay_after(LOST, repeatable=True, now=110.0, random=0.5) is None
    retries.succeeded()
    assert retries.delay_after(LOST, repeatable=True, now=111.0, random=0.5) is not None


def test_a_longer_retry_after_than_the_patience_is_not_waited_for() -> None:
    retries = Retries(RetryPolicy(give_up_after_s=10.0))
    busy = RateLimited("busy", status=429, retry_after_s=3600.0)
    assert retries.delay_after(busy, repeatable=True, now=0.0, random=0.5) is None


def test_even_the_most_patient_does_not_argue_with_a_confused_server() -> None:
    retries = Retries(RetryPolicy(give_up_after_s=None))
    confused = UnexpectedAnswer("?", status=200)
    delays = [
        retries.delay_after(confused, repeatable=True, now=0.0, random=0.5)
        for _ in range(UNEXPECTED_ANSWERS_MAX + 1)
    ]
    assert None not in delays[:-1]
    assert delays[-1] is None


def test_doubt_is_remembered() -> None:
    retries = Retries(RetryPolicy())
    retries.delay_after(LOST, repeatable=True, now=0.0, random=0.5)
    retries.delay_after(REFUSED, repeatable=True, now=0.0, random=0.5)
    assert retries.in_doubt
