"""JSON mode: bytes are kept as sent, and only strict JSON gets in."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable
from typing import NoReturn

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headwater.core import json_mode
from headwater.core.errors import EmptyBody, InvalidJson, StreamError, TooManyMessages
from headwater.core.large_json import WINDOW_BYTES, guesses, pieces, survey
from tests.support.nesting import TOO_DEEP
from tests.support.properties import THOROUGH, json_blanks, json_texts


def is_strict_json(body: bytes) -> bool:
    """What the standard library says, made as strict as the contract."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(name)

    try:
        json.loads(body.decode("utf-8"), parse_constant=refuse, parse_int=str, parse_float=str)
    except ValueError:
        return False
    return True


def has_surrogates(body: bytes) -> bool:
    """Escapes that stand for a character only in pairs: their case is tested elsewhere."""
    return re.search(rb"\\u[dD][89a-fA-F]", body) is not None


@THOROUGH
@given(st.lists(st.tuples(json_blanks, json_texts, json_blanks), min_size=1), json_blanks)
def test_each_element_of_an_array_is_kept_to_the_byte(
    elements: list[tuple[bytes, bytes, bytes]], outside: bytes
) -> None:
    body = outside + b"[" + b",".join(b"".join(parts) for parts in elements) + b"]" + outside
    messages = [text for _, text, _ in elements]
    stored, count = json_mode.encode(body)
    assert count == len(messages)
    assert stored == b"".join(message + b"," for message in messages)
    assert json_mode.decode(stored) == messages


@THOROUGH
@given(json_blanks, json_texts.filter(lambda text: not text.startswith(b"[")), json_blanks)
@example(b"", b"123456789012345678901234567890", b"")
@example(b"", b"1.0", b"\n")
@example(b" ", b'{"a":1,"a":2, "b" :\t1E+2}', b"\r\n")
def test_anything_but_an_array_is_one_message_kept_to_the_byte(
    before: bytes, text: bytes, behind: bytes
) -> None:
    stored, count = json_mode.encode(before + text + behind)
    assert (stored, count) == (text + b",", 1)
    assert json_mode.decode(stored) == [text]


@THOROUGH
@given(st.lists(json_texts, min_size=1, max_size=6), st.data())
def test_any_run_of_stored_messages_reads_as_one_array(
    messages: list[bytes], data: st.DataObject
) -> None:
    """Also when it begins and ends between two messages of one body."""
    stored, _ = json_mode.encode(b"[" + b",".join(messages) + b"]")
    first = data.draw(st.integers(0, len(messages) - 1))
    last = data.draw(st.integers(first + 1, len(messages)))
    start = sum(len(message) + 1 for message in messages[:first])
    end = sum(len(message) + 1 for message in messages[:last])
    run = stored[start:end]
    assert json_mode.decode(run) == messages[first:last]
    # The standard library limits how many digits it converts; the text is what matters here.
    expected = [json.loads(message, parse_int=str) for message in messages[first:last]]
    assert json.loads(json_mode.as_array(run), parse_int=str) == expected


@THOROUGH
@given(json_texts, st.data())
def test_a_damaged_text_gets_in_only_if_it_is_still_strict_json(
    text: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(text)))
    insert = data.draw(
        st.binary(max_size=2)
        | st.sampled_from([b",", b"[", b"]", b'"', b"\\", b"NaN", b"\x00", b"\xff", b"\x0b", b"-"])
    )
    body = text[:at] + insert + text[at + data.draw(st.integers(0, 2)) :]
    assume(not has_surrogates(body))
    try:
        stored, count = json_mode.encode(body)
    except InvalidJson:
        assert not is_strict_json(body)
    except EmptyBody:
        assert json.loads(body) == []
    else:
        assert is_strict_json(body)
        assert len(json_mode.decode(stored)) == count


