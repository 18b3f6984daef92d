"""What people are told of what went wrong in Spark."""

from __future__ import annotations

import pytest

from pyspark_headwater.errors import reason

TRACEBACK = """Traceback (most recent call last):
  File "reading.py", line 1, in read
pyspark_headwater.errors.UnknownStream: the server has no stream orders
"""
OF_SPARK = """Python worker failed to connect back.
=== Streaming Query ===
Identifier: archive-all
Current State: INITIALIZING"""


@pytest.mark.parametrize(
    "text, told",
    [
        (TRACEBACK, "the server has no stream orders"),
        (OF_SPARK, "Python worker failed to connect back."),
        ("x" * 1_000, "x" * 500),
    ],
)
def test_the_reason_without_what_surrounds_it(text: str, told: str) -> None:
    assert reason(text) == told
