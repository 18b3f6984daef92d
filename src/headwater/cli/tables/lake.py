"""The tables that pipelines made, under names for SQL, and queries over them.

A table has up to three names: its path below the root in quotes (`"archive/shop.orders"`), the same
as one word (`archive_shop_orders`), and the last part of it (`orders`) unless two tables would
share it. For that short name, a state takes precedence over an archive: a query for `customers`
most likely wants their current state, not how it came about.

Queries run in this process: reading needs neither Spark nor Java.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater.cli.exits import CliError, ExitCode, one_line, usage
from headwater.core.pipelines import ARCHIVE, CHANGES, ROLLUP, STATE

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

KINDS: Final = (ROLLUP, STATE, ARCHIVE, CHANGES)
"""In order of precedence for short names."""

_LOG: Final = "_delta_log"
_READING: Final = frozenset({"select", "with", "explain", "describe", "desc", "values"})
_WORD = re.compile(r'"([^"]+)"|([A-Za-z_][A-Za-z0-9_]*)')
_UNKNOWN_TABLE = re.compile(r"Table with name (.+?) does not exist!")
_ERROR_KIND = re.compile(r"^\w+ Error: ")
_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    # The tables are passed in; queries must not reach anything else on this machine.
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_ROWS_IN_A_BATCH: Final = 10_000
_NAMES_SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table below a root."""

    path: str
    uri: str

    @property
    def kind(self) -> str:
        return self.path.partition("/")[0]

    @property
    def word(self) -> str:
        return _word(self.path)

    @property
    def last_word(self) -> str:
        """An archive is named after a stream, and a state after an entity type."""
        name = self.path.rpartition("/")[2]
        return _word(name.rpartition(".")[2] if self.kind == ARCHIVE else name)


def _word(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


# --- Which tables there are ----------------------------------------------------------------------


def find_tables(root: str) -> list[LakeTable]:
    """All tables below a root: a directory, or an object storage address."""
    from pyarrow import fs

    try:
        where, path = (
            fs.FileSystem.from_uri(root) if "://" in root else (fs.LocalFileSystem(), root)
        )
        found = [one for kind in KINDS for one in _tables_below(where, path, kind)]
    except (OSError, ValueError) as error:
        raise CliError(f"cannot look into {root}: {one_line(str(error))}") from None
    return [LakeTable(one, f"{root.rstrip('/')}/{one}") for one in found]


def _tables_below(where: Any, root: str, path: str) -> Iterator[str]:
    from pyarrow import fs

    entries = where.get_file_info(fs.FileSelector(f"{root}/{path}", allow_not_found=True))
    names = sorted(one.base_name for one in entries if one.type == fs.FileType.Directory)
    if _LOG in names:
        yield path
    for name in names:
        # Skip partitions of tables, and the pipelines' own files.
        if "=" not in name and not name.startswith("_"):
            yield from _tables_below(where, root, f"{path}/{name}")


def names_of(tables: list[LakeTable]) -> dict[str, LakeTable]:
    """The names usable in SQL without quotes, and the table of each."""
    names: dict[str, LakeTable] = {}
    for one in tables:
        # Only unique names: an ambiguous one refers to no table.
        if [other.word for other in tables].count(one.word) == 1:
            names[one.word] = one
    for kind in KINDS:
        of_kind = [one for one in tables if one.kind == kind]
        words = [one.last_word for one in of_kind]
        for one in of_kind:
            if words.count(one.last_word) == 1:
                names.setdefault(one.last_word, one)
    return names


def shortest_name(table: LakeTable, names: dict[str, LakeTable]) -> str:
    known = [name for name, one in names.items() if one == table]
    return min(known, key=len, default=f'"{table.path}"')


# --- Asking --------------------------------------------------------------------------------------


def ask(root: str, sql: str) -> pa.RecordBatchReader:
    """The answer to an SQL query."""
    first = re.match(r"[\s(]*([A-Za-z]*)", sql)
    if first is None or first[1].lower() not in _READING:
        raise usage(f"only questions are answered: {', '.join(sorted(_READING))}")
    # Names and errors are handled here; everything else is DuckDB's.
    import duckdb
    from deltalake import DeltaTable

    tables = find_tables(root)
    connection = duckdb.connect(":memory:", config=_SETTINGS)
    connection.execute("SET TimeZone = 'UTC'; SET lock_configuration = true")
    for name, table in _mentioned(sql, tables).items():
        connection.register(name, _dataset(DeltaTable(table.uri)))
    try:
        return connection.sql(sql).to_arrow_reader(_ROWS_IN_A_BATCH)
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        raise _refused(str(error), root, tables) from None
    except duckdb.Error as error:
        raise CliError(_told(str(error))) from None


def _dataset(table: DeltaTable) -> Any:
    """The files of a table, each with its partition values.

    Files record the minimum and maximum of some columns. For all others, deltalake would tell a
    filter that they lie between null and null, and it would find nothing.
    """
    import pyarrow.dataset as ds

    whole = table.to_pyarrow_dataset()
    fragments: list[Any] = []
    for one in whole.get_fragments():
        part = ds.scalar(True)
        for name, value in ds.get_partition_keys(one.partition_expression).items():
            part &= ds.field(name) == ds.scalar(value)
        fragments.append(whole.format.make_fragment(one.path, one.filesystem, part))
    return ds.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)


