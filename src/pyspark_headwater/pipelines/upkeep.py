"""Table maintenance: keeps tables fast, however many small batches they consist of. No Spark.

* **Few files.** A part of an archive with many small files has them made into few large ones. Large
  files are left alone, so every row is rewritten a bounded number of times.
* **Little rubbish.** A file that was replaced is kept for a while, for those who are still reading
  it, and then removed; so are the entries of the log that nobody needs any more.
* **A short log.** Every twenty commits the state of a table is written down, and a reader begins
  there. What was replaced long ago is not mentioned in it any more, and nobody would ever remove
  it: so it is written down right after that was removed, and never in passing. Tables take turns,
  so that no batch has to do it for all of them.

All of it is done by the pipeline that writes the table, between batches.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

KEEP_REPLACED_H: Final = 1
COMPACT_AFTER_FILES: Final = 64
COMPACT_PAST_AFTER_FILES: Final = 2
"""The same for all days but the last, which grow little: a query opens each of their files."""
SMALL_BYTES: Final = 32 * 2**20
TARGET_BYTES: Final = 128 * 2**20
TIDY_EVERY: Final = 20
_NEVER: Final = 1_000_000
_MARGIN_MIN: Final = 1
"""How much longer than a file its log entry is kept: removing many files takes a while."""


def properties(keep_replaced_h: int) -> dict[str, str | None]:
    """The maintenance settings of a table."""
    mentioned_min = keep_replaced_h * 60 + _MARGIN_MIN
    return {
        "delta.checkpointInterval": str(_NEVER),
        "delta.deletedFileRetentionDuration": f"interval {mentioned_min} minutes",
        "delta.logRetentionDuration": f"interval {keep_replaced_h} hours",
    }


def turn_of(uri: str) -> int:
    """The turn of a table among others that are tidied equally often.

    Tables that start together also grow together. Without turns, one batch in twenty would tidy all
    of them.
    """
    return zlib.crc32(uri.encode())


def is_due(turn: int, before: int, now: int) -> bool:
    """Whether a table has to be tidied after going from one version to another."""
    return (turn + before) // TIDY_EVERY != (turn + now) // TIDY_EVERY


def commits_left(turn: int, version: int) -> int:
    """How many more commits until a table is tidied."""
    return TIDY_EVERY - (turn + version) % TIDY_EVERY


def tidy(table: DeltaTable, keep_replaced_h: int) -> None:
    """Remove what was replaced long enough ago, and write a checkpoint."""
    # A retention of less than a week is deliberate.
    table.vacuum(keep_replaced_h, dry_run=False, enforce_retention_duration=False)
    wanted = properties(keep_replaced_h)
    if wanted.items() - table.metadata().configuration.items():
        # Afterwards: the log may immediately drop what the new setting no longer requires.
        table.alter.set_table_properties({name: value or "" for name, value in wanted.items()})
    table.update_incremental()
    table.create_checkpoint()
    table.cleanup_metadata()


def compact(table: DeltaTable, partition: str) -> None:
    """Merge small files, in those parts of a table that have many."""
    small: dict[str, int] = {}
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        part = str(row[f"partition.{partition}"])
        small[part] = small.get(part, 0) + (row["size_bytes"] < SMALL_BYTES)
    last = max(small, default="")
    most = dict.fromkeys(small, COMPACT_PAST_AFTER_FILES) | {last: COMPACT_AFTER_FILES}
    full = sorted(part for part, count in small.items() if count >= most[part])
    if not full:
        return
    chosen: list[tuple[str, str, Any]] = [(partition, "in", full)]
    # If another writer is faster, the next time is as good.
    with suppress(CommitFailedError):
        table.optimize.compact(partition_filters=chosen, target_size=TARGET_BYTES)
    table.update_incremental()