@THOROUGH
@given(st.binary(max_size=20))
def test_noise_gets_in_only_if_it_is_strict_json(body: bytes) -> None:
    try:
        json_mode.encode(body, allow_empty=True)
    except InvalidJson:
        assert not is_strict_json(body)
    else:
        assert is_strict_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"\xef\xbb\xbf1",  # a byte order mark
        b"\xef\xbb\xbf[1]",
        b'"\xff"',
        b'["\xc3"]',
        b'"\xed\xa0\x80"',  # a surrogate in UTF-8
        b'"\xc0\xaf"',  # an overlong slash
        b"NaN",
        b"[NaN]",
        b"Infinity",
        b"-Infinity",
        b"[1,]",
        b'{"a":1,}',
        b"[,1]",
        b"[1,,2]",
        b"[1 2]",
        b"1 2",
        b"[1]]",
        b"[",
        b'{"a"}',
        b"{1:2}",
        b"{'a':1}",
        b"01",
        b"-",
        b"+1",
        b"1.",
        b".5",
        b"1e",
        b"0x10",
        b"tru",
        b"nulll",
        b'"a\nb"',  # a bare control character
        b'"\\x41"',
        b'"\\u12"',
        b"// note\n1",
        b"\x0c1",
        b"1\x00",
        "１".encode(),  # a digit elsewhere  # noqa: RUF001
        "[1]".encode("utf-16"),
    ],
)
def test_what_is_not_strict_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        json_mode.encode(body)
    with pytest.raises(InvalidJson):
        json_mode.encode(b"[" + body + b",1]")


@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_without_end_is_refused(opening: bytes, closing: bytes) -> None:
    with pytest.raises(InvalidJson, match="deep"):
        json_mode.encode(opening * TOO_DEEP + b"1" + closing * TOO_DEEP)
    with pytest.raises(InvalidJson):
        json_mode.encode(opening * TOO_DEEP)


@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}")])
def test_whatever_is_accepted_can_be_taken_apart_again(opening: bytes, closing: bytes) -> None:
    """How deep a text may be depends on the stack; reading it back must not."""

    def message(depth: int) -> bytes:
        return opening * depth + b'",]}\\"[{,"' + closing * depth

    def is_accepted(depth: int) -> bool:
        try:
            json_mode.encode(b"[%b]" % message(depth))
        except InvalidJson:
            return False
        return True

    def from_deeper_in_the_stack(levels: int, stored: bytes) -> list[bytes]:
        if levels > 0:
            return from_deeper_in_the_stack(levels - 1, stored)
        return json_mode.decode(stored)

    accepted, refused = 1, TOO_DEEP
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        accepted, refused = (middle, refused) if is_accepted(middle) else (accepted, middle)
    messages = [b"1", message(accepted), b'"\\\\"', message(2), b"{}"]
    stored, _ = json_mode.encode(b"[" + b" , ".join(messages) + b"]")
    assert from_deeper_in_the_stack(100, stored) == messages


@pytest.mark.parametrize("body", [b"[]", b" [ ] ", b"[\n]"])
def test_an_empty_array_is_allowed_only_where_a_stream_is_created(body: bytes) -> None:
    with pytest.raises(EmptyBody):
        json_mode.encode(body)
    assert json_mode.encode(body, allow_empty=True) == (b"", 0)


def test_only_one_level_is_flattened() -> None:
    assert json_mode.encode(b"[[1, 2], [], [[3]]]") == (b"[1, 2],[],[[3]],", 3)


# ── How many messages an append may have ─────────────────────────────────────────────────────

MANY = msgspec.json.Decoder(list[msgspec.Raw])


def encode_plainly(body: bytes, messages_max: int) -> tuple[bytes, int]:
    """An object for each message, and then the count."""
    stored, count = json_mode.encode(body)
    if body.lstrip(b" \t\r\n")[:1] == b"[":
        messages = MANY.decode(body)
        assert (stored, count) == (b"".join(bytes(one) + b"," for one in messages), len(messages))
    if count > messages_max:
        raise TooManyMessages(messages_max)
    return stored, count


def outcome_of(encode: Callable[[], tuple[bytes, int]]) -> tuple[bytes, int] | type[StreamError]:
    try:
        return encode()
    except StreamError as error:
        return type(error)


nested = b'{"a,":[1,{"b":[]}],"c":"}"}'
tricky_texts = st.sampled_from(
    [b'"a,b"', b'"\\""', b'"\\\\"', b'"[{,"', b"[[1,2],[3]]", b"[]", b"{}", nested]
)


