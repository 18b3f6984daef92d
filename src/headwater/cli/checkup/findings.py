"""The findings of checks."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    OK = "ok"
    HINT = "hint"
    """It works, but somebody should know."""
    PROBLEM = "problem"
    """It does not work, or data is in danger."""


class Finding(NamedTuple):
    level: Level
    about: str
    what: str
    advice: str = ""


def ok(about: str, what: str) -> Finding:
    return Finding(Level.OK, about, what)


def hint(about: str, what: str, advice: str) -> Finding:
    return Finding(Level.HINT, about, what, advice)


def problem(about: str, what: str, advice: str) -> Finding:
    return Finding(Level.PROBLEM, about, what, advice)
