"""Where tables are, what they are called, and what their columns are.

The table of a stream is named by the path of the stream, with dots for slashes: `shop.orders` for
`shop/orders`. A dot within a segment, and whatever could mean something to a file system, becomes
`~` and its bytes in hex. So no two streams share a table, and no table lies in another.
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
        schema: the columns of a table, the one it is partitioned by included.
        partition: the column that a table is partitioned by.
        table: the column that says which table a row is for; it is not kept. None: `name` says it.
        name: the table of all rows.
        clustered: the column whose least and greatest value each file says.
        by_path: whether tables are called by the paths of streams.
        source: the column with JSON objects whose fields are columns too.
        columns: those columns, by table.
        is_public: whether the tables are for others too, not only for the pipeline itself.
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
        """What is in the files of a table: the partition is in their names."""
        fields = [one for one in self._arrow if one.name != self.partition]
        made = [pa.field(one.name, ARROW_TYPES[one.type]) for one in self._columns(table)]
        return pa.schema([*fields, *made])

    def reader(self, table: str) -> Reader | None:
        """What makes columns of others, if the table has such."""
        return Reader(self._columns(table)) if self.source else None

    def filled(self, table: str, rows: Any, reader: Reader | None) -> Any:
        """Rows of a table as they are stored, with the columns that are made of others."""
        stored = self.stored(table)
        made = [] if reader is None else reader.arrays(rows[self.source].to_pylist())
        fixed = [rows[name] for name in stored.names[: len(stored.names) - len(made)]]
        arrays = [one.cast(kind.type) for one, kind in zip([*fixed, *made], stored, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=stored)

    def delta(self, table: str) -> Schema:
        """The schema of a table. It says of each column what it was made of."""
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
    """The columns of a table that are made of fields."""
    found = [] if table is None else table.schema().fields
    return tuple(
        Column(str(one.metadata[_FIELD_NOTE]), one.name, int(one.metadata[_KINDS_NOTE]))
        for one in found
        if _FIELD_NOTE in one.metadata
    )


# --- Names ---------------------------------------------------------------------------------------


def safe_path(path: str) -> str:
    """The path of a stream as one name.

    A table must not lie in that of another one: whoever tidied up the outer one would remove it.

    >>> safe_path("shop/orders"), safe_path("v1.2")
    ('shop.orders', 'v1~2E2')
    """
    return ".".join(safe_name(one).replace(".", "~2E") for one in path.split("/"))


def safe_name(name: str) -> str:
    """A name that is not hidden, leads nowhere else and means nothing to a reader.

    >>> safe_name("orders"), safe_name("_a/ö")
    ('orders', '~5Fa~2F~C3~B6')
    """
    return re.sub(r"^[._]|[^A-Za-z0-9._-]", lambda found: _escaped(found[0]), name)


def plain_name(name: str) -> str:
    """What was made a safe name.

    >>> plain_name(safe_name("_a/ö"))
    '_a/ö'
    """
    return re.sub(r"(?:~[0-9A-F]{2})+", lambda found: _unescaped(found[0]), name)


def _escaped(text: str) -> str:
    return "".join(f"~{byte:02X}" for byte in text.encode())


def _unescaped(text: str) -> str:
    return bytes.fromhex(text.replace("~", "")).decode()
