"""The same tables as Iceberg: metadata written for Delta's files after each commit. No Spark.

The Delta table is authoritative. Its version 7 is described by `v7.metadata.json`, below
`_iceberg/metadata` in its directory: a snapshot of the same files; nothing is copied. If a process
dies between the two, readers of Iceberg see the version before, and the next commit catches up. Two
writers cannot disagree, since the metadata follows from the version alone.

There is a manifest for each part of a table, named after the files in it, and an unchanged one is
reused. So the cost of a commit depends on what changed, however long the table is. Files carry no
column ids; a name mapping identifies the columns. A column with a new type is a new column to
Iceberg, and by then no file has the old one.

The newest snapshots stay, as do all files that they reference; `sweep` removes the rest.
"""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final

import fastavro
import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

from pyspark_headwater.pipelines.avro_schemas import (
    PARTITION_ID,
    manifest_list_schema,
    manifest_schema,
)
from pyspark_headwater.pipelines.parquet import filesystem

DIRECTORY: Final = "_iceberg"
"""Where the metadata is. Delta ignores names that begin with an underscore."""
SNAPSHOTS_KEPT: Final = 100
_HINT: Final = "version-hint.text"
_TYPES: Final = {"integer": "int", "timestamp": "timestamptz"}
"""Types with a different name in Iceberg."""
_EPOCH: Final = date(1970, 1, 1)
_EXISTING, _ADDED = 0, 1

Json = dict[str, Any]


def publish(table: DeltaTable, partition: str, clustered: str) -> None:
    """Publish the current version of a table as Iceberg, unless that is done."""
    home = Home(table.table_uri)
    version = table.version()
    before = home.current()
    if before is not None and before["headwater-version"] >= version:
        return
    schema = _schema(table, before)
    writing = _Writing(home, schema, partition, clustered, version + 1)
    listed = {} if before is None else home.manifests(before)
    manifests = writing.manifests(table, listed)
    new = [one for one in manifests if one["added_snapshot_id"] == version + 1]
    added = sum(one["added_files_count"] for one in new)
    is_append = _files_in(listed.values()) + added == _files_in(manifests)
    listing = f"snap-{version + 1}.avro"
    home.write_avro(listing, manifest_list_schema(), manifests, {"snapshot-id": str(version + 1)})
    now_ms = time.time_ns() // 1_000_000
    snapshot = {
        "snapshot-id": version + 1,
        "sequence-number": version + 1,
        "timestamp-ms": now_ms,
        "manifest-list": f"{home.metadata}/{listing}",
        "summary": {
            "operation": "append" if is_append else "overwrite",
            "added-data-files": str(added),
            "delta-version": str(version),
        },
        "schema-id": schema["schema-id"],
    }
    if before is not None:
        snapshot["parent-snapshot-id"] = before["current-snapshot-id"]
    home.commit(version, _metadata(table, home, before, schema, partition, snapshot))


# --- Where it is ---------------------------------------------------------------------------------


