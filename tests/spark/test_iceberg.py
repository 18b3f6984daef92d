"""Tables as Iceberg: whatever happens to the Delta table, other readers find the same rows."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from pyspark_headwater.pipelines import iceberg, upkeep
from pyspark_headwater.pipelines.archive import archive_layout
from pyspark_headwater.pipelines.columns import FRACTION, INTEGER, TEXT, Column, Columns
from pyspark_headwater.pipelines.delta import Commit, commit_files, publish_as_iceberg
from pyspark_headwater.pipelines.iceberg import Home
from pyspark_headwater.pipelines.open_tables import OpenTables
from pyspark_headwater.pipelines.state import state_layout
from tests.spark.test_upkeep import DAY, offset_of, written
from tests.support.object_storage import ObjectStorage

pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning")


class Archive:
    """An archive that grows by a file at a time."""

    def __init__(self, root: Path, *, iceberg: bool = True) -> None:
        self.root = root
        self.tables = OpenTables(iceberg=iceberg)
        self.columns: Columns = ()
        self.batches = 0
        self.uri = archive_layout(str(root)).uri("orders")

    def take_in(self, *days: int, replaced: Any = ()) -> None:
        layout = replace(archive_layout(str(self.root)), columns={"orders": self.columns})
        for day in days:
            part = str(DAY + timedelta(days=day))
            file = written(layout, "orders", self.batches, part, 3)
            commit = Commit("q", self.batches)
            commit_files(self.tables, layout, "orders", [file], commit, replaced=replaced)
            self.batches += 1

    def compact(self) -> None:
        layout = archive_layout(str(self.root))
        table = DeltaTable(self.uri)
        upkeep.compact(table, layout.partition)
        publish_as_iceberg(self.tables, layout, table)


def newest(uri: str, **properties: str) -> StaticTable:
    """What a reader finds that follows the hint."""
    home = Home(uri)
    current = home.current()
    assert current is not None
    name = f"{home.metadata}/v{current['headwater-version']}.metadata.json"
    return StaticTable.from_metadata(name, properties)


def check(uri: str, **properties: str) -> list[dict[str, Any]]:
    """The rows, which are the same in every reader."""
    order = [("offset", "ascending"), ("index", "ascending")]
    delta = pa.table(DeltaTable(uri).to_pyarrow_table()).sort_by(order)
    table = newest(uri, **properties)
    theirs = table.scan().to_arrow()
    assert theirs.select(delta.column_names).sort_by(order).to_pylist() == delta.to_pylist()
    if not properties:
        plan = polars.scan_iceberg(table.metadata_location)
        found = plan.collect().sort("offset", "index").select(delta.column_names)
        assert found.to_dicts() == delta.to_pylist()
    return [*delta.to_pylist()]


def test_an_archive_that_grows(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.take_in(0, 0, 1, 1, 2)
    assert len(check(archive.uri)) == 15
    table = newest(archive.uri)
    # One manifest for each day, and readers pass over what they do not need.
    assert len(table.current_snapshot().manifests(table.io)) == 3  # type: ignore[union-attr]
    assert len([*table.scan(row_filter=f"date = '{DAY}'").plan_files()]) == 2
    assert len([*table.scan(row_filter=f"offset > '{offset_of(3)}'").plan_files()]) == 1
    kinds = [one.summary.operation.value for one in table.snapshots() if one.summary]
    assert kinds == ["append"] * 5
    # A month later, the files of a day have become one.
    before = check(archive.uri)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "COMPACT_PAST_AFTER_FILES", 2)
        archive.compact()
    assert check(archive.uri) == before
    assert len([*newest(archive.uri).scan().plan_files()]) == 3
    last = newest(archive.uri).current_snapshot()
    assert last is not None
    assert last.summary is not None
    assert last.summary.operation.value == "overwrite"
    # Who is still at an earlier snapshot finds it as it was.
    past = table.scan(snapshot_id=table.snapshots()[1].snapshot_id).to_arrow()
    assert past.num_rows == 6


def test_columns_that_come_and_change(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.take_in(0)
    archive.columns = (Column("n", "n", INTEGER), Column("a", "a", TEXT))
    archive.take_in(0)
    first = {one.name: one.field_id for one in newest(archive.uri).schema().fields}
    assert [row["n"] for row in check(archive.uri)] == [None] * 6
    archive.columns = (Column("n", "n", INTEGER | FRACTION), Column("a", "a", TEXT))
    archive.take_in(0, replaced="all")
    then = {one.name: one.field_id for one in newest(archive.uri).schema().fields}
    assert len(check(archive.uri)) == 3
    # A column with another type is another one; all others are the same.
    assert {name for name, number in then.items() if number != first[name]} == {"n"}
    assert then["n"] > max(first.values())
    assert str(newest(archive.uri).schema().find_field("n").field_type) == "double"


def test_a_state_whose_parts_are_replaced(tmp_path: Path) -> None:
    layout, tables = state_layout(str(tmp_path), "users"), OpenTables(iceberg=True)
    for number, part in enumerate("0110"):
        file = written(layout, "user", number, part, 2)
        commit_files(tables, layout, "user", [file], Commit("q", number), replaced=[part])
    rows = newest(layout.uri("user")).scan().to_arrow()
    found = sorted(zip(rows["_bucket"].to_pylist(), rows["_value"].to_pylist(), strict=True))
    assert found == [(0, '{"n":3}')] * 2 + [(1, '{"n":2}')] * 2
    # Nothing is left at last.
    commit_files(tables, layout, "user", [], Commit("q", 4), replaced="all")
    assert newest(layout.uri("user")).scan().to_arrow().num_rows == 0


def test_what_was_not_published_is_with_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = Archive(tmp_path / "lake", iceberg=False)
    quiet.take_in(0, 0)
    archive = Archive(tmp_path / "lake")
    archive.batches = 1
    # The batch that was committed last is tried again, as it is not known to be done.
    archive.take_in(0)
    assert len(check(archive.uri)) == 6
    with monkeypatch.context() as patch:
        patch.setattr(Home, "commit", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            archive.take_in(0)
    assert newest(archive.uri).scan().to_arrow().num_rows == 6
    # The batch was committed all the same: it is tried again, and not stored twice.
    archive.tables.forget()
    archive.take_in(0)
    assert len(check(archive.uri)) == 9
    # A directory that was moved is described anew.
    shutil.move(tmp_path / "lake", tmp_path / "moved")
    moved = Archive(tmp_path / "moved")
    moved.batches = 10
    moved.take_in(1)
    assert len(check(moved.uri)) == 12


def test_metadata_does_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "SNAPSHOTS_KEPT", 5)
    archive = Archive(tmp_path)
    archive.take_in(*[0] * 20)
    home = Home(archive.uri)
    home.sweep(older_than_h=1)
    many = len([*Path(home.metadata).iterdir()])
    home.sweep(older_than_h=-1)
    # Five snapshots: a list and a manifest each, and the metadata of these and the one before.
    assert len([*Path(home.metadata).iterdir()]) == 5 * 2 + 6 + 1 < many
    assert len(check(archive.uri)) == 60
    table = newest(archive.uri)
    counts = [table.scan(snapshot_id=one.snapshot_id).count() for one in table.snapshots()]
    assert counts == [48, 51, 54, 57, 60]


def test_metadata_is_swept_when_a_table_is_tidied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "SNAPSHOTS_KEPT", 2)
    monkeypatch.setattr(upkeep, "TIDY_EVERY", 5)
    archive = Archive(tmp_path)
    archive.tables.keep_replaced_h = 0
    counts = []
    for _ in range(15):
        archive.take_in(0)
        counts.append(len([*Path(Home(archive.uri).metadata).iterdir()]))
    falls = [after < before for before, after in itertools.pairwise(counts)]
    assert falls.count(True) >= 2, counts
    assert len(check(archive.uri)) == 45


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStorage]:
    with ObjectStorage() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield store


def test_in_an_object_store(store: ObjectStorage, tmp_path: Path) -> None:
    near = Archive(tmp_path, iceberg=False)
    near.take_in(0, 0, 1)
    uri = "s3://history/lake/archive/orders"
    where, path = pa.fs.FileSystem.from_uri(uri)
    pa.fs.copy_files(near.uri, path, destination_filesystem=where)
    layout = archive_layout("s3://history/lake")
    publish_as_iceberg(OpenTables(iceberg=True), layout, DeltaTable(uri))
    environment = store.environment
    reading = {
        "s3.endpoint": environment["AWS_ENDPOINT_URL"],
        "s3.access-key-id": environment["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": environment["AWS_SECRET_ACCESS_KEY"],
        "s3.region": environment["AWS_REGION"],
    }
    assert len(check(uri, **reading)) == 9
