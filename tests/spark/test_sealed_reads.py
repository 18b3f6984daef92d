"""History read from its files: the same rows as through the server, whatever befalls the files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.client.protocol.extensions import Range
from headwater.store.history.object_storage import Remote
from pyspark_headwater import sealed
from pyspark_headwater.errors import NotReadDirectly
from pyspark_headwater.options import SealedReads, read_options
from pyspark_headwater.planning import Planner, RangesPartition
from pyspark_headwater.reading import read_partition
from pyspark_headwater.wire import BEGINNING, Wire, close_wires, wire_to
from tests.support.object_storage import ObjectStorage
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import ServerProcess, free_port

JSON = {"Content-Type": "application/json"}
MODES: tuple[SealedReads, ...] = ("server", "auto", "direct")


class Place:
    """A server that seals at once, where its files go, and readers with and without them."""

    def __init__(self, server: ServerProcess, far: Path | None = None) -> None:
        self.url = server.url
        self.far = far
        self.http = httpx.Client(base_url=f"{server.url}/v1/stream", timeout=60)
        self._numbers = count()

    def close(self) -> None:
        self.http.close()

    def fill(self, name: str, *appends: Any, **headers: str) -> None:
        self.http.put(f"/{name}", headers=JSON | headers)
        self.append(name, *appends)

    def append(self, name: str, *appends: Any) -> None:
        for messages in appends:
            # Every other append has a producer.
            number = next(self._numbers)
            stamp = {"Producer-Id": f"p{number}", "Producer-Epoch": "1", "Producer-Seq": "0"}
            headers = stamp if number % 2 else {}
            answer = self.http.post(f"/{name}", json=messages, headers=headers)
            assert answer.status_code < 300, answer.text

    def wire(self) -> Wire:
        return wire_to(self.options("x", "auto").server)

    def pieces(self, name: str) -> list[Range]:
        return self.wire().pieces(name, BEGINNING, self.tail(name)).ranges

    def tail(self, name: str) -> str:
        return str(self.http.head(f"/{name}").headers["stream-next-offset"])

    def sealed(self, name: str, scheme: str = "file") -> list[Range]:
        """Wait until all of a stream is in files that can be reached that way."""
        while True:
            pieces = self.pieces(name)
            places = [piece.file.location or "" for piece in pieces if piece.file is not None]
            wanted = f"{scheme}:" if self.far is None else self.far.as_uri()
            if len(places) == len(pieces) and all(p.startswith(wanted) for p in places):
                return pieces

    def options(self, name: str, mode: SealedReads) -> Any:
        given = {
            "endpoint": self.url,
            "stream": name,
            "sealedReads": mode,
            "includeHeaders": "true",
            "retryTimeout": "5",
        }
        return read_options(given, "batch read")

    def partitions(self, name: str) -> list[RangesPartition]:
        planner = Planner(self.options(name, "auto"), self.wire())
        return planner.partitions({}, {name: self.tail(name)})

    def rows(
        self, name: str, mode: SealedReads, partitions: list[RangesPartition] | None = None
    ) -> list[Any]:
        options = self.options(name, mode)
        batches = [
            batch
            for partition in partitions or self.partitions(name)
            for batch in read_partition(options, partition, lambda _, rows: rows)
        ]
        found: list[Any] = pa.Table.from_batches(batches).to_pylist()
        return found


def path_of(piece: Range) -> Path:
    assert piece.file is not None
    assert piece.file.location is not None
    return Path(url2pathname(urlsplit(piece.file.location).path))


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    sealed._resting.clear()
    yield
    close_wires()


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Files beside the server."""
    data = tmp_path_factory.mktemp("near") / "data"
    with (
        ServerProcess("--data", str(data), *SEALING_AT_ONCE) as server,
        closing(Place(server)) as place,
    ):
        yield place


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Files in a directory that stands for object storage too."""
    directory = tmp_path_factory.mktemp("far")
    with (
        ServerProcess(
            *("--data", str(directory / "data"), *SEALING_AT_ONCE),
            *("--history-store", (directory / "far").as_uri()),
        ) as server,
        closing(Place(server, directory / "far")) as place,
    ):
        yield place


def test_rows_are_the_same_whichever_way_they_come(near: Place) -> None:
    near.fill("plain", [1, "zwei", {"n": [3, "x,y"]}], ["ü"], *[[n] for n in range(30)])
    near.sealed("plain")
    rows = [near.rows("plain", mode) for mode in MODES]
    assert [json.loads(row["value"]) for row in rows[0]] == [
        *(1, "zwei", {"n": [3, "x,y"]}, "ü"),
        *range(30),
    ]
    assert len({row["producer_id"] for row in rows[0]}) == 1 + 16
    assert rows[0] == rows[1] == rows[2]


def test_what_is_not_sealed_comes_from_the_server(
    near: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    near.fill("mixed", [1, 2], [3])
    near.sealed("mixed")
    pieces = Wire.pieces

    def partly(*arguments: Any) -> Any:
        """As if the newer half were not sealed yet."""
        found = pieces(*arguments)
        half = len(found.ranges) // 2
        rest = [Range(one.offset, one.until) for one in found.ranges[half:]]
        return type(found)([*found.ranges[:half], *rest], found.content_type)

    near.append("mixed", [4], [5, 6])
    near.sealed("mixed")
    monkeypatch.setattr(Wire, "pieces", partly)
    rows = [near.rows("mixed", mode) for mode in MODES]
    assert [row["value"] for row in rows[0]] == list("123456")
    assert rows[0] == rows[1] == rows[2]


def test_bytes(near: Place) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    near.http.put("/bytes", headers=headers)
    for body in (b"\x00\xff", b"more"):
        near.http.post("/bytes", content=body, headers=headers)
    near.sealed("bytes")
    rows = [near.rows("bytes", mode) for mode in MODES]
    assert [row["value"] for row in rows[0]] == [b"\x00\xff", b"more"]
    assert rows[0] == rows[1] == rows[2]


def test_forks(near: Place) -> None:
    near.fill("source", [1, 2, 3], [4])
    start = near.pieces("source")[0].offset
    part = {"Stream-Fork-Offset": start, "Stream-Fork-Sub-Offset": "2"}
    near.fill("a-fork", ["own"], ["more"], **{"Stream-Forked-From": "source"}, **part)
    near.fill("its-fork", ["last"], **{"Stream-Forked-From": "a-fork"})
    for name, values in {
        "a-fork": ["1", "2", '"own"', '"more"'],
        "its-fork": ["1", "2", '"own"', '"more"', '"last"'],
    }.items():
        near.sealed(name)
        rows = [near.rows(name, mode) for mode in MODES]
        assert [row["value"] for row in rows[0]] == values
        assert rows[0] == rows[1] == rows[2]
        assert len({(row["offset"], row["index"]) for row in rows[0]}) == len(values)


def test_a_task_that_is_run_again_has_the_same_rows(near: Place) -> None:
    near.fill("again", *[[n, n] for n in range(9)])
    tasks = near.partitions("again")
    before = near.rows("again", "auto", tasks)
    near.append("again", ["later"])
    near.sealed("again")
    for mode in MODES:
        assert near.rows("again", mode, tasks) == before


# ── Files that cannot be used ────────────────────────────────────────────────────────────────

Harm = Callable[[Path], object]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("harm", [Path.unlink, flip, shorten], ids=["gone", "flipped", "short"])
def test_a_file_that_cannot_be_used(far: Place, harm: Harm, request: Any) -> None:
    name = f"harm-{request.node.callspec.id}"
    far.fill(name, *[[n, n] for n in range(9)])
    # What the server has itself is whole; what it names for others is not.
    harm(path_of(far.sealed(name)[0]))
    wanted = far.rows(name, "server")
    assert far.rows(name, "auto") == wanted
    with pytest.raises(NotReadDirectly, match=f"cannot read '{name}' from .* by itself"):
        far.rows(name, "direct")


def test_damage_in_the_middle_of_a_file(far: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "_BLOCK_BYTES", 300_000)
    far.fill("middle", *[[n, "x" * 100_000] for n in range(9)])
    largest = max(map(path_of, far.sealed("middle")), key=lambda path: path.stat().st_size)
    wanted = far.rows("middle", "server")
    assert far.rows("middle", "direct") == wanted
    content = bytearray(largest.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    largest.write_bytes(content)
    assert far.rows("middle", "auto") == wanted


def test_a_file_that_goes_when_it_was_just_named(
    far: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.fill("just-gone", [1, 2], [3])
    far.sealed("just-gone")
    pieces = Wire.pieces

    def and_gone(*arguments: Any) -> Any:
        found = pieces(*arguments)
        for piece in found.ranges:
            path_of(piece).unlink(missing_ok=True)
        return found

    wanted = far.rows("just-gone", "server")
    monkeypatch.setattr(Wire, "pieces", and_gone)
    assert far.rows("just-gone", "auto") == wanted


def test_places_that_are_none(near: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    near.fill("places", [1], [2])
    near.sealed("places")
    wanted = near.rows("places", "server")
    pieces = Wire.pieces
    for location in (None, "http://127.0.0.1:1/segments/x", "file:///dev/null", "nonsense"):

        def elsewhere(*arguments: Any, place: str | None = location) -> Any:
            found = pieces(*arguments)
            for piece in found.ranges:
                if piece.file is not None:
                    msgspec.structs.force_setattr(piece.file, "location", place)
            return found

        monkeypatch.setattr(Wire, "pieces", elsewhere)
        assert near.rows("places", "auto") == wanted
        with pytest.raises(NotReadDirectly):
            near.rows("places", "direct")


# ── Object storage ───────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with ObjectStorage() as found:
        yield found


@pytest.fixture
def cloud(storage: ObjectStorage, tmp_path: Path) -> Iterator[Place]:
    """Files only in S3."""
    with (
        ServerProcess(
            *("--data", str(tmp_path / "data"), *SEALING_AT_ONCE),
            *("--history-store", f"{storage.url}/{tmp_path.name}"),
            *("--history-local-bytes-max", "0"),
            env=storage.environment,
        ) as server,
        closing(Place(server)) as place,
    ):
        yield place


def test_from_object_storage(
    cloud: Place, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed, "_BLOCK_BYTES", 500_000)
    cloud.fill("s3", *[[n, "x" * 90_000] for n in range(40)])
    pieces = cloud.sealed("s3", "s3")
    text = cloud.http.get("/s3/_segments", headers={"X-Forwarded-For": "192.0.2.7"}).text
    for piece in pieces:
        # Objects are for everyone who has credentials, which are not among what is told.
        assert piece.file is not None
        assert str(piece.file.location) in text
    assert not any(secret in text for secret in ("nobody", "nothing", str(storage.port)))
    wanted = cloud.rows("s3", "server")
    for name, value in storage.environment.items():
        monkeypatch.setenv(name, value)
    assert cloud.rows("s3", "direct") == cloud.rows("s3", "auto") == wanted


def test_object_storage_out_of_reach(
    cloud: Place, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.fill("away", [1, 2], [3])
    cloud.sealed("away", "s3")
    elsewhere = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    for name, value in (storage.environment | elsewhere).items():
        monkeypatch.setenv(name, value)
    wanted = cloud.rows("away", "server")
    assert cloud.rows("away", "auto") == wanted
    with pytest.raises(NotReadDirectly, match="could not be read a moment ago"):
        cloud.rows("away", "direct")


def test_a_location_holds_nothing_secret() -> None:
    class Known(Remote):
        def __init__(self, url: str) -> None:
            self.url = url

    assert (
        Known("s3://key:secret@bucket/a/b/?token=secret#secret").location("x.seg")
        == "s3://bucket/a/b/segments/x.seg"
    )
    assert Known("gs://bucket").location("x.seg") == "gs://bucket/segments/x.seg"


# ── In Spark ─────────────────────────────────────────────────────────────────────────────────


def test_in_spark(near: Place, spark: SparkSession) -> None:
    near.fill("spark", *[[{"n": n}, {"n": -n}] for n in range(50)])
    near.sealed("spark")

    def read(mode: str) -> list[Any]:
        options = {"endpoint": near.url, "stream": "spark", "sealedReads": mode}
        return sorted(spark.read.format("headwater").options(**options).load().collect())

    rows = read("server")
    assert len(rows) == 100
    assert read("direct") == read("auto") == rows
