"""Archives: the fields of messages are columns, whatever becomes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater.cli.tables.lake import ask
from headwater.cli.tables.lake import rows_of as rows_of_answer
from pyspark_headwater.pipelines import archive as archive_module
from pyspark_headwater.pipelines.archive import Archive, archive_layout
from pyspark_headwater.pipelines.delta import Commit
from tests.spark.arrow_frames import batch_of, without_spark
from tests.spark.world import rows_of


class Stream:
    """A stream whose messages are archived as they come."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.uri = f"{self.root}/archive/events"
        self.job = Archive(self.root)
        self.messages: list[Any] = []
        self.appends = 0

    def take_in(self, *messages: Any) -> dict[str, str]:
        """The columns of the table after some messages."""
        self.job(batch_of("events", {self.appends: messages}), Commit("q", self.appends))
        self.appends += 1
        self.messages += messages
        assert [json.loads(row["value"]) for row in self.rows()] == self.messages
        own = archive_layout("").schema.fieldNames()
        fields = DeltaTable(self.uri).schema().fields
        return {one.name: one.type.type for one in fields if one.name not in own}

    def rows(self) -> list[dict[str, Any]]:
        return sorted(rows_of(self.uri), key=lambda row: (row["offset"], row["index"]))

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows()]

    def files(self) -> set[str]:
        return {*DeltaTable(self.uri).file_uris()}

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return [*rows_of_answer(ask(self.root, sql))]


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    without_spark(monkeypatch)
    return Stream(tmp_path)


def test_a_field_that_appears(stream: Stream) -> None:
    # What is no object has no fields.
    assert stream.take_in(1, "x", None, [{"n": 1}]) == {}
    assert stream.take_in({"n": 1, "date": "today"}) == {"date_2": "string", "n": "long"}
    before = stream.files()
    assert stream.take_in({"n": 2, "extra": True})["extra"] == "boolean"
    # No file is written again for it.
    assert before < stream.files()
    assert stream.column("extra") == [None] * 5 + [True]
    assert stream.ask("SELECT sum(n), any_value(date_2) FROM events") == [(3, "today")]


def test_a_field_that_is_renamed_and_one_that_goes(stream: Stream) -> None:
    stream.take_in({"n": 1, "old": "a"})
    assert stream.take_in({"n": 2, "new": "b"}) == {"n": "long", "old": "string", "new": "string"}
    stream.take_in({"new": "c"})
    assert stream.column("old") == ["a", None, None]
    assert stream.column("new") == [None, "b", "c"]
    assert stream.column("n") == [1, 2, None]


def test_a_field_that_gets_another_type(stream: Stream) -> None:
    stream.take_in({"n": 1, "big": 2**60}, {"n": 2})
    before = stream.files()
    assert stream.take_in({"n": 0.5}) == {"n": "double", "big": "long"}
    assert not before & stream.files()
    assert stream.column("n") == [1.0, 2.0, 0.5]
    # A double would round it, so it becomes text.
    assert stream.take_in({"big": 0.5})["big"] == "string"
    assert stream.column("big") == [str(2**60), None, None, "0.5"]
    assert stream.take_in({"n": [1]})["n"] == "string"
    assert stream.column("n") == ["1", "2", "0.5", None, "[1]"]


def test_what_is_nested_is_json(stream: Stream) -> None:
    address = {"street": "Elm", "tags": ["a", 1]}
    assert stream.take_in({"home": address}, {"home": None}) == {"home": "string"}
    assert [one and json.loads(one) for one in stream.column("home")] == [address, None]
    assert stream.ask("SELECT home->>'street', home->>'$.tags[1]' FROM events LIMIT 1") == [
        ("Elm", "1")
    ]


def test_a_large_archive_keeps_the_types_of_its_columns(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.take_in({"n": 1}, {"n": 2}, {"n": 3})
    before = stream.files()
    monkeypatch.setattr(archive_module, "REWRITTEN_ROWS_MAX", 2)
    assert stream.take_in({"n": "many", "late": 1}, {"n": 4}) == {"n": "long", "late": "long"}
    stream.take_in({"n": 0.5}, {"n": 5})
    assert before < stream.files()
    assert stream.column("n") == [1, 2, 3, None, 4, None, 5]
    assert stream.ask("SELECT value->>'n' FROM events WHERE n IS NULL ORDER BY 1") == [
        ("0.5",),
        ("many",),
    ]


def test_another_process_knows_the_columns(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.take_in({"n": 1})
    stream.job = Archive(stream.root, stream="events")
    with monkeypatch.context() as patch:
        patch.setattr(archive_module, "_rows", None)
        stream.take_in({"n": 2})
    # A batch that is read again, by a query that knows of nothing.
    batch = batch_of("events", {0: [{"n": 1}], 1: [{"n": 2}], 2: [{"n": 3}]})
    Archive(stream.root)(batch, Commit("another checkpoint", 0))
    assert stream.column("n") == [1, 2, 3]


def test_a_table_from_before_there_were_columns(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(archive_module, "room_for", lambda *_: {})
        assert stream.take_in({"n": 1}, {"n": 2, "old": "x"}) == {}
    assert stream.take_in({"n": 3}) == {"n": "long", "old": "string"}
    assert stream.column("n") == [1, 2, 3]
    assert stream.column("old") == [None, "x", None]
    before = stream.files()
    stream.take_in({"n": 4})
    assert before < stream.files()
