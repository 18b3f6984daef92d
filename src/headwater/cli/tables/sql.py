"""`headwater sql`: SQL queries over the tables that pipelines made."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from headwater.cli.exits import CliError, one_line, usage
from headwater.cli.output import Json, console, new_table, stdout
from headwater.cli.shell import say
from headwater.cli.tables.lake import ask, find_tables, names_of, no_tables, rows_of, shortest_name

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN_MAX: Final = 1_000

Columns = list[tuple[str, bool]]
"""The names of columns, and whether they hold numbers."""

Row = tuple[Any, ...]


def sql(
    question: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="The query; without it, the tables are listed."),
    ] = None,
    root: Annotated[
        str,
        typer.Option(
            "--root",
            metavar="DIR",
            help="Where the tables are: a directory, or an address such as s3://lake.",
        ),
    ] = "lake",
    json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write CSV, with a header line.")] = False,
) -> None:
    """Query the tables that pipelines made, with SQL.

    Needs neither Spark nor Java, and answers at once. Name a table by the
    last part of its path (orders), by all of it (archive_shop_orders) or by
    the path itself in quotes ("archive/shop.orders").

    Examples:

      headwater sql
      headwater sql "SELECT date, count(*) FROM orders GROUP BY date"
      headwater sql "SELECT value->>'item' AS item FROM orders"
      headwater sql "SELECT * FROM customers WHERE key = 'c0007'" --json
      headwater sql "SELECT * FROM rollup ORDER BY window_start" --csv > rollup.csv
    """
    if json and as_csv:
        raise usage("use --json or --csv, not both")
    try:
        import deltalake  # noqa: F401 - before anything is said about tables
        import duckdb  # noqa: F401
    except ModuleNotFoundError as error:
        raise CliError(
            f"tables need the package {error.name}: pip install 'headwater[tables]'"
        ) from None
    if question is None:
        columns, rows = _listed(root)
    else:
        answer = ask(root, question)
        columns, rows = _columns(answer), rows_of(answer)
    if json:
        _write_json([name for name, _ in columns], rows)
    elif as_csv:
        _write_csv([name for name, _ in columns], rows)
    else:
        _write_table(columns, rows)


def _listed(root: str) -> tuple[Columns, Iterator[Row]]:
    """The tables themselves as rows."""
    tables = find_tables(root)
    if not tables:
        raise no_tables(root)
    names = names_of(tables)
    rows = ((shortest_name(one, names), one.path) for one in tables)
    return [("table", False), ("path", False)], rows


def _columns(answer: pa.RecordBatchReader) -> Columns:
    from pyarrow import types

    number = (types.is_integer, types.is_floating, types.is_decimal)
    return [(field.name, any(is_it(field.type) for is_it in number)) for field in answer.schema]


# --- Writing -------------------------------------------------------------------------------------


def _write_json(names: list[str], rows: Iterable[Row]) -> None:
    for row in rows:
        record = dict(zip(names, row, strict=True))
        stdout().write(msgspec.json.encode(record, enc_hook=str) + b"\n")
    stdout().flush()


def _write_csv(names: list[str], rows: Iterable[Row]) -> None:
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    for row in chain([names], rows):
        writer.writerow(map(_text, row))
        stdout().write(line.getvalue().encode())
        line.seek(0)
        line.truncate()
    stdout().flush()


def _write_table(columns: Columns, rows: Iterator[Row]) -> None:
    table = new_table()
    for name, is_number in columns:
        table.add_column(
            one_line(name),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    for row in islice(rows, ROWS_SHOWN_MAX):
        table.add_row(*(one_line(_text(value)) for value in row))
    console().print(table)
    if next(rows, None) is not None:
        say(f"only the first {ROWS_SHOWN_MAX:,} rows are shown; --json and --csv write all of them")


def _text(value: object) -> str:
    """A value for people and for CSV; missing values are empty."""
    match value:
        case None:
            return ""
        case datetime():
            precision = "milliseconds" if value.microsecond else "seconds"
            return value.replace(tzinfo=None).isoformat(" ", precision)
        case date():
            return value.isoformat()
        case bool():
            return "true" if value else "false"
        case dict() | list() | bytes():
            return msgspec.json.encode(value, enc_hook=str).decode()
        case _:
            return str(value)
