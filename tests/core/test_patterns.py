"""Patterns of stream names: what they cover, and what is refused."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.patterns import (
    InvalidPattern,
    compiled,
    literal,
    parse_grant,
    parse_path_pattern,
)

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
    pattern = parse_grant(text)
    assert [name for name in COVERED[text] if not pattern.covers(name)] == []


@pytest.mark.parametrize("text", NOT_COVERED)
def test_what_it_does_not_cover(text: str) -> None:
    pattern = parse_grant(text)
    assert [name for name in NOT_COVERED[text] if pattern.covers(name)] == []


@pytest.mark.parametrize(
    "text",
    ["", "orders*", "*orders", "a/**/b", ">.a", "a>", "a b", "ä", "***", "a/b\n", "x" * 1025, "a?"],
)
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(InvalidPattern):
        parse_grant(text)


def test_only_two_patterns_cover_everything() -> None:
    everything = [t for t in [*COVERED, *NOT_COVERED] if parse_grant(t).covers_everything]
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


def split_words(text: str) -> list[str]:
    return re.split(r"([./])", text)


@given(rows(PATTERN_WORDS, rest=True).filter(bool), rows(WORDS, rest=False))
def test_patterns_agree_with_a_naive_matcher(text: str, name: str) -> None:
    assert parse_grant(text).covers(name) == naive(split_words(text), split_words(name))


@given(rows(PATTERN_WORDS, rest=True).filter(bool), rows(WORDS, rest=False))
def test_every_name_that_is_covered_begins_with_the_prefix(text: str, name: str) -> None:
    pattern = parse_grant(text)
    if pattern.covers(name):
        assert name.startswith(pattern.prefix)


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidPattern):
        pattern = parse_grant(text)
        assert pattern.covers(text) or pattern.text != pattern.prefix


# ── Paths: what subscriptions and Spark select by ────────────────────────────────────────────

segments = st.sampled_from(["a", "b", "ab", "a*", "a.b"])
paths = st.lists(segments, min_size=1, max_size=7).map("/".join)
path_patterns = st.lists(segments | st.sampled_from(["*", "**", "**"]), min_size=1, max_size=6).map(
    "/".join
)


@pytest.mark.parametrize(
    "pattern, taken, left",
    [
        ("chats/*", ["chats/7", "chats/a.b"], ["chats", "chats/7/files", "chat/7", "a/chats/7"]),
        ("chats/**", ["chats/7", "chats/7/files"], ["chats", "chat", "chatss/7"]),
        ("chats/>", ["chats/7", "chats/7/files"], ["chats"]),
        ("**", ["a", "a/b", "a/b/c"], []),
        ("*", ["a", "a.b"], ["a/b"]),
        ("**/log", ["log", "a/log", "a/b/log"], ["log/a", "alog"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/c", "a/b/x/y/c", "a/b/b/c"], ["a/c", "a/b", "a/c/b"]),
        ("a/*/**", ["a/b/c", "a/b/c/d"], ["a", "a/b", "b/a"]),
        ("a/**/**", ["a/b", "a/b/c"], ["a", "b"]),
        ("orders", ["orders"], ["orders/1", "order"]),
        ("orders.eu", ["orders.eu"], ["ordersxeu", "orders/eu"]),
    ],
)
def test_what_a_path_pattern_covers(pattern: str, taken: list[str], left: list[str]) -> None:
    parsed = parse_path_pattern(pattern)
    assert [path for path in taken if not parsed.covers(path)] == []
    assert [path for path in left if parsed.covers(path)] == []


def naive_path(pattern: list[str], path: list[str]) -> bool:
    """Segment by segment, trying everything."""
    if not pattern or not path:
        return not pattern and not path
    if pattern[0] == "**":
        if all(part == "**" for part in pattern):
            return True
        return naive_path(pattern[1:], path) or naive_path(pattern, path[1:])
    return pattern[0] in ("*", path[0]) and naive_path(pattern[1:], path[1:])


@given(path_patterns, paths)
def test_path_patterns_agree_with_a_naive_matcher(pattern: str, path: str) -> None:
    covered = naive_path(pattern.split("/"), path.split("/"))
    assert compiled(pattern).covers(path) is covered
    if covered:
        assert path.startswith(compiled(pattern).prefix)


@given(path_patterns, paths)
def test_grants_subscriptions_and_spark_agree(pattern: str, path: str) -> None:
    """Where a name has no dots, a pattern that all of them take means the same to all of them."""
    try:
        as_grant, as_path = parse_grant(pattern), parse_path_pattern(pattern)
    except InvalidPattern:
        return
    if "." not in path + pattern:
        assert as_grant.covers(path) is as_path.covers(path)
        assert as_grant.prefix == as_path.prefix
    # A grant never covers more.
    assert not as_grant.covers(path) or as_path.covers(path)


def test_a_pattern_made_to_be_slow_is_not() -> None:
    slow = parse_path_pattern("/".join(["**", "a"] * 100 + ["b"]))
    assert not slow.covers("/".join(["a"] * 500))


@pytest.mark.parametrize("text", ["", "/", "user-*", "o*s", "a?", ">/a", "a b", "é", "x" * 1025])
def test_what_is_no_path_pattern(text: str) -> None:
    with pytest.raises(InvalidPattern):
        parse_path_pattern(text)


def test_a_pattern_that_was_stored_before_keeps_its_meaning() -> None:
    assert compiled("user-*").covers("user-*")
    assert not compiled("user-*").covers("user-1")


def test_slashes_around_a_path_pattern_do_not_matter() -> None:
    assert parse_path_pattern("/a/*/").text == "a/*"