@THOROUGH
@given(
    st.lists(st.tuples(json_blanks, json_texts | tricky_texts, json_blanks)),
    st.integers(1, 12),
    st.integers(1, 40),
)
def test_a_limit_changes_nothing_but_how_many_get_in(
    elements: list[tuple[bytes, bytes, bytes]], messages_max: int, piece_bytes: int
) -> None:
    body = b"[" + b",".join(b"".join(parts) for parts in elements) + b"]"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_mode, "_WINDOW_BYTES", piece_bytes)
        found = outcome_of(lambda: json_mode.encode(body, messages_max=messages_max))
    assert found == outcome_of(lambda: encode_plainly(body, messages_max))


some_blanks = st.sampled_from([b"", b"", b"", b" ", b"\r\n\t"])


@THOROUGH
@given(
    st.lists(st.tuples(some_blanks, st.integers(0, 999), some_blanks), min_size=1, max_size=60),
    some_blanks,
    st.integers(1, 40),
)
def test_blanks_between_messages_are_dropped_from_every_piece(
    elements: list[tuple[bytes, int, bytes]], outside: bytes, piece_bytes: int
) -> None:
    """Pieces without any are kept as they were sent."""
    messages = [b'{"n": %d, "t": ","}' % number for _, number, _ in elements]
    parts = [b"".join((a, m, b)) for (a, _, b), m in zip(elements, messages, strict=True)]
    body = b"".join((outside, b"[", b",".join(parts), b"]", outside))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_mode, "_WINDOW_BYTES", piece_bytes)
        patch.setattr(json_mode, "_LARGE_BYTES", 2 * piece_bytes)
        stored, count = json_mode.encode(body)
    assert (stored, count) == (b"".join(m + b"," for m in messages), len(messages))


@THOROUGH
@given(st.binary(max_size=60) | st.text(alphabet='[]{},"\\a1 ', max_size=60).map(str.encode))
def test_a_limit_lets_nothing_else_in(body: bytes) -> None:
    found = outcome_of(lambda: json_mode.encode(body, messages_max=2))
    assert found == outcome_of(lambda: encode_plainly(body, 2))


def test_too_many_messages_are_refused_without_an_object_for_each() -> None:
    body = b"[" + b"1," * 4_000_000 + b"1]"
    tracemalloc.start()
    try:
        with pytest.raises(TooManyMessages):
            json_mode.encode(body, messages_max=100_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20, "as objects they take some 200 MB"


def test_one_message_may_hold_more_commas_than_an_append_may_hold_messages() -> None:
    body = b'[{"values": [' + b"1, " * 300_000 + b"1]}, 2]"
    assert json_mode.encode(body, messages_max=2)[1] == 2
    with pytest.raises(TooManyMessages):
        json_mode.encode(body, messages_max=1)


@pytest.mark.parametrize(
    "message", [b"1", b'"m,[\\"%s"' % (b"m" * 600), b'{"a":[1,{"b":"]"}],"c":"\\\\"}']
)
def test_the_parser_never_gets_much_at_a_time(message: bytes) -> None:
    """It keeps every other thread waiting meanwhile."""
    count = 4_000_000 // len(message)
    body = b" [" + b" , ".join([message] * count) + b"] "
    parts = list(pieces(body[1:], survey(body[1:])))
    assert len(parts) > 10
    assert max(len(part) for _, part in parts) < 2 * WINDOW_BYTES
    for cut in guesses(body, 1):
        assert WINDOW_BYTES <= cut < 2 * WINDOW_BYTES
        assert body[cut:].lstrip(b" ,").startswith(message[:1])
    assert json_mode.encode(body) == ((message + b",") * count, count)


def test_an_error_in_a_large_body_says_where_it_is() -> None:
    body = b"[" + b"1," * 1_000_000 + b"x,1]"
    with pytest.raises(InvalidJson, match=r"byte 2000001\)"):
        json_mode.encode(body)
    with pytest.raises(InvalidJson, match=r"UTF-8 \(byte 1000001\)"):
        json_mode.encode(b'"' + "é".encode() * 500_000 + b"\xff" + b'"' + b" " * 1_000_000)


@pytest.mark.parametrize("text", [b"1,,1", b"1,]", b",1", b"1, ,1"])
def test_a_missing_message_is_missed_at_every_place(text: bytes) -> None:
    for before in range(40):
        body = b"[" + b"1," * before + text + b",1" * 20 + b"]"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_mode, "_WINDOW_BYTES", 7)
            with pytest.raises(InvalidJson):
                json_mode.encode(body, messages_max=8)
