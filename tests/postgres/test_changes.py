"""What becomes of messages, without a database: above all of those that make no sense."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.state_protocol import read_record
from headwater.postgres.changes import Table, Translator
from headwater.postgres.errors import BadMessage
from headwater.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Insert,
    Message,
    Relation,
    Truncate,
    Update,
)
from headwater.postgres.position import CHANGES, Position
from tests.postgres.test_pgoutput import messages

BEGIN, COMMIT = Begin(100, 1_767_225_600_000_000, 7), Commit(100, 140)
RELATION = Relation(1, "public", "t", "d", ())
TABLE = Table("public.t", ("id", "big"), (int, str), key=(0,), full=False)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def translator(warnings: list[str]) -> Translator:
    translator = Translator(warnings.append)
    translator.describe(RELATION, TABLE)
    return translator


def test_a_change_has_the_place_of_its_commit(translator: Translator) -> None:
    assert translator.translate(BEGIN) is None
    assert translator.in_transaction
    first, second = (translator.translate(Insert(1, (str(n), None))) for n in (5, 6))
    assert translator.translate(COMMIT) is None
    assert not translator.in_transaction
    assert first is not None
    assert second is not None
    assert [first.position, second.position] == [Position(100, CHANGES, n) for n in (0, 1)]
    assert msgspec.json.decode(second.records[0]) == {
        "type": "public.t",
        "key": "6",
        "value": {"id": 6, "big": None},
        "headers": {
            "operation": "insert",
            "txid": "7",
            "timestamp": "2026-01-01T00:00:00.000000Z",
            "lsn": "00000000/00000064",
            "seq": 1,
        },
    }


def test_a_part_of_a_row_fills_up_nothing_but_the_key(translator: Translator) -> None:
    """What is not part of the identity reads as NULL there, whatever it is in the table."""
    translator.translate(BEGIN)
    unit = translator.translate(Update(1, ("2", UNCHANGED), ("1", None), old_is_full=False))
    assert unit is not None
    deleted, inserted = map(msgspec.json.decode, unit.records)
    assert (deleted["headers"]["operation"], deleted["key"]) == ("delete", "1")
    assert "old_value" not in deleted
    assert "unchanged" not in deleted["headers"]
    assert inserted["value"] == {"id": 2}
    assert inserted["headers"]["unchanged"] == ["big"]


def test_a_warning_is_not_repeated_in_the_next_session(
    translator: Translator, warnings: list[str]
) -> None:
    following = Translator(warnings.append, translator.warned)
    following.describe(RELATION, TABLE)
    for session in (translator, following):
        session.translate(BEGIN)
        session.translate(Update(1, ("1", "x")))
        session.translate(Update(1, ("1", "y")))
    assert len(warnings) == 1


@pytest.mark.parametrize(
    "sequence",
    [
        [Insert(1, ("1", "x"))],
        [COMMIT],
        [BEGIN, BEGIN],
        [BEGIN, Commit(101, 140)],
        [BEGIN, Insert(2, ("1", "x"))],
        [BEGIN, Insert(1, ("1",))],
        [BEGIN, Update(1, ("1", "x", "y"))],
        [BEGIN, Truncate((1, 2))],
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(translator: Translator, sequence: list[Message]) -> None:
    *before, last = sequence
    for message in before:
        translator.translate(message)
    with pytest.raises(BadMessage):
        translator.translate(last)


@given(st.lists(messages, max_size=10))
def test_any_messages_make_records_or_are_refused(sequence: list[Message]) -> None:
    translator = Translator(lambda warning: None)
    with suppress(BadMessage):
        for message in [BEGIN, *sequence]:
            if isinstance(message, Relation):
                names = tuple(column.name for column in message.columns)
                converters = tuple(str for _ in names)
                translator.describe(message, Table("t", names, converters, (), full=True))
            unit = translator.translate(message)
            for record in unit.records if unit else ():
                read_record(record)
