"""Tables that run themselves: many small batches leave few files, a short log and little rubbish.

`HEADWATER_MICRO_BATCHES=10000` makes a month of it.
"""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from benchmarks.spark.month import simulate
from headwater.cli.tables import lake
from pyspark_headwater.pipelines import upkeep
from pyspark_headwater.pipelines.archive import archive_layout
from pyspark_headwater.pipelines.delta import Commit, WrittenFile, commit_files
from pyspark_headwater.pipelines.jobs import Seen, seen_by
from pyspark_headwater.pipelines.layout import Layout
from pyspark_headwater.pipelines.open_tables import OpenTables
from pyspark_headwater.pipelines.parquet import read_rows
from pyspark_headwater.pipelines.state import state_layout
from tests.support.object_storage import ObjectStorage

BATCHES = int(os.environ.get("HEADWATER_MICRO_BATCHES", "260"))
DAY = date(2026, 1, 1)


def offset_of(number: int) -> str:
    return f"{1:016d}_{number:016d}"


def written(layout: Layout, table: str, number: int, part: str, rows: int) -> WrittenFile:
    """A file as a task would leave it."""
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    columns: dict[str, Any] = {
        "offset": [offset_of(number)] * rows,
        "index": pa.array(range(rows), pa.int32()),
        "timestamp": pa.array([at] * rows, pa.timestamp("us", "UTC")),
        "value": [f'{{"n":{number}}}'] * rows,
    }
    if layout.clustered == "key":
        columns = {f"_{name}": values for name, values in columns.items()}
        columns = {"key": [str(one) for one in range(rows)], **columns}
    path = Path(layout.uri(table)) / f"{layout.partition}={part}" / f"part-{number}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    name = f"{path.parent.name}/{path.name}"
    end = offset_of(number)
    return WrittenFile(table, name, path.stat().st_size, part, rows, end, end, number)


