"""Limits are checked against each other when they are set."""

from __future__ import annotations

import pytest

from headwater.core.limits import Limits


def test_the_defaults_hold_together() -> None:
    Limits()


@pytest.mark.parametrize(
    "settings, complaint",
    [
        ({"body_bytes_max": 0}, "body_bytes_max"),
        ({"queue_bytes_max": 10, "body_bytes_max": 11}, "queue_bytes_max"),
        ({"chunk_bytes_max": 0}, "chunk_bytes_max"),
        ({"header_bytes_max": 1023}, "header_bytes_max"),
        ({"hot_bytes_max": 1, "hot_bytes_per_stream_max": 2}, "hot_bytes_max"),
        ({"streams_in_memory_max": 15}, "streams_in_memory_max"),
        ({"connections_max": 0}, "connections_max"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(
    settings: dict[str, int], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        Limits(**settings)
