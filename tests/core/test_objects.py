"""Ends that are found without a parser are those that a parser finds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import json_mode, objects
from tests.support.properties import NORMAL

# What looks like the end of one message and the beginning of the next.
TRAPS = st.sampled_from(["},{", ",{", "{", "}", '"},{"', "\\", "[{},{}]", "},\n{"])
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | TRAPS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRAPS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TRAPS | st.just("a"), VALUES, max_size=3)


def stored(messages: list[Any]) -> bytes:
    return json_mode.encode(json.dumps(messages, separators=(",", ":")).encode())[0]


@given(st.lists(VALUES | OBJECTS, min_size=1, max_size=8))
@NORMAL
def test_sizes_are_those_of_the_parser_or_unknown(messages: list[Any]) -> None:
    body = stored(messages)
    assert objects.sizes(body, len(messages)) in (None, json_mode.sizes(body))


@given(st.lists(OBJECTS, min_size=1, max_size=8))
@NORMAL
def test_lines_are_the_messages_or_unknown(messages: list[Any]) -> None:
    lines = objects.as_lines(stored(messages), len(messages))
    assert lines is None or [json.loads(line) for line in lines.splitlines()] == messages


def test_plain_objects_need_no_parser() -> None:
    body = stored([{"n": n, "of": {"a": [n], "b": "x"}, "empty": {}} for n in range(1000)])
    assert objects.sizes(body, 1000) == json_mode.sizes(body)
    lines = objects.as_lines(body, 1000)
    assert lines is not None
    assert bytes(lines) == body[:-1].replace(b"},{", b"}\n{") + b"\n"


@pytest.mark.parametrize(
    "messages",
    [
        [{"a": 1}, 1, {"a": [{}, {}, {}]}],
        [1, {"a": [{}, {}]}],
        [{"a": [{}, {}]}, 1],
        [{"a": [{}, {}]}, [{}]],
        [{"a": "},{"}, "}", {}],
        [{"a": "},{"}, "},{", {}],
        [{"a": [{}, {}]}],
        [{"a": [1, {}]}, {}],
    ],
)
def test_what_only_looks_like_an_end_is_left_to_the_parser(messages: list[Any]) -> None:
    body = stored(messages)
    assert objects.sizes(body, len(messages)) is None
    assert objects.as_lines(body, len(messages)) is None


def test_blanks_around_messages_are_not_stored() -> None:
    """The proof rests on it: `}, {` between messages would go unseen."""
    padded = b' [ {"a":"},{"} , {"b":1}\n,\t{"c":2} ] '
    assert json_mode.encode(padded)[0] == b'{"a":"},{"},{"b":1},{"c":2},'
    assert json_mode.encode(b' \n{"a":1}\t ')[0] == b'{"a":1},'


def test_without_numpy_a_parser_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_numpy", lambda: None)
    assert objects.sizes(b'{"a":1},{"b":2},', 2) is None
    assert objects.as_lines(b'{"a":1},{"b":2},', 2) is None
