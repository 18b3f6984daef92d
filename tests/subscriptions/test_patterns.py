"""Patterns: what a subscription takes in."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.subscriptions.errors import InvalidSubscription
from headwater.core.subscriptions.patterns import Pattern, parse_pattern

segments = st.sampled_from(["a", "b", "ab", "a*"])
paths = st.lists(segments, min_size=1, max_size=7).map("/".join)
patterns = st.lists(segments | st.sampled_from(["*", "**", "**"]), min_size=1, max_size=6).map(
    "/".join
)


@pytest.mark.parametrize(
    "pattern, taken, left",
    [
        ("chats/*", ["chats/7", "chats/x"], ["chats", "chats/7/files", "chat/7", "a/chats/7"]),
        ("chats/**", ["chats", "chats/7", "chats/7/files"], ["chat", "chatss/7"]),
        ("**", ["a", "a/b", "a/b/c"], []),
        ("*", ["a"], ["a/b"]),
        ("**/log", ["log", "a/log", "a/b/log"], ["log/a", "alog"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/c", "a/b/x/y/c", "a/b/b/c"], ["a/c", "a/b", "a/c/b"]),
        ("a/*/**", ["a/b", "a/b/c"], ["a", "b/a"]),
        ("a/**/**", ["a", "a/b"], ["b"]),
        ("user-*", ["user-*"], ["user-1"]),
        ("orders", ["orders"], ["orders/1", "order"]),
    ],
)
def test_what_a_pattern_takes_in(pattern: str, taken: list[str], left: list[str]) -> None:
    compiled = parse_pattern(pattern)
    assert [path for path in taken if not compiled.matches(path)] == []
    assert [path for path in left if compiled.matches(path)] == []


def as_regex(pattern: str) -> re.Pattern[str]:
    """The same rule in another way: over paths in which every segment ends with a slash."""
    parts = {"*": "[^/]+/", "**": "(?:[^/]+/)*"}
    return re.compile("".join(parts.get(s, re.escape(s) + "/") for s in pattern.split("/")))


@given(patterns, paths)
def test_patterns_agree_with_regular_expressions(pattern: str, path: str) -> None:
    expected = as_regex(pattern).fullmatch(path + "/") is not None
    assert Pattern(pattern).matches(path) is expected


@given(patterns, paths)
def test_every_match_begins_with_the_prefix(pattern: str, path: str) -> None:
    compiled = Pattern(pattern)
    if compiled.matches(path):
        assert path.startswith(compiled.prefix)


def test_a_pattern_made_to_be_slow_is_not() -> None:
    compiled = Pattern("/".join(["**", "a"] * 100 + ["b"]))
    assert not compiled.matches("/".join(["a"] * 500))


@pytest.mark.parametrize("pattern", ["", "a//b", "a/../b", "__ds/*", "a b", "é", "x/_groups/*"])
def test_patterns_that_no_stream_could_match_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidSubscription):
        parse_pattern(pattern)


def test_slashes_around_a_pattern_do_not_matter() -> None:
    assert parse_pattern("/a/*/").text == "a/*"
