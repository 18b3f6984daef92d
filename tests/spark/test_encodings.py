"""Avro and Protobuf as columns."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_headwater.avro import avro_records
from pyspark_headwater.encodings import Decoding
from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.options import Encoding, read_options
from pyspark_headwater.protobuf import protobuf_messages
from tests.spark.world import World

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {
        "name": "price",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    },
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
    {
        "name": "who",
        "type": {
            "type": "record",
            "name": "Who",
            "fields": [{"name": "id", "type": {"type": "string", "logicalType": "uuid"}}],
        },
    },
    {"name": "was", "type": "Kind"},
]
SCHEMA = {"type": "record", "name": "Click", "namespace": "shop", "fields": FIELDS}
WHO = "5f0c6c1e-3c40-4b92-a3c0-0a7c8e3a2d11"
RECORD = {
    "id": 2**40,
    "note": None,
    "at": AT,
    "price": Decimal("12.50"),
    "kind": "NEW",
    "tags": ["a", "b"],
    "counts": {"x": 1},
    "who": {"id": WHO},
    "was": "OLD",
}


def avro(record: dict[str, Any], schema: Any = SCHEMA) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), record)
    return body.getvalue()


def descriptors() -> str:
    """What protoc would write for a file with a message `shop.Click` and a message in it."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="click.proto", package="shop", syntax="proto3")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="OLD", number=1)
    who = file.message_type.add(name="Who")
    who.field.add(name="name", number=1, type=9, label=1)
    click = file.message_type.add(name="Click")
    click.field.add(name="id", number=1, type=4, label=1)
    click.field.add(name="page", number=2, type=9, label=1)
    click.field.add(name="kind", number=3, type=14, label=1, type_name=".shop.Kind")
    click.field.add(name="tags", number=4, type=9, label=3)
    click.field.add(name="who", number=5, type=11, label=1, type_name=".shop.Who")
    click.field.add(name="data", number=6, type=12, label=1)
    return base64.b64encode(files.SerializeToString()).decode()


def click(**fields: Any) -> bytes:
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(descriptors()))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Click"))
    return bytes(kind(**fields).SerializeToString())


def test_records_of_avro_are_columns(spark: SparkSession, world: World, tmp_path: Path) -> None:
    stream = world.stream("events", content_type="application/octet-stream")
    stream.append(avro(RECORD))
    stream.append(avro({**RECORD, "id": 2, "note": "hi"}))
    (tmp_path / "click.avsc").write_text(json.dumps(SCHEMA))
    for schema in (json.dumps(SCHEMA), str(tmp_path / "click.avsc")):
        frame = world.batch(spark, valueFormat="avro", valueSchema=schema)
        first, second = frame.sort("_offset").collect()
        assert (first.id, first.note, second.id, second.note) == (2**40, None, 2, "hi")
        assert (first.at.timestamp(), first.price) == (AT.timestamp(), Decimal("12.50"))
        assert (first.kind, first.was, first.tags, first.counts) == (
            "NEW",
            "OLD",
            ["a", "b"],
            {"x": 1},
        )
        assert (first.who.id, first._stream) == (WHO, world.name())


def test_messages_of_protobuf_are_columns(spark: SparkSession, world: World) -> None:
    stream = world.stream("events", content_type="application/x-protobuf")
    stream.append(
        click(id=2**63, page="/", kind="OLD", tags=["a"], who={"name": "Ada"}, data=b"\0")
    )
    stream.append(click(page="/empty"))
    options = {
        "valueFormat": "protobuf",
        "valueSchema": descriptors(),
        "valueMessage": "shop.Click",
    }
    full, empty = world.batch(spark, **options).sort("_offset").collect()
    assert (full.id, full.page, full.kind, full.tags) == (Decimal(2**63), "/", "OLD", ["a"])
    assert (full.who.name, bytes(full.data)) == ("Ada", b"\0")
    assert (empty.id, empty.kind, empty.tags, empty.who) == (Decimal(0), "NEW", [], None)


def test_what_does_not_fit_is_named_kept_apart_or_left_out(
    spark: SparkSession, world: World
) -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "string"}]}
    stream = world.stream("events", content_type="application/octet-stream")
    for body in (avro({"n": "good"}, schema), b"\xff\xff\xff", avro({"n": "x"}, schema) + b"!"):
        stream.append(body)
    options = {"valueFormat": "avro", "valueSchema": json.dumps(schema)}
    with pytest.raises(PySparkException, match="does not fit valueSchema"):
        world.batch(spark, **options).collect()
    apart = world.batch(spark, **options, mode="PERMISSIVE").sort("_offset").collect()
    assert [(row.n, row._corrupt) for row in apart] == [
        ("good", None),
        (None, "ffffff"),
        (None, "027821"),
    ]
    left = world.batch(spark, **options, mode="DROPMALFORMED").collect()
    assert [row.n for row in left] == ["good"]


def _record(kind: object) -> str:
    fields = [{"name": "n", "type": kind}]
    return json.dumps({"type": "record", "name": "N", "fields": fields})


@pytest.mark.parametrize(
    "schema, said",
    [
        ("{", "no Avro schema"),
        ('{"type": "record"}', "no Avro schema"),
        ('"string"', "schema of a record"),
        (_record(["int", "string"]), "union of several types"),
        (_record("nothing"), "unknown type"),
        (_record(["null", "N"]), "a record inside itself"),
    ],
)
def test_schemas_of_avro_that_make_no_columns(schema: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        avro_records(schema)


def test_descriptors_that_make_no_columns(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="valueMessage must name one of"):
        protobuf_messages(descriptors(), None)
    with pytest.raises(InvalidOption, match="has no message"):
        protobuf_messages(descriptors(), "shop.Clack")
    with pytest.raises(InvalidOption, match="no set of descriptors"):
        protobuf_messages(base64.b64encode(b"\xff\xff").decode(), None)
    with pytest.raises(InvalidOption, match="No such file"):
        Decoding.of(Encoding("protobuf", str(tmp_path / "none.desc"), None))


@pytest.mark.parametrize(
    "options, said",
    [
        ({"valueFormat": "avro"}, "goes with"),
        ({"valueSchema": "{}"}, "goes with"),
        ({"valueFormat": "avro", "valueSchema": "{}", "valueMessage": "a"}, "is for valueFormat"),
        ({"valueFormat": "xml"}, "json or avro or protobuf"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        read_options({"stream": "a", **options}, "batch read")


def test_columns_that_the_schema_does_not_have(spark: SparkSession, world: World) -> None:
    world.stream("events", content_type="application/octet-stream").append(avro(RECORD))
    options = world.options(valueFormat="avro", valueSchema=json.dumps(SCHEMA))
    reader = spark.read.format("headwater").options(**options)
    with pytest.raises(PySparkException, match="the column id is a bigint in valueSchema"):
        reader.schema("id string").load().collect()
    rows = reader.schema("id long, _offset string").load().collect()
    assert [row.id for row in rows] == [2**40]
