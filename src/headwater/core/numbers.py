"""Whole numbers as text: ASCII digits, and only a limited number of them.

`int` also accepts signs, blanks, underscores and digits of other scripts; none of these is a number
here. A long run of digits would cost time before it could be refused.
"""

from __future__ import annotations


def whole_number(text: str, digits_max: int = 18) -> int | None:
    """The number in a text; None if it is not one."""
    is_one = text.isascii() and text.isdigit() and len(text) <= digits_max
    return int(text) if is_one else None
