"""Patterns of stream names: what they cover, and what is refused."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.access.patterns import InvalidPattern, literal, parse_pattern

COVERED = {
    "orders": ["orders"],
    "orders.*": ["orders.eu", "orders.", "orders.a*b"],
    "orders.*.paid": ["orders.eu.paid"],
    "orders.>": ["orders.eu", "orders.eu.paid", "orders.eu/paid"],
    "tenants/acme/**": ["tenants/acme/a", "tenants/acme/a/b.c", "tenants/acme/_groups/x"],
    "*": ["orders"],
    "*/audit": ["acme/audit"],
    "**": ["a", "a/b", "a.b"],
    ">": ["a", "a/b", "a.b"],
    "a+(b)": ["a+(b)"],
}
NOT_COVERED = {
    "orders": ["Orders", "orders.eu", "orders/eu", "order", "orders2", ""],
    "orders.*": ["orders", "orders/eu", "orders.eu.paid", "ordersxeu"],
    "orders.*.paid": ["orders.paid", "orders.a.b.paid", "orders.eu/paid"],
    "orders.>": ["orders", "orders/eu", "ordersx"],
    "tenants/acme/**": [
        "tenants/acme",
        "tenants/acme2/a",
        "tenants/acme.evil/a",
        "x/tenants/acme/a",
    ],
    "*": ["orders.eu", "orders/eu"],
    "*/audit": ["a/b/audit", "audit", "acme.x/audit"],
    "a+(b)": ["aa(b)", "ab"],
}


@pytest.mark.parametrize("text", COVERED)
def test_what_a_pattern_covers(text: str) -> None:
    pattern = parse_pattern(text)
    assert [name for name in COVERED[text] if not pattern.covers(name)] == []


@pytest.mark.parametrize("text", NOT_COVERED)
def test_what_it_does_not_cover(text: str) -> None:
    pattern = parse_pattern(text)
    assert [name for name in NOT_COVERED[text] if pattern.covers(name)] == []


@pytest.mark.parametrize(
    "text",
    ["", "orders*", "*orders", "a/**/b", ">.a", "a>", "a b", "ä", "***", "a/b\n", "x" * 1025, "a?"],
)
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(InvalidPattern):
        parse_pattern(text)


def test_only_two_patterns_cover_everything() -> None:
    everything = [t for t in [*COVERED, *NOT_COVERED] if parse_pattern(t).covers_everything]
    assert everything == ["**", ">"]


def test_a_literal_covers_one_name() -> None:
    assert literal("a.*").covers("a.*")
    assert not literal("a.*").covers("a.b")
    assert not literal("**").covers_everything
    assert not literal("**").covers("a")


# ── Against a matcher that anyone can follow ─────────────────────────────────────────────────

WORDS = st.sampled_from(["", "a", "b", "ab", "a-b", "*", "(", "%"])
PATTERN_WORDS = st.sampled_from(["", "a", "b", "ab", "a-b", "*", "(", "%"])
SEPARATORS = st.sampled_from([".", "/"])


@st.composite
def rows(draw: st.DrawFn, words: st.SearchStrategy[str], *, rest: bool) -> str:
    parts = [draw(words)]
    for _ in range(draw(st.integers(0, 4))):
        parts += [draw(SEPARATORS), draw(words)]
    if rest and draw(st.booleans()):
        parts[-1] = draw(st.sampled_from(["**", ">"]))
    return "".join(parts)


def naive(pattern: list[str], name: list[str]) -> bool:
    """Words and separators, one by one."""
    if not pattern or not name:
        return not pattern and not name
    if pattern[0] in ("**", ">"):
        # One or more words, with whatever separates them: all that is left.
        return True
    if pattern[0] != name[0] and not (pattern[0] == "*" and name[0] not in (".", "/")):
        return False
    return naive(pattern[1:], name[1:])


def split(text: str) -> list[str]:
    return re.split(r"([./])", text)


@given(rows(PATTERN_WORDS, rest=True).filter(bool), rows(WORDS, rest=False))
def test_patterns_agree_with_a_naive_matcher(text: str, name: str) -> None:
    assert parse_pattern(text).covers(name) == naive(split(text), split(name))


@given(rows(PATTERN_WORDS, rest=True).filter(bool), rows(WORDS, rest=False))
def test_every_name_that_is_covered_begins_with_the_prefix(text: str, name: str) -> None:
    pattern = parse_pattern(text)
    if pattern.covers(name):
        assert name.startswith(pattern.prefix)


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidPattern):
        pattern = parse_pattern(text)
        assert pattern.covers(text) or pattern.text != pattern.prefix
