"""History in object storage: read through any node, and its owner does not hear of it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import httpx
import pytest

from tests.support.cluster import PATIENCE_S, SHORT_LEASE_MS, Cluster, until
from tests.support.postgresql import databases
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import ServerProcess

TEXT: Final = {"Content-Type": "text/plain"}
JSON: Final = {"Content-Type": "application/json"}
CHUNK_BYTES: Final = 50_000
FIGURES: Final = ("forwarded", "received", "history_reads")
OF_EACH_ANSWER: Final = ("date", "x-request-id")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    arguments = (
        *("--history-store", (directory / "objects").as_uri(), *SEALING_AT_ONCE),
        *("--hot-bytes-per-stream-max", "0", "--chunk-bytes-max", str(CHUNK_BYTES)),
    )
    with databases() as database:
        cluster = Cluster(database, *arguments, nodes=2, lease_ms=SHORT_LEASE_MS)
        for number, node in enumerate(cluster.nodes):
            node.args += ("--data", str(directory / str(number)))
        with cluster:
            yield cluster


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


class Stream:
    """A stream, its owner, and the node that is asked in its place."""

    def __init__(
        self, client: httpx.Client, cluster: Cluster, path: str, headers: dict[str, str]
    ) -> None:
        self._client = client
        self._cluster = cluster
        self.path = path
        self._headers = headers
        self.random = Random(path)
        self.create()
        self.owner = cluster.owner_of(path)
        (self.other,) = cluster.others(self.owner)

    def create(self, **headers: str) -> None:
        node = self._cluster.any()
        answer = self._client.put(node.stream_url(self.path), headers=self._headers | headers)
        assert answer.status_code in (200, 201), answer.text

    def append(self, body: bytes, **headers: str) -> None:
        url = self.owner.stream_url(self.path)
        answer = self._client.post(url, content=body, headers=self._headers | headers)
        assert answer.status_code == 204, answer.text

    def fill(self, count: int, size: int) -> None:
        for _ in range(count):
            self.append(self.body(self.random.randint(1, size)))

    def body(self, size: int) -> bytes:
        text = b"%x" % self.random.getrandbits(4 * size)
        return b'{"text":"%b"}' % text if self._headers is JSON else text

    def sealed(self) -> None:
        """Wait until nothing of it is in rows."""
        sql = (
            "SELECT 1 FROM ops JOIN streams s ON s.id = stream_id"
            f" WHERE s.path = '{self.path}' AND s.status < 2 LIMIT 1"
        )
        until(lambda: self._cluster.database.query(sql) == [])

    def get(self, node: ServerProcess, offset: str, **headers: str) -> httpx.Response:
        """The answer, with its body as it was sent."""
        headers = {"Accept-Encoding": "identity"} | headers
        url, params = node.stream_url(self.path), {"offset": offset}
        with self._client.stream("GET", url, params=params, headers=headers) as answer:
            answer._content = b"".join(answer.iter_raw())
        return answer

    def offsets(self) -> list[str]:
        """Where each chunk begins, and where the stream ends."""
        found = ["-1"]
        while True:
            answer = self.get(self.owner, found[-1])
            assert answer.status_code == 200, answer.text
            found.append(answer.headers["Stream-Next-Offset"])
            if "Stream-Up-To-Date" in answer.headers:
                return found

    def same(self, offset: str, **headers: str) -> httpx.Response:
        """The answer of both nodes."""
        answers = [self.get(node, offset, **headers) for node in (self.owner, self.other)]
        owners, others = answers
        assert owners.status_code == others.status_code
        assert _headers(owners) == _headers(others)
        assert owners.content == others.content
        return others

    def figures(self) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(self._figure(node, name) for node in (self.owner, self.other))
            for name in FIGURES
        }

    def _figure(self, node: ServerProcess, name: str) -> int:
        lines = self._client.get(f"{node.url}/metrics").text.splitlines()
        wanted = f"headwater_cluster_{name}_total "
        return next(int(float(line.split()[1])) for line in lines if line.startswith(wanted))


def _headers(answer: httpx.Response) -> list[tuple[str, str]]:
    return sorted((k, v) for k, v in answer.headers.items() if k not in OF_EACH_ANSWER)


def _changes(
    before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(now - then for now, then in zip(after[name], before[name], strict=True))
        for name in after
    }


@pytest.mark.parametrize(
    "path, headers, count, size",
    [("small", JSON, 400, 1_000), ("large", TEXT, 12, 90_000), ("text", TEXT, 300, 2_000)],
)
def test_both_nodes_answer_alike_and_the_owner_is_not_asked(
    client: httpx.Client,
    cluster: Cluster,
    path: str,
    headers: dict[str, str],
    count: int,
    size: int,
) -> None:
    stream = Stream(client, cluster, path, headers)
    stream.fill(count, size)
    stream.sealed()
    *begins, last, end = stream.offsets()
    assert len(begins) >= 3
    before = stream.figures()
    asked = 0
    for offset in (*begins, *begins):
        tag = stream.same(offset).headers["ETag"]
        assert stream.same(offset, **{"If-None-Match": tag}).status_code == 304
        assert stream.same(offset, **{"If-None-Match": '"another"'}).status_code == 200
        assert stream.same(offset, **{"Accept-Encoding": "gzip"}).status_code == 200
        asked += 4
    changes = _changes(before, stream.figures())
    assert changes == {"forwarded": (0, 0), "received": (0, 0), "history_reads": (0, asked)}
    assert "immutable" in stream.same(begins[1]).headers["Cache-Control"]
    # What only the owner can say is asked of it.
    assert "Stream-Up-To-Date" in stream.same(last).headers
    assert stream.same(end).headers["Cache-Control"] == "no-cache"
    assert stream.same("now").status_code == 200
    for nonsense in ("nonsense", "0000000000099999_0000000000000100", begins[1][:-1] + "x"):
        assert stream.same(nonsense).status_code == 400
    run, _, position = begins[1].partition("_")
    for inside in (int(position) + 1, int(position) - 1):
        assert stream.same(f"{run}_{inside:016d}").status_code == 200
    changes = _changes(before, stream.figures())
    assert changes["history_reads"] == (0, asked + 1)
    assert changes["forwarded"][1] == changes["received"][0] > 0


def test_what_is_written_meanwhile_is_seen_through_both(
    client: httpx.Client, cluster: Cluster
) -> None:
    stream = Stream(client, cluster, "growing", TEXT)
    content = b""
    for _ in range(40):
        body = stream.body(stream.random.randint(1, 8_000))
        stream.append(body)
        content += body
        read, offset = b"", "-1"
        while True:
            answer = stream.get(stream.other, offset)
            assert answer.status_code == 200, answer.text
            read += answer.content
            offset = answer.headers["Stream-Next-Offset"]
            if "Stream-Up-To-Date" in answer.headers:
                break
        assert read == content


def test_deleted_made_again_and_trimmed_is_seen_at_once(
    client: httpx.Client, cluster: Cluster
) -> None:
    stream = Stream(client, cluster, "mortal", TEXT)
    stream.fill(40, 10_000)
    stream.sealed()
    begins = stream.offsets()[:-2]
    for offset in begins:
        assert stream.same(offset).status_code == 200
    assert client.delete(stream.owner.stream_url("mortal")).status_code == 204
    for offset in begins:
        assert stream.same(offset).status_code == 404
    assert client.post(f"{stream.other.stream_url('mortal')}/_undelete").status_code == 204
    for offset in begins:
        assert stream.same(offset).status_code == 200
    assert client.delete(stream.other.stream_url("mortal")).status_code == 204
    stream.create()
    assert stream.same("-1").content == b""
    assert stream.same(begins[1]).status_code == 400
    stream.fill(40, 10_000)
    stream.sealed()
    begins = stream.offsets()[:-2]
    for offset in begins:
        assert stream.same(offset).status_code == 200
    assert client.post(f"{stream.other.stream_url('mortal')}/_clear").status_code == 204
    for offset in begins[1:]:
        assert stream.same(offset).status_code == 410
    assert stream.same("-1").content == b""


def test_a_closed_stream_is_read_to_its_end(client: httpx.Client, cluster: Cluster) -> None:
    stream = Stream(client, cluster, "closed", JSON)
    stream.fill(40, 5_000)
    stream.append(stream.body(10), **{"Stream-Closed": "true"})
    stream.sealed()
    offset = stream.offsets()[-2]
    before = stream.figures()

    def is_answered_here() -> bool:
        assert stream.same(offset).headers["Stream-Closed"] == "true"
        return _changes(before, stream.figures())["history_reads"] == (0, 1)

    until(is_answered_here)


def test_a_stream_that_lives_by_being_read_is_read_at_its_owner(
    client: httpx.Client, cluster: Cluster
) -> None:
    stream = Stream(client, cluster, "fading", TEXT | {"Stream-TTL": "3600"})
    stream.fill(40, 5_000)
    stream.sealed()
    before = stream.figures()
    for offset in stream.offsets():
        stream.same(offset)
    assert _changes(before, stream.figures())["history_reads"] == (0, 0)
