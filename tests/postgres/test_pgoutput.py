"""The replication protocol, read back from what is written, and from anything at all."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.postgres.errors import BadMessage
from headwater.postgres.pgoutput import (
    EPOCH_US,
    UNCHANGED,
    Begin,
    Column,
    Commit,
    Delete,
    Ignored,
    Insert,
    Keepalive,
    Message,
    Relation,
    Truncate,
    Update,
    WalData,
    read_frame,
    read_message,
    status_update,
)
from tests.postgres.wire import encode

oids = st.integers(0, 2**32 - 1)
lsns = st.integers(0, 2**64 - 1)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
values = st.one_of(
    st.none(), st.just(UNCHANGED), st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
)
rows = st.lists(values, max_size=6).map(tuple)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Begin, lsns, st.integers(EPOCH_US, EPOCH_US + 2**60), oids),
    st.builds(Commit, lsns, lsns),
    st.builds(
        Relation,
        oids,
        names,
        names,
        st.sampled_from("dfin"),
        st.lists(st.builds(Column, names, oids, st.booleans()), max_size=5).map(tuple),
    ),
    st.builds(Insert, oids, rows),
    st.builds(Update, oids, rows, st.none(), st.just(False)),
    st.builds(Update, oids, rows, rows, st.booleans()),
    st.builds(Delete, oids, rows, st.booleans()),
    st.builds(Truncate, st.lists(oids, max_size=4).map(tuple)),
)


@given(messages)
def test_messages_are_read_back(message: Message) -> None:
    assert read_message(encode(message)) == message


@given(messages, st.data())
def test_a_message_cut_short_or_long_is_refused(message: Message, data: st.DataObject) -> None:
    encoded = encode(message)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(BadMessage):
        read_message(encoded[:cut])
    with pytest.raises(BadMessage):
        read_message(encoded + b"\0")


@given(st.sampled_from(b"BCRIUDTOY?"), st.binary(max_size=200))
def test_nothing_else_comes_out_of_garbage(kind: int, data: bytes) -> None:
    with suppress(BadMessage):
        read_message(bytes([kind]) + data)
    with suppress(BadMessage):
        read_frame(bytes([kind]) + data)


def test_messages_that_say_nothing_about_rows() -> None:
    assert read_message(struct.pack(">cQ", b"O", 7) + b"origin\0") == Ignored()
    assert read_message(struct.pack(">cI", b"Y", 7) + b"public\0mood\0") == Ignored()


def test_the_schema_of_the_catalogue_is_spelled_out() -> None:
    relation = read_message(encode(Relation(1, "", "pg_class", "n", ())))
    assert isinstance(relation, Relation)
    assert relation.schema == "pg_catalog"


def test_frames() -> None:
    assert read_frame(struct.pack(">cQQq", b"w", 1, 2, 3) + b"payload") == WalData(b"payload")
    assert read_frame(struct.pack(">cQqB", b"k", 9, 0, 1)) == Keepalive(9, True)
    assert read_frame(struct.pack(">cQqB", b"k", 9, 0, 0)) == Keepalive(9, False)


def test_a_report_says_how_far_and_when() -> None:
    kind, written, flushed, applied, at, wants_reply = struct.unpack(
        ">cQQQqB", status_update(77, now_us=EPOCH_US + 5)
    )
    assert (kind, written, flushed, applied, at, wants_reply) == (b"r", 77, 77, 77, 5, 0)
