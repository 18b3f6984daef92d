"""Documents and durable responses while their streams change hands. What is the same through every
node is shown by their own suites, which run on a cluster too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.documents.editing import Documents, Writer
from tests.responses.reader import Proxy
from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.engines import Fronted
from tests.support.postgresql import databases
from tests.support.server import ServerProcess
from tests.support.upstream import Peer, Upstream

WORDS = "as many words as it takes to have the document compacted more than once"
OPTIONS = (
    *("--documents", "--documents-compact-bytes", "1000"),
    *("--proxy-allow", "http://127.0.0.1:*", "--long-poll-timeout-ms", "1000"),
)


JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    secret = ("--signing-secret-file", str(tmp_path_factory.mktemp("cluster") / "secret"))
    with (
        databases() as database,
        Cluster(database, *OPTIONS, *secret) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    for number, node in enumerate(shared.nodes):
        print(f"--- node {number} ---\n{node.stderr[-4000:]}")
        if not node.is_running:
            node.start()
    for node in shared.nodes:
        assert "Traceback" not in node.stderr, node.stderr
        drain(shared, node, draining=False)
    shared.balanced()


def drain(cluster: Cluster, node: ServerProcess, *, draining: bool = True) -> None:
    number = next(n["id"] for n in cluster.status()["nodes"] if n["address"] == node.url)
    other = cluster.others(node)[0]
    body = {"node": number, "draining": draining}
    assert httpx.post(f"{other.url}/v1/cluster/drain", json=body).status_code == 204
    if draining:
        until(lambda: cluster.counts()[node.url] == 0)


def compacted(documents: Documents, path: str, writer: Writer, after: str) -> str:
    """Write until there is a new snapshot; where that is."""

    def is_new() -> bool:
        reply = documents.add(path, *writer.type(WORDS))
        assert reply.status == 204, reply.body
        return documents.location(path).partition("?")[2] > after

    until(is_new)
    return documents.location(path).partition("?")[2]


def test_a_document_goes_on_when_its_owner_changes(cluster: Cluster) -> None:
    with Fronted(cluster) as front:
        documents, writer = Documents(front), Writer()
        path = documents.create()
        stream = f"yjs/notes/docs/{path}"
        snapshot = "offset=-1"
        for turn in range(3):
            snapshot = compacted(documents, path, writer, after=snapshot)
            owner = cluster.owner_of(stream)
            assert documents.send("POST", path, "awareness=default", body=b"\x00").status == 204
            # Everything that belongs to it has the same owner.
            below = f"SELECT path FROM streams WHERE path LIKE '{stream}/%' AND status < 2"
            found = [row[0] for row in cluster.database.query(below)]
            assert len(found) >= 2
            assert {cluster.owner_of(one).url for one in found} == {owner.url}
            if turn == 0:
                drain(cluster, owner)
                drain(cluster, owner, draining=False)
            elif turn == 1:
                owner.kill()
                until(lambda: len(cluster.counts()) == 2)
                cluster.balanced(2)
                owner.start()
                cluster.balanced(3)
            for _ in cluster.nodes:
                assert documents.load(path).get_update() == writer.doc.get_update()
        assert documents.send("DELETE", path).status == 204
        left = f"SELECT 1 FROM streams WHERE path LIKE '{stream}%' AND status < 2"
        until(lambda: not cluster.database.query(left))


class Talk:
    """An upstream that says a number whenever it is told to, and ends when it has said them all."""

    def __init__(self, upstream: Upstream, name: str) -> None:
        self.url = upstream.on(f"/{name}", self._script)
        self._turn = threading.Semaphore(0)
        self._told = 0
        self._said = 0

    def _script(self, peer: Peer) -> None:
        peer.head("Content-Type: text/plain", "Transfer-Encoding: chunked")
        while self._turn.acquire(timeout=PATIENCE_S) and self._said < self._told:
            word = b"%d " % self._said
            peer.send(b"%x\r\n%b\r\n" % (len(word), word))
            self._said += 1
        peer.send(b"0\r\n\r\n")

    def say(self) -> None:
        self._told += 1
        self._turn.release()

    def end(self) -> None:
        self._turn.release()

    @property
    def words(self) -> bytes:
        return b"".join(b"%d " % n for n in range(self._told))


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


Through = Callable[[ServerProcess], Proxy]


@pytest.fixture
def proxy_of() -> Iterator[Through]:
    """Asks for responses by way of a node."""
    with ExitStack() as stack:
        yield lambda node: Proxy(
            stack.enter_context(httpx.Client(base_url=node.url, timeout=PATIENCE_S))
        )


def at(node: ServerProcess, location: str) -> str:
    """The same address, by way of another node."""
    return f"{node.url}{httpx.URL(location).raw_path.decode()}"


def heard(proxy: Proxy, location: str, body: bytes) -> None:
    until(lambda: proxy.http.get(location).content == body)


def test_a_response_is_fetched_to_its_end_though_its_node_is_drained(
    cluster: Cluster, upstream: Upstream, proxy_of: Through
) -> None:
    talk, runner = Talk(upstream, "drained"), cluster.nodes[0]
    location = proxy_of(runner).open(talk.url)
    stream = "responses/" + httpx.URL(location).path.rpartition("/")[2]
    assert cluster.owner_of(stream) is runner
    talk.say()
    proxy = proxy_of(cluster.others(runner)[0])
    heard(proxy, at(runner, location), b"0 ")
    drain(cluster, runner)
    assert cluster.owner_of(stream) is not runner
    for _ in range(3):
        talk.say()
        until(lambda: proxy.http.get(at(runner, location)).content == talk.words)
    talk.end()
    ended = proxy.follow(at(cluster.any(), location))
    assert (ended.body, ended.reason) == (b"0 1 2 3 ", None)
    # Who has no shards has others make responses, and ends without leaving any of its own open.
    quick = upstream.on("/quick", lambda peer: peer.answer(b"done"))
    address = proxy_of(runner).open(quick)
    assert proxy_of(runner).follow(at(runner, address)).body == b"done"


def test_a_response_can_be_aborted_through_any_node(
    cluster: Cluster, upstream: Upstream, proxy_of: Through
) -> None:
    for number, runner in enumerate(cluster.nodes):
        talk = Talk(upstream, f"aborted-{number}")
        location = proxy_of(runner).open(talk.url)
        talk.say()
        other = cluster.nodes[number - 1]
        proxy = proxy_of(other)
        heard(proxy, at(other, location), b"0 ")
        answer = proxy.http.patch(f"{at(other, location)}&action=abort")
        assert answer.status_code == 204, answer.text
        ended = proxy_of(cluster.nodes[number - 2]).follow(at(other, location))
        assert (ended.body, ended.reason) == (b"0 ", "aborted")
        talk.end()


def test_what_a_lost_node_fetched_is_closed_as_interrupted(
    cluster: Cluster, upstream: Upstream, proxy_of: Through
) -> None:
    """Whether it had the stream itself, or had handed it over before; and if it stops, too."""
    runner = cluster.nodes[0]
    kept, moved = Talk(upstream, "kept"), Talk(upstream, "moved")
    proxy = proxy_of(cluster.others(runner)[0])
    locations = []
    for talk in (moved, kept):
        location = at(cluster.others(runner)[0], proxy_of(runner).open(talk.url))
        talk.say()
        heard(proxy, location, b"0 ")
        locations.append(location)
        if talk is moved:
            drain(cluster, runner)
            drain(cluster, runner, draining=False)
            cluster.balanced()
    runner.kill()
    for location in locations:
        ended = proxy.follow(location)
        assert (ended.body, ended.reason) == (b"0 ", "interrupted")
    stopping = cluster.others(runner)[0]
    last = cluster.others(stopping)[0]
    location = at(last, proxy_of(stopping).open(moved.url))
    assert stopping.stop() == 0
    assert proxy_of(last).follow(location).reason == "interrupted"
    for talk in (kept, moved):
        talk.end()


def test_what_pipelines_report_is_the_same_through_every_node(cluster: Cluster) -> None:
    report = {"kind": "archive", "batch": 1, "rows": 2, "rows_per_s": 3, "batch_ms": 4}

    def shown() -> list[list[str]]:
        """What each node shows."""
        urls = [f"{node.url}/v1/pipelines" for node in cluster.nodes]
        answers = [httpx.get(url, timeout=PATIENCE_S).json() for url in urls]
        return [[one["name"] for one in answer["pipelines"]] for answer in answers]

    def keepers() -> list[ServerProcess]:
        """Those who count them: what is kept nowhere else is in no figures either."""
        texts = [httpx.get(f"{n.url}/metrics", timeout=PATIENCE_S).text for n in cluster.nodes]
        return [n for n, text in zip(cluster.nodes, texts, strict=True) if '"of-' in text]

    def are_reported(*names: str) -> bool:
        """Each through another node. If one is taken for gone meanwhile, they are lost."""
        for node, name in zip(cluster.nodes, names, strict=True):
            url, body = f"{node.url}/v1/pipelines", report | {"name": name}
            assert httpx.post(url, json=body, timeout=PATIENCE_S).status_code == 204
        return shown() == [sorted(set(names))] * 3 and len(keepers()) == 1

    until(lambda: are_reported("of-1", "of-2", "of-3"))
    (keeper,) = keepers()
    drain(cluster, keeper)
    until(lambda: shown() == [[]] * 3 and keepers() == [])
    until(lambda: are_reported("of-all", "of-all", "of-all"))
    assert keepers() != [keeper]


def test_a_live_query_may_wait_on_any_node(cluster: Cluster) -> None:
    """The first one of a node too, which does not know yet who owns the stream."""
    for number in range(6):
        path = f"queried-{number}"
        first = cluster.nodes[0].stream_url(path)
        assert httpx.put(first, headers=JSON, timeout=PATIENCE_S).status_code == 201
        profile = {"profile": {"kind": "state-protocol", "touch": {"enabled": True}}}
        answer = httpx.post(f"{first}/_profile", json=profile, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        for node in cluster.nodes:
            body = {"cursor": "now", "keys": ["0123456789abcdef"], "timeoutMs": 0}
            url = f"{node.stream_url(path)}/touch/wait"
            answer = httpx.post(url, json=body, timeout=PATIENCE_S)
            assert answer.status_code == 200, answer.text
