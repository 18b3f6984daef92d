"""Tables that stay open from one batch to the next.

What such a table says may be out of date. A commit based on it is then refused, because it was made
from a version other than the latest: see `delta.commit_files`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from deltalake import DeltaTable

from pyspark_headwater.pipelines.upkeep import KEEP_REPLACED_H, commits_left, turn_of

OPEN_MAX: Final = 2_000


class OpenTable(DeltaTable):
    """A table that caches the notes of its commits.

    Looking up a number means reading the log since its last checkpoint; a batch for hundreds of
    streams would do that thousands of times.

    Attributes:
        tidied_at: its version when it was tidied last, or opened.
        turn: which of its commits it is tidied with.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.turn = turn_of(uri)
        self.tidied_at = self._noted_at = self.version()
        self._noted: dict[str, int | None] = {}

    def transaction_version(self, app_id: str) -> int | None:
        if self._noted_at != self.version():
            self._noted, self._noted_at = {}, self.version()
        if app_id not in self._noted:
            self._noted[app_id] = super().transaction_version(app_id)
        return self._noted[app_id]

    def follow(self, notes: Mapping[str, int]) -> None:
        """Catch up with the commits since, the first of which was made with these notes."""
        before = self.version()
        self.update_incremental()
        if self._noted_at == before and self.version() == before + 1:
            self._noted |= notes
            self._noted_at = self.version()


def open_table(uri: str) -> OpenTable | None:
    return OpenTable(uri) if DeltaTable.is_deltatable(uri) else None


class OpenTables:
    """The tables of a pipeline, by address.

    Attributes:
        keep_replaced_h: how long to keep files that are no longer part of a table, in hours.
        iceberg: whether tables are also published as Iceberg.
    """

    def __init__(self, keep_replaced_h: int = KEEP_REPLACED_H, *, iceberg: bool = False) -> None:
        self.keep_replaced_h = keep_replaced_h
        self.iceberg = iceberg
        self._known: OrderedDict[str, OpenTable] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, uri: str) -> OpenTable | None:
        with self._lock:
            found = self._known.get(uri)
        if found is None and (found := open_table(uri)) is not None:
            self.keep(uri, found)
        return found

    def keep(self, uri: str, table: OpenTable) -> None:
        with self._lock:
            self._known[uri] = table
            self._known.move_to_end(uri)
            if len(self._known) > OPEN_MAX:
                self._known.popitem(last=False)

    def commits_left(self) -> int | None:
        """How many more commits until the first table is tidied; None if none is open."""
        with self._lock:
            tables = [*self._known.values()]
        return min((commits_left(one.turn, one.version()) for one in tables), default=None)

    def forget(self) -> None:
        """Load all tables again."""
        with self._lock:
            self._known.clear()
