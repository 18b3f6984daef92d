"""The Avro schemas of Iceberg's manifests, format version 2: the parts that we fill in."""

from __future__ import annotations

from typing import Any, Final

PARTITION_ID: Final = 1000
"""The id of the only partition field."""

_AVRO: Final[dict[str, Any]] = {"int": "int", "date": {"type": "int", "logicalType": "date"}}


def _field(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": number}


def _optional(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields]}


def _by_column(number: int, name: str, key: int) -> dict[str, Any]:
    """Bytes for some columns. Avro has no maps with numeric keys."""
    pair = _record(
        f"k{key}_v{key + 1}", _field(key, "key", "int"), _field(key + 1, "value", "bytes")
    )
    return _optional(number, name, {"type": "array", "items": pair, "logicalType": "map"})


def manifest_schema(partition: str, kind: str) -> dict[str, Any]:
    """The files of a part of a table."""
    data_file = _record(
        "r2",
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", _record("r102", _optional(PARTITION_ID, partition, _AVRO[kind]))),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _by_column(125, "lower_bounds", 126),
        _by_column(128, "upper_bounds", 129),
    )
    return _record(
        "manifest_entry",
        _field(0, "status", "int"),
        _optional(1, "snapshot_id", "long"),
        _optional(3, "sequence_number", "long"),
        _optional(4, "file_sequence_number", "long"),
        _field(2, "data_file", data_file),
    )


def manifest_list_schema() -> dict[str, Any]:
    """The manifests of a snapshot."""
    bounds = _record(
        "r508",
        _field(509, "contains_null", "boolean"),
        _optional(518, "contains_nan", "boolean"),
        _optional(510, "lower_bound", "bytes"),
        _optional(511, "upper_bound", "bytes"),
    )
    return _record(
        "manifest_file",
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
        {
            "name": "partitions",
            "type": ["null", {"type": "array", "items": bounds, "element-id": 508}],
            "default": None,
            "field-id": 507,
        },
    )
