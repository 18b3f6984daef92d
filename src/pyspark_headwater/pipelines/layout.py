"""Where tables are, what they are called, and what their columns are.

The table of a stream is named after the path of the stream, with dots for slashes: `shop.orders`
for `shop/orders`. A dot within a segment, and any character that is special to a file system,
becomes `~` and its bytes in hex. So no two streams share a table, and no table is inside another.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_headwater.pipelines.columns import ARROW_TYPES, Column, Columns, Reader

_FIELD_NOTE: Final = "headwater.field"
_KINDS_NOTE: Final = "headwater.kinds"


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a DataFrame become tables.

    Attributes:
        root: the directory, or address of an object store, that holds the tables.
        schema: the columns of a table, including the partition column.
        partition: the column that a table is partitioned by.
        table: the column with the table of a row; it is not stored. None: `name` is the table.
        name: the table of all rows.
        clustered: the column whose minimum and maximum each file records.
        by_path: whether tables are named after the paths of streams.
        source: the column with JSON objects whose fields are columns too.
        columns: those columns, by table.
        is_public: whether the tables are also for others, not only for the pipeline itself.
    """

    root: str
    schema: StructType
    partition: str
    table: str | None = None
    name: str = ""
    clustered: str = "offset"
    by_path: bool = True
    source: str = ""
    columns: Mapping[str, Columns] = field(default_factory=dict)
    is_public: bool = True

    def uri(self, table: str) -> str:
        return posixpath.join(self.root, self.directory(table))

    def directory(self, table: str) -> str:
        """Where a table is, below the root."""
        return safe_path(table) if self.by_path else safe_name(table)

    def stored(self, table: str) -> Any:
        """The schema of a table's files: the partition is in their names."""
        fields = [one for one in self._arrow if one.name != self.partition]
        made = [pa.field(one.name, ARROW_TYPES[one.type]) for one in self._columns(table)]
        return pa.schema([*fields, *made])

    def reader(self, table: str) -> Reader | None:
        """What derives columns from others, if the table has such."""
        return Reader(self._columns(table)) if self.source else None

    def filled(self, table: str, rows: Any, reader: Reader | None) -> Any:
        """Rows of a table as they are stored, including derived columns."""
        stored = self.stored(table)
        made = [] if reader is None else reader.arrays(rows[self.source].to_pylist())
        fixed = [rows[name] for name in stored.names[: len(stored.names) - len(made)]]
        arrays = [one.cast(kind.type) for one, kind in zip([*fixed, *made], stored, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=stored)

    def delta(self, table: str) -> Schema:
        """The schema of a table. It records the field of each derived column."""
        made = [
            Field(one.name, PrimitiveType(one.type), metadata=_notes(one))
            for one in self._columns(table)
        ]
        return Schema([*Schema.from_arrow(self._arrow).fields, *made])

    @property
    def _arrow(self) -> Any:
        return to_arrow_schema(self.schema, timezone="UTC")

    def _columns(self, table: str) -> Columns:
        return self.columns.get(table, ())


def _notes(column: Column) -> dict[str, Any]:
    return {_FIELD_NOTE: column.field, _KINDS_NOTE: column.kinds}


def columns_of(table: DeltaTable | None) -> Columns:
    """The columns of a table that come from fields."""
    found = [] if table is None else table.schema().fields
    return tuple(
        Column(str(one.metadata[_FIELD_NOTE]), one.name, int(one.metadata[_KINDS_NOTE]))
        for one in found
        if _FIELD_NOTE in one.metadata
    )


# --- Names ---------------------------------------------------------------------------------------


def safe_path(path: str) -> str:
    """The path of a stream as one name.

    A table must not be inside another one: cleaning up the outer one would remove it.

    >>> safe_path("shop/orders"), safe_path("v1.2")
    ('shop.orders', 'v1~2E2')
    """
    return ".".join(safe_name(one).replace(".", "~2E") for one in path.split("/"))


def safe_name(name: str) -> str:
    """A name that is not hidden, is no other path and has no meaning to a reader.

    >>> safe_name("orders"), safe_name("_a/ö")
    ('orders', '~5Fa~2F~C3~B6')
    """
    return re.sub(r"^[._]|[^A-Za-z0-9._-]", lambda found: _escaped(found[0]), name)


def plain_name(name: str) -> str:
    """The inverse of `safe_name`.

    >>> plain_name(safe_name("_a/ö"))
    '_a/ö'
    """
    return re.sub(r"(?:~[0-9A-F]{2})+", lambda found: _unescaped(found[0]), name)


def _escaped(text: str) -> str:
    return "".join(f"~{byte:02X}" for byte in text.encode())


def _unescaped(text: str) -> str:
    return bytes.fromhex(text.replace("~", "")).decode()
