"""Answers queries over tables for a server: a separate process for each query.

    {"root": "lake", "sql": "SELECT …"}  →  {"columns": […], "rows": […], "more": false}
    {"root": "lake"}                     →  {"tables": […]}

The query comes on stdin, the answer goes to stdout, and `{"refused": "why"}` says why there is
none. If a query exceeds its memory or time, this process ends, and the server does not.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.cli.exits import CliError
from headwater.cli.tables.lake import LakeTable, ask, find_tables, names_of, rows_of, shortest_name

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX: Final = 1_000
TABLES_MAX: Final = 200
CELL_CHARS_MAX: Final = 4_000
MEMORY_BYTES_MAX: Final = 2 * 1024**3
"""DuckDB would take most of the machine's memory, which the server's page cache needs."""
_TOO_LARGE: Final = (
    f"this needs more than {MEMORY_BYTES_MAX // 1024**3} GiB of memory; ask for less, or use "
    "`headwater sql`"
)
_EXACT_MAX: Final = 2**53
"""Larger integers would change in a browser."""


def main() -> None:
    _be_first_to_go()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = msgspec.json.decode(sys.stdin.buffer.read())
    try:
        answer = answer_to(question["root"], question.get("sql"))
    except CliError as error:
        is_large = error.message.startswith("Out of Memory")
        answer = {"refused": _TOO_LARGE if is_large else error.message}
    except MemoryError:
        answer = {"refused": _TOO_LARGE}
    except ModuleNotFoundError as error:
        why = f"tables need the package {error.name}: pip install 'headwater[tables]'"
        answer = {"refused": why}
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _be_first_to_go() -> None:
    """If memory runs out, the system should kill this process and not the server."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def answer_to(root: str, sql: str | None) -> dict[str, object]:
    import deltalake  # noqa: F401 - before anything is said about tables

    if sql is None:
        tables = find_tables(root)
        names = names_of(tables)
        return {"tables": [_described(one, names) for one in tables[:TABLES_MAX]]}
    reader = ask(root, sql)
    columns = [{"name": field.name, "kind": _kind(field.type)} for field in reader.schema]
    rows = rows_of(reader)
    shown = [[_plain(value) for value in row] for row in islice(rows, ROWS_MAX)]
    return {"columns": columns, "rows": shown, "more": next(rows, None) is not None}


def _described(table: LakeTable, names: dict[str, LakeTable]) -> dict[str, object]:
    """What the log of a table says, without reading its files."""
    import pyarrow as pa
    from deltalake import DeltaTable

    about: dict[str, object] = {"name": shortest_name(table, names), "path": table.path}
    found = DeltaTable(table.uri)
    parts = pa.table(found.get_add_actions(flatten=True)).to_pydict()
    history = found.history(1)
    return about | {
        "rows": sum(count or 0 for count in parts.get("num_records", [])),
        "size_bytes": sum(parts.get("size_bytes", [])),
        "version": found.version(),
        "changed": history[0].get("timestamp") if history else None,
    }


def _kind(of: pa.DataType) -> str:
    from pyarrow import types

    if types.is_integer(of) or types.is_floating(of) or types.is_decimal(of):
        return "number"
    if types.is_timestamp(of) or types.is_date(of):
        return "time"
    is_text = types.is_string(of) or types.is_large_string(of) or types.is_string_view(of)
    return "text" if is_text else "other"


def _plain(value: Any) -> Any:
    """A value as JSON, short enough to display."""
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) <= _EXACT_MAX else str(value)
        case float():
            return value if value - value == 0 else str(value)
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return float(value)
        case str():
            text = value
        case bytes():
            text = value.hex()
        case _:
            text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}…"


if __name__ == "__main__":
    main()
