"""Patterns of stream names: for grants, for subscriptions, and for what Spark reads.

A name is a sequence of words with separators between them. A pattern is such a sequence, in which
some words are wildcards:

- `*` matches any one word;
- `**` as the last word matches one or more words and the separators between them, so `chats/**` is
  everything below `chats` but not `chats` itself; before other words it matches any number of
  words, including none, so `a/**/c` covers `a/c` and `a/b/c`. `**` alone covers every name;
- `>` is another way to write a last `**`.

Every other word and every separator matches itself literally. A `*`, `?` or `>` as part of a word
would look like a wildcard without being one, so it is refused.

In a **path**, which subscriptions and Spark select by, `/` is the separator and `*` is one segment.
In a **grant**, `.` is a separator too: `orders.*` covers `orders.eu`, but neither `orders/eu` nor
`orders.eu.paid`. There, `**` is allowed only last. For names without a `.`, both kinds mean the
same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from headwater.core.errors import InvalidRequest
from headwater.core.limits import PATH_BYTES_MAX

PATH_SEPARATORS: Final = "/"
GRANT_SEPARATORS: Final = "./"
_ONE: Final = "*"
_REST: Final = frozenset({"**", ">"})
# The characters of a stream path, besides separators and wildcards.
_WORD: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()+,;=:@%]*")


class InvalidPattern(InvalidRequest):
    code = "invalid_pattern"


@dataclass(frozen=True, slots=True)
class Pattern:
    text: str
    prefix: str
    """The prefix of every covered name."""
    covers_everything: bool
    _expression: re.Pattern[str] = field(repr=False, compare=False)

    def covers(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None


def literal(name: str) -> Pattern:
    """The pattern that covers exactly one name, whatever characters it has."""
    return Pattern(name, name, False, re.compile(re.escape(name)))


def parse_grant(text: str) -> Pattern:
    """A grant's pattern. It is matched on every request."""
    words = _check(text, GRANT_SEPARATORS)
    if any(word in _REST for word in words[:-1]):
        raise InvalidPattern(f"{text!r}: ** and > may only be the last word of a pattern here")
    return compiled(text, GRANT_SEPARATORS)


def parse_path_pattern(text: str) -> Pattern:
    """A pattern of paths, with or without slashes around it."""
    text = text.strip("/")
    words = _check(text, PATH_SEPARATORS)
    if ">" in words[:-1]:
        raise InvalidPattern(f"{text!r}: > may only be the last word of a pattern; ** may be any")
    return compiled(text, PATH_SEPARATORS)


def _check(text: str, separators: str) -> list[str]:
    if not 1 <= len(text) <= PATH_BYTES_MAX:
        raise InvalidPattern(f"a pattern has 1 to {PATH_BYTES_MAX} characters")
    words = re.split(f"[{separators}]", text)
    for word in words:
        if word != _ONE and word not in _REST and _WORD.fullmatch(word) is None:
            raise InvalidPattern(
                f"{text!r}: {word!r} cannot be part of a pattern; * stands for a whole word, ** or "
                "> at the end for all the rest, and other words have the characters of stream paths"
            )
    return words


def compiled(text: str, separators: str = PATH_SEPARATORS) -> Pattern:
    """A pattern that was checked before. Words that are not wildcards match literally."""
    # Words at even indexes, separators at odd ones.
    parts = re.split(f"([{separators}])", text)
    wildcards = [at for at in range(0, len(parts), 2) if parts[at] == _ONE or parts[at] in _REST]
    prefix = "".join(parts[: wildcards[0]]) if wildcards else text
    is_everything = text in _REST
    expression = re.compile(_expression(parts, separators), re.DOTALL)
    return Pattern(text, prefix, is_everything, expression)


def _expression(parts: list[str], separators: str) -> str:
    """The words between one `**` and the next match at the first place that fits, which leaves the
    most room for the rest. So backtracking is never needed, and matching takes at most the length
    of the name times that of the pattern.
    """
    word = f"[^{separators}]*"
    expressions = [""]
    at = 0
    while at < len(parts):
        part, is_last = parts[at], at == len(parts) - 1
        if part in _REST and not is_last:
            expressions.append("")
            at += 1  # the separator after it is part of the words it matches
        elif at % 2:
            expressions[-1] += re.escape(part)
        elif part in _REST:
            expressions[-1] += ".*"
        else:
            expressions[-1] += word if part == _ONE else re.escape(part)
        at += 1
    first, *between = expressions
    if not between:
        return first
    any_words = f"(?:{word}[{separators}])*"
    last = between.pop()
    return "".join([first, *(f"(?>{any_words}?{one})" for one in between), any_words, last])