class Home:
    """The metadata of one table."""

    def __init__(self, uri: str) -> None:
        plain = uri.removeprefix("file://")
        self.table = uri.rstrip("/") if "://" in plain else os.path.abspath(plain)
        self.location = posixpath.join(self.table, DIRECTORY)
        self.metadata = f"{self.location}/metadata"
        self._filesystem, self._path = filesystem(self.metadata)

    def current(self) -> Json | None:
        """The newest metadata, if any was made for this location."""
        hint = self._read(_HINT)
        text = None if hint is None else self._read(f"v{int(hint)}.metadata.json")
        if hint is None or text is None:
            return None
        found: Json = msgspec.json.decode(text)
        # A table that was moved starts over: all paths in its metadata point to the old location.
        return (
            {**found, "headwater-version": int(hint)}
            if found["location"] == self.location
            else None
        )

    def manifests(self, metadata: Json) -> dict[str, Json]:
        """The manifests of the current snapshot, by name."""
        return {_name(one["manifest_path"]): one for one in self.listed(metadata["snapshots"][-1])}

    def listed(self, snapshot: Json) -> list[Json]:
        return self.read_avro(_name(snapshot["manifest-list"]))

    def commit(self, version: int, metadata: Json) -> None:
        self._write(f"v{version}.metadata.json", msgspec.json.encode(metadata))
        self._write(_HINT, str(version).encode())

    def read_avro(self, name: str) -> list[Json]:
        text = self._read(name)
        assert text is not None, f"{self.metadata}/{name} is gone"
        return [one for one in fastavro.reader(io.BytesIO(text)) if isinstance(one, dict)]

    def write_avro(
        self, name: str, schema: Json, records: Sequence[Json], about: Mapping[str, str]
    ) -> int:
        file = io.BytesIO()
        about = {"format-version": "2", **about}
        fastavro.writer(file, schema, records, codec="deflate", metadata=dict(about))
        self._write(name, file.getvalue())
        return file.tell()

    def sweep(self, older_than_h: float) -> None:
        """Remove files that no snapshot references any more."""
        current = self.current()
        if current is None:
            return
        kept = {_HINT, *(_name(one["metadata-file"]) for one in current["metadata-log"])}
        kept.add(f"v{current['headwater-version']}.metadata.json")
        for snapshot in current["snapshots"]:
            kept.add(_name(snapshot["manifest-list"]))
            kept |= {_name(one["manifest_path"]) for one in self.listed(snapshot)}
        until = time.time() - older_than_h * 3600
        for info in self._filesystem.get_file_info(fs.FileSelector(self._path)):
            if info.base_name not in kept and info.mtime.timestamp() < until:
                self._filesystem.delete_file(info.path)

    def _read(self, name: str) -> bytes | None:
        path = f"{self._path}/{name}"
        if self._filesystem.get_file_info(path).type != fs.FileType.File:
            return None
        with self._filesystem.open_input_stream(path) as file:
            return bytes(file.read())

    def _write(self, name: str, content: bytes) -> None:
        """Write a file atomically."""
        self._filesystem.create_dir(self._path)
        is_local = isinstance(self._filesystem, fs.LocalFileSystem)
        path = f"{self._path}/{name}"
        draft = f"{path}.{time.time_ns():x}" if is_local else path
        with self._filesystem.open_output_stream(draft) as file:
            file.write(content)
        if is_local:
            os.replace(draft, path)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


# --- Columns -------------------------------------------------------------------------------------


def _schema(table: DeltaTable, before: Json | None) -> Json:
    """The columns, each with its previous id if it is the same."""
    had = [] if before is None else before["schemas"]
    known = {(one["name"], one["type"]): one["id"] for one in (had[-1]["fields"] if had else ())}
    last = 0 if before is None else before["last-column-id"]
    fields: list[Json] = []
    for one in msgspec.json.decode(table.schema().to_json())["fields"]:
        kind = _TYPES.get(one["type"], one["type"])
        number = known.get((one["name"], kind))
        if number is None:
            number = last = last + 1
        fields.append({"id": number, "name": one["name"], "required": False, "type": kind})
    if had and had[-1]["fields"] == fields:
        return dict(had[-1])
    return {"type": "struct", "schema-id": len(had), "fields": fields}


def _metadata(
    table: DeltaTable, home: Home, before: Json | None, schema: Json, partition: str, snapshot: Json
) -> Json:
    schemas = [] if before is None else before["schemas"]
    if schema not in schemas:
        schemas = [*schemas, schema]
    snapshots = [] if before is None else before["snapshots"]
    snapshots = [*snapshots, snapshot][-SNAPSHOTS_KEPT:]
    log = [] if before is None else before["metadata-log"]
    if before is not None:
        name = f"{home.metadata}/v{before['headwater-version']}.metadata.json"
        log = [*log, {"metadata-file": name, "timestamp-ms": before["last-updated-ms"]}]
    mapping = [{"field-id": one["id"], "names": [one["name"]]} for one in schema["fields"]]
    return {
        "format-version": 2,
        "table-uuid": str(table.metadata().id),
        "location": home.location,
        "last-sequence-number": snapshot["sequence-number"],
        "last-updated-ms": snapshot["timestamp-ms"],
        "last-column-id": max(one["id"] for it in schemas for one in it["fields"]),
        "schemas": schemas,
        "current-schema-id": schema["schema-id"],
        "partition-specs": [{"spec-id": 0, "fields": _partitioning(schema, partition)}],
        "default-spec-id": 0,
        "last-partition-id": PARTITION_ID,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {"schema.name-mapping.default": msgspec.json.encode(mapping).decode()},
        "current-snapshot-id": snapshot["snapshot-id"],
        "refs": {"main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}},
        "snapshots": snapshots,
        "snapshot-log": [
            {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]}
            for one in snapshots
        ],
        "metadata-log": log[-SNAPSHOTS_KEPT:],
    }


def _partitioning(schema: Json, partition: str) -> list[Json]:
    (source,) = [one["id"] for one in schema["fields"] if one["name"] == partition]
    return [
        {
            "name": partition,
            "transform": "identity",
            "source-id": source,
            "field-id": PARTITION_ID,
        }
    ]