def test_an_archive_of_many_small_batches(tmp_path: Path) -> None:
    """A day in four parts: each has few files, whatever came before."""
    layout, tables = archive_layout(str(tmp_path)), OpenTables()
    days = [str(DAY + timedelta(days=number)) for number in range(4)]
    uri = layout.uri("orders")
    for number in range(BATCHES):
        file = written(layout, "orders", number, days[number * 4 // BATCHES], 3)
        notes = Seen(offset_of(number), number).notes("orders")
        commit_files(tables, layout, "orders", [file], Commit("q", number), notes=notes)
        table = tables.find(uri)
        assert table is not None
        upkeep.compact(table, layout.partition)
        past = 3 * upkeep.COMPACT_PAST_AFTER_FILES
        assert len(table.file_uris()) <= upkeep.COMPACT_AFTER_FILES + past
    fresh = DeltaTable(uri)
    rows = pa.table(fresh.to_pyarrow_table())
    assert rows.num_rows == 3 * BATCHES
    assert pc.count_distinct(rows["offset"]).as_py() == BATCHES
    assert seen_by(fresh, "orders") == Seen(offset_of(BATCHES - 1), BATCHES - 1)
    # A reader begins at the last state that was written down, at most twenty commits ago.
    assert [*Path(uri).glob("_delta_log/*.checkpoint.parquet")]
    # Every file still says which offsets are in it.
    parts = pa.table(fresh.get_add_actions(flatten=True)).to_pylist()
    assert all(row["min.offset"] <= row["max.offset"] for row in parts)


def test_a_state_of_many_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One part that is rewritten again and again is one file, and what it replaced goes."""
    monkeypatch.setattr(upkeep, "TIDY_EVERY", 10)
    layout, tables = state_layout(str(tmp_path), "users"), OpenTables(keep_replaced_h=0)
    uri = layout.uri("user")
    for number in range(BATCHES // 4):
        file = written(layout, "user", number, "0", 5)
        commit_files(tables, layout, "user", [file], Commit("q", number), replaced=["0"])
    assert len(DeltaTable(uri).file_uris()) == 1
    assert len([*Path(uri).glob("_bucket=*/*.parquet")]) <= 10
    assert len([*Path(uri).glob("_delta_log/*")]) <= 20
    assert pa.table(DeltaTable(uri).to_pyarrow_table()).num_rows == 5


def test_tables_that_grow_together_are_tidied_in_turn() -> None:
    """Each once in twenty commits, and never more than a few of them with the same batch."""
    turns = [upkeep.turn_of(f"lake/state/s{number}/order") for number in range(200)]
    for before in range(2 * upkeep.TIDY_EVERY):
        due = [turn for turn in turns if upkeep.is_due(turn, before, before + 1)]
        assert len(due) <= 2 * len(turns) / upkeep.TIDY_EVERY
        assert due == [turn for turn in turns if upkeep.commits_left(turn, before) == 1]
    for turn in turns:
        due_at = [one for one in range(100) if upkeep.is_due(turn, one, one + 1)]
        assert [after - at for at, after in pairwise(due_at)] == [20] * 4


def test_a_month_in_short(tmp_path: Path) -> None:
    """Few files for whoever asks and on the disk, and the answers of tables made in one go."""
    found = simulate(tmp_path, batches=BATCHES // 4, rows=3, runs=1)
    assert found.same
    for name, files in found.files.items():
        assert found.most[name] <= upkeep.COMPACT_AFTER_FILES + 30 * upkeep.COMPACT_PAST_AFTER_FILES
        # What was added and what was replaced since it was tidied last.
        assert files.on_disk <= files.live + 2 * upkeep.TIDY_EVERY
        assert files.in_log <= 2 * upkeep.TIDY_EVERY


def test_what_a_table_has_noted_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again when another writer was there."""
    layout, tables = archive_layout(str(tmp_path)), OpenTables()
    asked: list[str] = []
    look = DeltaTable.transaction_version

    def counting(table: DeltaTable, name: str) -> int | None:
        asked.append(name)
        return look(table, name)

    monkeypatch.setattr(DeltaTable, "transaction_version", counting)

    def commit(tables: OpenTables, query: str, number: int) -> Seen | None:
        file = written(layout, "orders", number, str(DAY), 1)
        notes = Seen(offset_of(number), number).notes(query)
        commit_files(tables, layout, "orders", [file], Commit(query, number), notes=notes)
        return seen_by(tables.find(layout.uri("orders")), "mine")

    for number in range(5):
        assert commit(tables, "mine", number) == Seen(offset_of(number), number)
    assert sorted(set(asked)) == sorted(asked), "each name once, at most"
    commit(OpenTables(), "another", 7)
    table = tables.find(layout.uri("orders"))
    assert seen_by(table, "another") is None, "what is open may be out of date"
    assert commit(tables, "mine", 8) == Seen(offset_of(8), 8)
    assert seen_by(table, "another") == Seen(offset_of(7), 7)


def test_sql_finds_what_files_say_nothing_about(tmp_path: Path) -> None:
    """Files say which offsets are in them, and of other columns nothing at all."""
    layout, tables = archive_layout(str(tmp_path)), OpenTables()
    for number in range(3):
        file = written(layout, "orders", number, str(DAY), 2)
        commit_files(tables, layout, "orders", [file], Commit("q", number))
    for condition, count in (
        ("value = '{\"n\":1}'", 2),
        ("index >= 1", 3),
        ("value IS NULL", 0),
        (f"\"offset\" > '{offset_of(0)}' AND index = 0", 2),
        (f"date = '{DAY}'", 6),
        (f"date > '{DAY}'", 0),
    ):
        question = f"SELECT count(*) FROM orders WHERE {condition}"
        assert [*lake.rows_of(lake.ask(str(tmp_path), question))] == [(count,)], condition


def test_files_in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks read them without Spark's help: with the part they are in, and nulls for the rest."""
    schema = pa.schema([("n", pa.int64()), ("later", pa.string()), ("date", pa.date32())])
    with ObjectStorage() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        root = "s3://history/lake/archive/orders"
        where, path = pa.fs.FileSystem.from_uri(root)
        pq.write_table(pa.table({"n": [1, 2]}), f"{path}/date={DAY}/a.parquet", filesystem=where)
        (batch,) = read_rows(root, [f"date={DAY}/a.parquet"], schema)
    assert batch.to_pylist() == [{"n": n, "later": None, "date": DAY} for n in (1, 2)]
