"""Histograms count every value once, in the first bucket that holds it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.histograms import COUNTS, SECONDS, Histogram

values = st.lists(st.floats(min_value=0, max_value=20_000))


@given(values=values, bounds=st.sampled_from([SECONDS, COUNTS]))
def test_values_are_where_they_belong(values: list[float], bounds: tuple[float, ...]) -> None:
    seen = Histogram(bounds)
    for value in values:
        seen.observe(value)
    assert seen.count == len(values)
    assert math.isclose(seen.total, sum(values), abs_tol=1e-9)
    for index, bound in enumerate(bounds):
        assert sum(seen.counts[: index + 1]) == sum(value <= bound for value in values)


@given(first=values, second=values)
def test_two_together_are_as_one(first: list[float], second: list[float]) -> None:
    one, other, both = Histogram(SECONDS), Histogram(SECONDS), Histogram(SECONDS)
    for seen, some in ((one, first), (other, second), (both, first + second)):
        for value in some:
            seen.observe(value)
    one.add(other)
    assert one.counts == both.counts
    assert math.isclose(one.total, both.total, abs_tol=1e-6)


def test_bounds_grow() -> None:
    assert list(SECONDS) == sorted(set(SECONDS))
    assert list(COUNTS) == sorted(set(COUNTS))
