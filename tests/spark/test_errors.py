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

OF_PYTHON = """Raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
FileNotFoundError: [Errno 2] No such file or directory: 'lake'

=== Streaming Query ===
Identifier: archive-all"""


@pytest.mark.parametrize(
    "text, told",
    [
        (TRACEBACK, "the server has no stream orders"),
        (OF_SPARK, "Python worker failed to connect back."),
        (OF_PYTHON, "FileNotFoundError: [Errno 2] No such file or directory: 'lake'"),
        ("x" * 1_000, "x" * 500),
    ],
)
def test_the_reason_without_what_surrounds_it(text: str, told: str) -> None:
    assert reason(text) == told
