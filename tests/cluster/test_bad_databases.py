"""Bad days of the database, as the processes of a cluster live through them: each has a clear
error, and nothing that was acknowledged is lost."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

import httpx
import pytest

from tests.postgres.server import PostgresServer
from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import EngineDatabase, databases, new_database
from tests.support.server import HOST, ServerFailedError, ServerProcess, free_port

TEXT = {"Content-Type": "text/plain"}
STREAMS = [f"s{number}" for number in range(6)]

# ── Where no node starts ─────────────────────────────────────────────────────────────────────


@contextmanager
def nobody() -> Iterator[str]:
    yield f"postgresql://{HOST}:{free_port()}/headwater"


@contextmanager
def of_a_newer_version() -> Iterator[str]:
    with databases() as database:
        with Cluster(database, nodes=1):
            pass
        database.query("UPDATE cluster SET layout = layout + 1")
        try:
            yield database.url
        finally:
            database.query("UPDATE cluster SET layout = layout - 1")


@contextmanager
def too_old() -> Iterator[str]:
    """What PostgreSQL 14 says when somebody connects."""
    status = b"".join(
        _message(b"S", name + b"\0" + value + b"\0")
        for name, value in (
            (b"server_version", b"14.2"),
            (b"client_encoding", b"UTF8"),
            (b"in_hot_standby", b"off"),
            (b"default_transaction_read_only", b"off"),
        )
    )
    key, ready = _message(b"K", struct.pack("!ii", 1, 1)), _message(b"Z", b"I")
    welcome = _message(b"R", struct.pack("!i", 0)) + status + key + ready

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    # Neither TLS nor Kerberos.
                    while struct.unpack("!i", connection.recv(4096)[4:8])[0] >> 16 == 1234:
                        connection.sendall(b"N")
                    connection.sendall(welcome)
                    connection.recv(4096)

    with socket.create_server((HOST, 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"postgresql://{HOST}:{listening.getsockname()[1]}/headwater"


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


@pytest.mark.parametrize(
    "place, why",
    [
        (nobody, "does not answer"),
        (too_old, "is version 14; headwater needs 15 or later"),
        (of_a_newer_version, "was written by a newer headwater .*; upgrade this node"),
    ],
)
def test_a_node_that_cannot_start_says_why(
    place: Callable[[], AbstractContextManager[str]], why: str
) -> None:
    with place() as url:
        port = free_port()
        address = f"http://{HOST}:{port}"
        node = ServerProcess("--engine", url, "--advertise", address, port=port)
        with pytest.raises(ServerFailedError, match="exited with 1 ") as failed:
            node.start()
    said = str(failed.value).splitlines()[1:]
    assert re.search(f"^headwater: .*{why}", said[-1]), said
    assert "Traceback" not in "".join(said)


# ── And where they run ───────────────────────────────────────────────────────────────────────


class Bystander:
    """Appends to streams of all nodes through all nodes, and knows what must be there."""

    def __init__(self, cluster: Cluster, client: httpx.Client) -> None:
        self._cluster = cluster
        self._client = client
        self._acknowledged = dict.fromkeys(STREAMS, "")
        for stream in STREAMS:
            answer = client.put(cluster.any().stream_url(stream), headers=TEXT)
            assert answer.status_code == 201, answer.text

    def append(self, letter: str) -> set[str]:
        """Append to each stream through each node; which errors there were."""
        errors = set()
        for stream in STREAMS:
            for node in self._cluster.nodes:
                answer = self._client.post(node.stream_url(stream), headers=TEXT, content=letter)
                if answer.status_code == 204:
                    self._acknowledged[stream] += letter
                else:
                    assert answer.status_code == 503, answer.text
                    errors.add(answer.json()["error"]["code"])
        return errors

    def recovered(self, letter: str) -> None:
        until(lambda: not self.append(letter))
        until(lambda: all(self._is_ready(node) for node in self._cluster.nodes))
        self.reads()

    def reads(self) -> None:
        """Everything that was acknowledged is there, and nothing else, through every node."""
        for node in self._cluster.nodes:
            for stream, content in self._acknowledged.items():
                assert self._client.get(node.stream_url(stream)).text == content

    def _is_ready(self, node: ServerProcess) -> bool:
        return self._client.get(f"{node.url}/readyz").status_code == 200

    def not_ready(self, why: str) -> bool:
        answers = [self._client.get(f"{node.url}/readyz") for node in self._cluster.nodes]
        return all(one.status_code == 503 and why in one.text for one in answers)


@contextmanager
def full_disk(database: EngineDatabase) -> Iterator[None]:
    database.query(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION"
        " 'could not extend file: no space left on device' USING ERRCODE = '53100'; END $$"
    )
    database.query("CREATE TRIGGER full_disk BEFORE INSERT ON ops EXECUTE FUNCTION full_disk()")
    try:
        yield
    finally:
        database.query("DROP FUNCTION full_disk CASCADE")


def test_a_cluster_outlives_bad_days_of_its_database() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        database = new_database(server, "engine")
        cluster = stack.enter_context(Cluster(database, nodes=2))
        client = stack.enter_context(httpx.Client(timeout=PATIENCE_S))
        for node in cluster.nodes:
            assert "commits_are_not_replicated" in node.stderr
        bystander = Bystander(cluster, client)
        bystander.recovered("a")

        with full_disk(database):
            assert "storage_full" in bystander.append("b")
            # What is there can be read.
            bystander.reads()
        bystander.recovered("c")

        with database.read_only():
            until(lambda: bystander.not_ready("read-only"))
            assert "storage_unavailable" in bystander.append("d")
        bystander.recovered("e")

        server.stop()
        until(lambda: bystander.not_ready("does not answer"))
        assert "storage_unavailable" in bystander.append("f")
        server.start()
        bystander.recovered("g")
        for node in cluster.nodes:
            assert "Traceback" not in node.stderr
