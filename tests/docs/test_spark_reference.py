"""The Spark page names every option and every column, and none that does not exist."""

from __future__ import annotations

from typing import get_args

from headwater.core.pipelines import PIPELINES
from pyspark_headwater.known_options import EVERY, OPTIONS, READ, WRITE, Option
from pyspark_headwater.pipelines.archive import archive_layout
from pyspark_headwater.pipelines.columns import COLUMNS_MAX, NAME_CHARS_MAX, ColumnType
from pyspark_headwater.pipelines.feed import changes_layout
from pyspark_headwater.pipelines.jobs import rollup_layout
from pyspark_headwater.pipelines.state import state_layout
from pyspark_headwater.shapes import PLACES, message_schema
from tests.docs.markdown import DOCS, Page, code_spans

PAGE = Page(DOCS / "reference" / "spark.md")


def uses(option: Option) -> str:
    return {EVERY: "all", READ: "read", WRITE: "write"}.get(option.uses, ", ".join(option.uses))


def test_every_option_is_there_as_the_code_has_it() -> None:
    documented = [(*code_spans(row[0]), row[1], row[3]) for row in PAGE.table("Options")]
    assert documented == [(option.name, uses(option), option.meaning) for option in OPTIONS]


def test_every_default_is_there() -> None:
    for row, option in zip(PAGE.table("Options"), OPTIONS, strict=True):
        assert row[2].replace("`", "").strip() == option.default.replace("`", "")


def test_every_column_is_there_with_its_type() -> None:
    columns = [(code_spans(row[0])[0], code_spans(row[1])[0]) for row in PAGE.table("Columns")]
    fields = message_schema(json=True, headers=True).fields
    assert columns == [(field.name, field.dataType.simpleString()) for field in fields]


def test_every_place_is_there_with_its_type() -> None:
    rows = PAGE.table("A schema of your own")
    places = {code_spans(row[0])[0]: code_spans(row[1])[0] for row in rows}
    assert places == {name: kind.simpleString() for name, kind in PLACES.items()}


def test_every_pipeline_is_there() -> None:
    rows = PAGE.table("Pipelines")
    assert {code_spans(row[0])[0]: row[1].rstrip(" |") for row in rows} == PIPELINES


def test_every_table_is_there_with_its_columns() -> None:
    layouts = [
        archive_layout("root"),
        state_layout("root", "stream"),
        rollup_layout("root"),
        changes_layout("root", "stream"),
    ]
    for row, layout in zip(PAGE.table("Tables"), layouts, strict=True):
        assert code_spans(row[1]) == layout.schema.fieldNames()
        assert code_spans(row[2]) == [layout.partition]


def test_every_type_of_a_field_is_there_and_every_limit() -> None:
    rows = PAGE.table("Fields as columns")
    assert [code_spans(row[1])[0] for row in rows] == [*get_args(ColumnType)]
    for limit in (COLUMNS_MAX, NAME_CHARS_MAX):
        assert f" {limit:,}" in PAGE.text
