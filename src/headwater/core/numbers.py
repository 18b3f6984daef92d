"""Whole numbers as people and programs send them: plain ASCII digits, and no more than a few.

What `int` accepts besides (signs, blanks, underscores, the digits of other scripts) is none, and a
long run of digits would cost time before anybody could refuse it.
"""

from __future__ import annotations


def whole_number(text: str, digits_max: int = 18) -> int | None:
    """The number that a text is; None if it is none."""
    is_one = text.isascii() and text.isdigit() and len(text) <= digits_max
    return int(text) if is_one else None