# --- Files ---------------------------------------------------------------------------------------


class _Writing:
    """The manifests of one snapshot."""

    def __init__(
        self, home: Home, schema: Json, partition: str, clustered: str, snapshot: int
    ) -> None:
        self._home = home
        self._schema = schema
        self._partition = partition
        self._clustered = clustered
        self._snapshot = snapshot
        fields = {one["name"]: one for one in schema["fields"]}
        self._type = fields[partition]["type"]
        self._clustered_id = fields[clustered]["id"] if clustered in fields else None

    def manifests(self, table: DeltaTable, before: Mapping[str, Json]) -> list[Json]:
        """A manifest for each part: the previous snapshot's, if none of its files has changed."""
        parts: dict[str, list[Json]] = {}
        for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            parts.setdefault(str(row[f"partition.{self._partition}"]), []).append(row)
        return [
            before.get(name) or self._manifest(name, part, rows, before)
            for part, rows in sorted(parts.items())
            for name in [f"{part}-{_digest(rows)}.avro"]
        ]

    def _manifest(
        self, name: str, part: str, rows: Sequence[Json], before: Mapping[str, Json]
    ) -> Json:
        known = {
            entry["data_file"]["file_path"]: entry
            for other in before
            if other.rpartition("-")[0] == part
            for entry in self._home.read_avro(other)
        }
        entries = [self._entry(row, known) for row in rows]
        spec = _partitioning(self._schema, self._partition)
        about = {
            "schema": msgspec.json.encode(self._schema).decode(),
            "schema-id": str(self._schema["schema-id"]),
            "partition-spec": msgspec.json.encode(spec).decode(),
            "partition-spec-id": "0",
            "content": "data",
        }
        schema = manifest_schema(self._partition, self._type)
        length = self._home.write_avro(name, schema, entries, about)
        value = _bound(self._value(part))
        counts = {
            kind: [e["data_file"]["record_count"] for e in entries if e["status"] == status]
            for kind, status in (("added", _ADDED), ("existing", _EXISTING))
        }
        return {
            "manifest_path": f"{self._home.metadata}/{name}",
            "manifest_length": length,
            "partition_spec_id": 0,
            "content": 0,
            "sequence_number": self._snapshot,
            "min_sequence_number": min(one["sequence_number"] for one in entries),
            "added_snapshot_id": self._snapshot,
            "added_files_count": len(counts["added"]),
            "existing_files_count": len(counts["existing"]),
            "deleted_files_count": 0,
            "added_rows_count": sum(counts["added"]),
            "existing_rows_count": sum(counts["existing"]),
            "deleted_rows_count": 0,
            "partitions": [{"contains_null": False, "lower_bound": value, "upper_bound": value}],
        }

    def _entry(self, row: Json, known: Mapping[str, Json]) -> Json:
        path = posixpath.join(self._home.table, row["path"])
        if path in known:
            return {**known[path], "status": _EXISTING}
        low, high = row.get(f"min.{self._clustered}"), row.get(f"max.{self._clustered}")
        has_bounds = isinstance(low, str) and isinstance(high, str)
        return {
            "status": _ADDED,
            "snapshot_id": self._snapshot,
            "sequence_number": self._snapshot,
            "file_sequence_number": self._snapshot,
            "data_file": {
                "content": 0,
                "file_path": path,
                "file_format": "PARQUET",
                "partition": {self._partition: self._value(row[f"partition.{self._partition}"])},
                "record_count": row["num_records"],
                "file_size_in_bytes": row["size_bytes"],
                "lower_bounds": self._bounds(low) if has_bounds else None,
                "upper_bounds": self._bounds(high) if has_bounds else None,
            },
        }

    def _bounds(self, text: Any) -> list[Json]:
        return [{"key": self._clustered_id, "value": text.encode()}]

    def _value(self, part: Any) -> int:
        """The value of a partition, as Iceberg stores it: a number, or the days since 1970."""
        if self._type != "date":
            return int(part)
        return ((part if isinstance(part, date) else date.fromisoformat(part)) - _EPOCH).days


def _digest(rows: Sequence[Json]) -> str:
    paths = "\n".join(sorted(row["path"] for row in rows))
    return hashlib.sha256(paths.encode()).hexdigest()[:32]


def _bound(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _files_in(manifests: Iterable[Json]) -> int:
    return sum(one["added_files_count"] + one["existing_files_count"] for one in manifests)
