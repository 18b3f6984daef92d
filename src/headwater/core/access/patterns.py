"""Patterns of stream names.

A name is a row of words with `.` or `/` between them: `orders.eu`, `tenants/acme/audit.log`. A
pattern is such a row, in which two words are special:

- `*` stands for any one word;
- `**` or `>`, which may only come last, stands for one or more words, whatever is between them.

Every other word stands for itself, and so does each `.` and `/` of the pattern. So `orders.*`
covers `orders.eu` but neither `orders` nor `orders.eu.paid` nor `orders/eu`; `tenants/acme/**`
covers everything below `tenants/acme/` and not that name itself; `**` covers every name. A `*` or
`>` that is only a part of a word would look like a wildcard and not be one: it is refused.

A pattern without wildcards covers the one stream of that name. Letters are compared exactly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from headwater.core.errors import InvalidRequest
from headwater.core.limits import PATH_BYTES_MAX

_SEPARATOR: Final = re.compile(r"([./])")
_REST: Final = frozenset({"**", ">"})
# What a stream path can consist of, beside the separators and the wildcards.
_WORD: Final = re.compile(r"[A-Za-z0-9\-_~!$&'()+,;=:@%]*")


class InvalidPattern(InvalidRequest):
    code = "invalid_pattern"


@dataclass(frozen=True, slots=True)
class Pattern:
    text: str
    prefix: str
    """What every name that is covered begins with."""
    covers_everything: bool
    _expression: re.Pattern[str] = field(repr=False, compare=False)

    def covers(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None


def literal(name: str) -> Pattern:
    """The pattern of one name, whatever characters are in it."""
    return Pattern(name, name, False, re.compile(re.escape(name)))


def parse_pattern(text: str) -> Pattern:
    if not 1 <= len(text) <= PATH_BYTES_MAX:
        raise InvalidPattern(f"a pattern has 1 to {PATH_BYTES_MAX} characters")
    # Words at even places, separators at odd ones.
    parts = _SEPARATOR.split(text)
    expression: list[str] = []
    prefix: str | None = None
    for place, part in enumerate(parts):
        is_last = place == len(parts) - 1
        special = _special(part, text, is_last=is_last)
        if special is not None and prefix is None:
            prefix = "".join(parts[:place])
        expression.append(re.escape(part) if special is None else special)
    compiled = re.compile("".join(expression), re.DOTALL)
    return Pattern(text, text if prefix is None else prefix, text in _REST, compiled)


def _special(part: str, text: str, *, is_last: bool) -> str | None:
    """The expression for a wildcard; None for what stands for itself."""
    if part == "*":
        return "[^./]*"
    if part in _REST:
        if not is_last:
            raise InvalidPattern(f"{text!r}: {part} may only be the last word of a pattern")
        return ".*"
    if part not in (".", "/") and _WORD.fullmatch(part) is None:
        raise InvalidPattern(
            f"{text!r}: {part!r} is no word of a pattern; * stands for a whole word, ** or > at "
            "the end for all the rest, and other words have the characters of stream paths"
        )
    return None
