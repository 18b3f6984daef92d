"""Errors in Spark that are not the server's answer. Spark shows the message to the user.

HeadwaterSparkError
├── InvalidOption       an invalid option or combination of options
├── UnknownStream       the server has no such stream
├── DataLoss            data to be read no longer exists
├── MalformedMessage    a message, or a row, does not fit
├── NotReadDirectly     history cannot be read without the server
├── NotWritten          the server refuses what the sink sends
├── OtherWriter         a table changed while a batch for it was being made
└── Paused              a paused pipeline was to run only once
"""

from __future__ import annotations

import re
from typing import Final


class HeadwaterSparkError(Exception):
    """Base of everything that this package raises on purpose."""


class InvalidOption(HeadwaterSparkError):
    """An invalid option or combination of options."""


class UnknownStream(HeadwaterSparkError):
    """The server has no such stream."""


class DataLoss(HeadwaterSparkError):
    """A stream was deleted, or created again under the same name, while a query was reading it."""


class MalformedMessage(HeadwaterSparkError):
    """A message does not fit the schema, or a row cannot become a message."""


class NotReadDirectly(HeadwaterSparkError):
    """Sealed history was to be read without the server, and cannot be."""


class NotWritten(HeadwaterSparkError):
    """The server refuses what the sink sends, and a retry would not help."""


class OtherWriter(HeadwaterSparkError):
    """A table changed while a batch for it was being made; none of the batch is in it."""


class Paused(HeadwaterSparkError):
    """A pipeline is paused, and is not supposed to wait."""


_OURS: Final = ("pyspark_headwater.", "headwater.")
_DETAILS = re.compile(r"\n\tat |\n=== Streaming Query")
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Exit)): (.+)$", re.MULTILINE)
_REASON_CHARS_MAX: Final = 500
_SLOW_START: Final = "Python worker failed to connect back"


def reason(text: str) -> str:
    """The cause, extracted from a traceback that came through Spark."""
    ours = [line for line in text.splitlines() if line.startswith(_OURS)]
    if ours:
        return ours[-1].partition(": ")[2]
    raised = _RAISED.findall(text.partition("Traceback (most recent call last)")[2])
    if raised:
        return ": ".join(raised[-1])[:_REASON_CHARS_MAX]
    return _DETAILS.split(text)[0][:_REASON_CHARS_MAX]


def is_slow_start(error: Exception) -> bool:
    """Whether a query failed because the machine was too busy to start a Python process in time.

    Spark gives the process that asks a source for new offsets ten seconds, and there is no setting.
    Nothing was read by then: the query can be started again.
    """
    return _SLOW_START in str(error)
