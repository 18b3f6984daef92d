"""A small world in which no wake may be missed, and the oracle that knows.

The oracle is a real database: tables in SQLite, queries in SQL. Everyone who holds a cursor has a
query. After each change every query is run again; whoever would now see something else must be
woken (or told that the cursor is stale) once everything committed has been derived and flushed.
A wake without such a change is a false one: allowed, and counted.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from headwater.core.live.encodings import Encoding, encode
from headwater.core.live.interest import Interest
from headwater.core.live.journal import Waiter
from headwater.core.live.keys import (
    KEY_ID_MASK,
    membership_key,
    projected_key,
    sorted_fields,
    table_key,
    template_id,
    template_key,
    watch_key,
)
from headwater.core.live.profile import TouchSettings
from headwater.core.live.records import check_records, read_records
from headwater.core.live.state import LiveState
from headwater.core.live.templates import TemplateRecord, TemplateSpec
from headwater.core.state_protocol import RawRecord

TABLES = ("ann", "bob")
COLUMNS: dict[str, Encoding] = {"t": "string", "n": "int64", "b": "bool", "note": "string"}
VALUES: dict[str, tuple[Any, ...]] = {
    "t": ("x", "y", "z", "w", None),
    "n": (1, 2, 3, 2**53 + 1),
    "b": (True, False),
    "note": ("", "hello", {"deep": [1, 2.5]}),
}
IDS = tuple("12345678")
SHAPES = (("t",), ("n",), ("t", "n"), ("b", "t"), ("b", "n", "t"))
Kind = Literal["table", "template", "watch", "membership", "projected"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """A query, and the keyset that stands for it."""

    table: str
    kind: Kind
    fields: tuple[str, ...]
    values: tuple[Any, ...]
    projected: str = "note"
    names_template: bool = True
    by_id: bool = False
    coarse: bool = False

    def sql(self) -> tuple[str, tuple[Any, ...]]:
        if self.kind in ("table", "template"):
            return f"SELECT * FROM {self.table} ORDER BY id", ()
        columns = {"watch": "*", "membership": "id", "projected": f"id, {self.projected}"}
        where = " AND ".join(f"{name} = ?" for name in self.fields)
        sql = f"SELECT {columns[self.kind]} FROM {self.table} WHERE {where} ORDER BY id"
        return sql, tuple(map(stored, self.values))

    @property
    def template(self) -> int:
        return template_id(self.table, self.fields)

    def keys(self) -> list[int] | None:
        """None if the values cannot be encoded: such a query has to wait on its table."""
        if self.kind == "table" or self.coarse:
            return [table_key(self.table)]
        if self.kind == "template":
            return [template_key(self.template)]
        by_name = dict(zip(self.fields, self.values, strict=True))
        encoded: list[bytes] = []
        for name in sorted_fields(self.fields):
            value = encode(json.dumps(by_name[name]).encode(), COLUMNS[name])
            if value is None:
                return None
            encoded.append(value)
        if self.kind == "watch":
            return [watch_key(self.template, encoded)]
        keys = [membership_key(self.template, encoded)]
        if self.kind == "projected":
            keys.append(projected_key(self.template, self.projected, encoded))
        return keys

    def interest(self) -> Interest:
        keys = self.keys() or [table_key(self.table)]
        templates = (self.template,) if self.names_template and self.kind != "table" else ()
        mode: Literal["fine", "coarse"] = "coarse" if self.coarse else "fine"
        if self.by_id:
            return Interest((), tuple(key & KEY_ID_MASK for key in keys), templates, mode)
        return Interest(tuple(keys), (), templates, mode)


@dataclass
class Holder:
    """Somebody who ran a query and has the cursor from before it."""

    query: Query
    cursor: str
    result: list[Any]
    must_wake: bool = False
    waiter: Waiter | None = None
    changes: list[str] = field(default_factory=list)


class Missed(AssertionError):
    pass


class World:
    def __init__(self, settings: TouchSettings, exact_keys_max: int = 65_536) -> None:
        self.settings = settings
        self.exact_keys_max = exact_keys_max
        self.now_ms = 1_000_000
        self.epochs = count(1)
        self.database = sqlite3.connect(":memory:")
        for table in TABLES:
            columns = ", ".join(COLUMNS)
            self.database.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, {columns})")
        self.rows: dict[tuple[str, str], Row] = {}
        self.backlog: list[RawRecord | None] = []
        self.holders: list[Holder] = []
        self.by_waiter: dict[Waiter, Holder] = {}
        self.stored: dict[int, TemplateRecord] = {}
        self.counts: Counter[str] = Counter()
        self.state = self._start()

    def _start(self) -> LiveState:
        epoch = f"{next(self.epochs):016x}"
        return LiveState(
            epoch, self.settings, self.stored.values(), exact_keys_max=self.exact_keys_max
        )

    # ── Changes ──────────────────────────────────────────────────────────────────────────────

    def change(self, table: str, key: str, new: Row | None, before: str) -> None:
        """Write a row or delete it (None). `before`: with, without, partial, upsert or null."""
        old = self.rows.get((table, key))
        if old is None and new is None:
            return
        self.database.execute(f"DELETE FROM {table} WHERE id = ?", (key,))
        if new is None:
            del self.rows[table, key]
        else:
            self.rows[table, key] = new
            values = (key, *(stored(new[name]) for name in COLUMNS))
            self.database.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", values)
        self._record(table, key, old, new, before)
        self._look_again(f"{table} {key}: {old} -> {new} ({before})")

    def _record(self, table: str, key: str, old: Row | None, new: Row | None, before: str) -> None:
        operation = "delete" if new is None else "insert" if old is None else "update"
        if before == "upsert" and operation != "delete":
            operation = "upsert"
        record: Row = {"type": table, "key": key, "headers": {"operation": operation}}
        if new is not None:
            record["value"] = {"id": key, **new}
        if old is not None and before in ("with", "upsert"):
            record["old_value"] = {"id": key, **old}
        elif old is not None and before == "partial":
            record["old_value"] = {"id": key, "t": old["t"]}
        elif before == "null":
            record["old_value"] = None
        stored_form = json.dumps(record).encode() + b","
        check_records(stored_form, "coarse")
        self.backlog += read_records(stored_form)
        self.counts["changes"] += 1

    def _look_again(self, change: str) -> None:
        for holder in self.holders:
            result = self._run(holder.query)
            if result != holder.result:
                holder.must_wake, holder.result = True, result
                holder.changes.append(change)

    def _run(self, query: Query) -> list[Any]:
        return self.database.execute(*query.sql()).fetchall()

    def reset(self) -> None:
        self.backlog += read_records(b'{"headers":{"control":"reset"}},')

    # ── The server ───────────────────────────────────────────────────────────────────────────

    def derive(self, at_most: int, pretended_lag: int = 0) -> None:
        batch, self.backlog = self.backlog[:at_most], self.backlog[at_most:]
        lag = len(self.backlog) + pretended_lag
        if self.state.derive(batch, lag, self.now_ms, self.now_ms):
            self._answered(self.state.restart(f"{next(self.epochs):016x}"), "stale")

    def flush(self, *, everything: bool = False) -> None:
        self._answered(self.state.flush(self.now_ms, everything=everything), "touched")

    def activate(self, table: str, shapes: Sequence[tuple[str, ...]], ttl_ms: int) -> None:
        self.flush(everything=True)
        specs = [
            TemplateSpec(table, tuple(names), tuple(COLUMNS[name] for name in names))
            for names in map(sorted_fields, shapes)
        ]
        outcome = self.state.activate(specs, ttl_ms, self.now_ms)
        active = self.state.book.active
        assert all(active[template.id] is template for template in outcome.activated)
        assert len(outcome.activated) + len(outcome.denied) >= len({s.id for s in specs})
        limits = self.settings.templates
        assert len(active) <= limits.max_active_templates_per_stream
        self._save()

    def collect(self) -> None:
        self.state.retire_inactive(self.now_ms)
        self._save()

    def _save(self) -> None:
        self.stored = {template.id: template.record() for template in self.state.book}

    def crash(self) -> None:
        """The journal is gone; who waited comes back with a cursor of the old epoch."""
        self.state = self._start()
        # A new journal begins at the tail of the stream.
        self.backlog = []
        for holder in self.holders:
            holder.waiter = None
        self.by_waiter.clear()

    # ── Who waits ────────────────────────────────────────────────────────────────────────────

    def hold(self, query: Query) -> None:
        """Take a cursor, then run the query."""
        self.holders.append(Holder(query, self.state.journal.cursor, self._run(query)))

    def wait(self, index: int) -> None:
        holder = self.holders[index % len(self.holders)]
        if holder.waiter is not None:
            return
        since = self.state.since(holder.cursor)
        if since is None:
            self._end(holder, "stale")
            return
        waiter = self.state.wait(holder.query.interest(), since, self.now_ms)
        if waiter is None:
            self._end(holder, "touched")
            return
        holder.waiter = waiter
        self.by_waiter[waiter] = holder
        self.state.journal.add(waiter)

    def time_out(self, index: int) -> None:
        """A wait ends without news; its client goes on from the cursor it is given."""
        holder = self.holders[index % len(self.holders)]
        if holder.waiter is None:
            return
        self.state.journal.remove(holder.waiter)
        del self.by_waiter[holder.waiter]
        holder.waiter, holder.cursor = None, self.state.journal.cursor

    def _answered(self, waiters: Sequence[Waiter], outcome: str) -> None:
        for waiter in waiters:
            holder = self.by_waiter.pop(waiter, None)
            if holder is not None:
                self.state.journal.remove(waiter)
                self._end(holder, outcome)

    def _end(self, holder: Holder, outcome: str) -> None:
        self.holders.remove(holder)
        if outcome == "stale":
            self.counts["stale"] += 1
        elif holder.must_wake:
            self.counts["right wakes"] += 1
        else:
            self.counts["false wakes"] += 1
            precise = holder.query.names_template and not holder.query.coarse
            self.counts[f"false wakes, {holder.query.kind}, named={precise}"] += 1

    def check(self) -> None:
        """Once everything committed is derived and flushed, nobody sleeps through a change."""
        self.derive(len(self.backlog))
        self.flush(everything=True)
        for index in reversed(range(len(self.holders))):
            self.wait(index)
        for holder in self.holders:
            if holder.must_wake:
                raise Missed(f"{holder.query} from {holder.cursor} slept through {holder.changes}")


def stored(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value