def rows_of(reader: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    """The rows of an answer, as they arrive."""
    try:
        for batch in reader:
            yield from zip(*map(_values, batch.columns), strict=True)
    except Exception as error:
        # Any error during a query is raised as a bare exception.
        raise CliError(one_line(str(error))) from None


def _values(column: pa.Array[Any]) -> list[Any]:
    """The values of a column. A sum of integers is an integer, however large."""
    from pyarrow import types

    values: list[Any] = column.to_pylist()
    if types.is_decimal(column.type) and column.type.scale == 0:
        return [None if one is None else int(one) for one in values]
    return values


def _mentioned(sql: str, tables: list[LakeTable]) -> dict[str, LakeTable]:
    """The tables that a query may use, by the names it uses for them."""
    names = names_of(tables)
    paths = {one.path: one for one in tables}
    found: dict[str, LakeTable] = {}
    for quoted, word in _WORD.findall(sql):
        table = paths.get(quoted) or names.get((quoted or word).lower())
        if table is not None:
            # Names that differ only by case are the same, and so are their tables.
            found[(quoted or word).lower()] = table
    return found


def _refused(why: str, root: str, tables: list[LakeTable]) -> CliError:
    unknown = _UNKNOWN_TABLE.search(why)
    if unknown is None:
        return usage(_told(why))
    if not tables:
        return no_tables(root)
    return CliError(
        f"there is no table {unknown[1]!r} in {root}; {_suggestion(unknown[1], tables)}",
        ExitCode.NOT_FOUND,
    )


def _told(why: str) -> str:
    """A DuckDB error in one line. Everything after an empty line only repeats the query."""
    return _ERROR_KIND.sub("", one_line(why.partition("\n\n")[0]))


def _suggestion(unknown: str, tables: list[LakeTable]) -> str:
    """The table that was probably meant, if one has a similar name."""
    names = names_of(tables)
    near = difflib.get_close_matches(unknown.lower(), [*names, *(one.path for one in tables)], n=1)
    if near:
        return f"did you mean {near[0] if near[0] in names else repr(near[0])}?"
    there = [shortest_name(one, names) for one in tables]
    more = len(there) - _NAMES_SHOWN_MAX
    listed = ", ".join(there[:_NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"there are: {listed}; `headwater sql` lists them"


def no_tables(root: str) -> CliError:
    return CliError(
        f"no tables in {root} yet: where pipelines run, the first batch is on its way; else see "
        "`headwater pipeline run --help`",
        ExitCode.NOT_FOUND,
    )
