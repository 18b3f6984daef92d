"""Documents as rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from pycrdt import Doc, Text
from pyspark.sql import SparkSession

from headwater.core.documents.framing import frame
from pyspark_headwater.documents import read_documents
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def notes() -> Iterator[str]:
    with ServerProcess("--memory", "--documents") as server:
        yield server.url


def write(url: str, path: str, text: str) -> None:
    document = Doc({"content": Text(text)})
    address = f"{url}/v1/yjs/notes/docs/{path}"
    httpx.put(address).raise_for_status()
    httpx.post(address, content=frame(document.get_update())).raise_for_status()


def test_a_row_for_each_document(spark: SparkSession, notes: str) -> None:
    for path, text in {"plan": "tea", "team/plan": "milk", "gone": "no"}.items():
        write(notes, path, text)
    # What belongs to a document is not one, and other services have their own.
    httpx.put(f"{notes}/v1/yjs/notes/docs/plan?awareness=others").raise_for_status()
    httpx.put(f"{notes}/v1/yjs/other/docs/plan").raise_for_status()
    frame = read_documents(spark, notes, "notes")
    httpx.delete(f"{notes}/v1/yjs/notes/docs/gone").raise_for_status()
    rows = {row.document: row for row in frame.collect()}
    assert {path: json.loads(row.state)["content"] for path, row in rows.items()} == {
        "plan": "tea",
        "team/plan": "milk",
    }
    tail = httpx.head(f"{notes}/v1/yjs/notes/docs/plan").headers["stream-next-offset"]
    assert rows["plan"].offset == tail
    write(notes, "later", "rice")
    assert read_documents(spark, notes, "notes").count() == 3


def test_a_service_without_documents_has_no_rows(spark: SparkSession, notes: str) -> None:
    frame = read_documents(spark, notes, "nobody")
    assert frame.columns == ["document", "offset", "state"]
    assert frame.collect() == []
