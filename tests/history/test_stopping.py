"""Object storage that never answers holds up nobody who wants to stop."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from headwater.core.errors import HistoryUnavailable
from headwater.store.history.abandonable_calls import Calls
from headwater.store.history.segment import ABSENT, PERHAPS, PRESENT
from headwater.store.sqlite.database import DATABASE_NAME, connect
from tests.http.client import TEXT, Client, eventually
from tests.support.object_storage import ObjectStorage
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import HOST, ServerProcess


class Silence:
    """Takes every connection, and says nothing."""

    def __enter__(self) -> Self:
        self._listener = socket.create_server((HOST, 0))
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._listener.accept()[0])
            except OSError:
                return

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def silence() -> Iterator[Silence]:
    with Silence() as silence:
        yield silence


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with ObjectStorage() as storage:
        yield storage


def remotes(data: Path) -> list[int]:
    connection = connect(data / DATABASE_NAME, read_only=True)
    try:
        found = connection.execute("SELECT remote FROM segments").fetchall()
        return [int(row[0] or 0) for row in found]
    finally:
        connection.close()


def serve(data: Path, storage: ObjectStorage, *arguments: str) -> ServerProcess:
    return ServerProcess(
        *("--data", str(data), *SEALING_AT_ONCE, "--hot-bytes-per-stream-max", "0"),
        *("--history-store", f"{storage.url}/{data.name}", *arguments),
        env=storage.environment,
    )


def test_an_upload_that_hangs(storage: ObjectStorage, silence: Silence, tmp_path: Path) -> None:
    """It is given up, may have come to its end or not, and is begun again."""
    data = tmp_path / "upload"
    with ServerProcess("--data", str(data), *SEALING_AT_ONCE) as server:
        path = Client(server).create(TEXT, b"content")
        eventually(lambda: remotes(data) == [ABSENT])
    server = serve(data, storage)
    server.env["AWS_ENDPOINT_URL"] = silence.url
    with server:
        client = Client(server)
        eventually(lambda: bool(silence.connections))
        assert server.stop() == 0
        assert "Traceback" not in server.stderr
        assert remotes(data) == [PERHAPS]
        server.env["AWS_ENDPOINT_URL"] = storage.environment["AWS_ENDPOINT_URL"]
        server.start()
        eventually(lambda: remotes(data) == [PRESENT])
        assert client.read_all(path) == b"content"


def test_a_read_that_hangs(storage: ObjectStorage, silence: Silence, tmp_path: Path) -> None:
    """Clients that wait are told to try again, and the server ends."""
    data = tmp_path / "read"
    server = serve(data, storage, "--history-local-bytes-max", "0")
    with server, ThreadPoolExecutor() as threads:
        client = Client(server)
        path = client.create(TEXT, b"content")
        eventually(lambda: remotes(data) == [PRESENT] and not [*(data / "segments").iterdir()])
        server.stop()
        server.env["AWS_ENDPOINT_URL"] = silence.url
        server.start()
        reply = threads.submit(client.get, path)
        # The catalog and the read hang, each in a connection of its own.
        eventually(lambda: len(silence.connections) > 1)
        assert server.stop() == 0
        assert reply.result().status == 503
        assert json.loads(reply.result().body)["error"]["code"] == "history_unavailable"
        assert "Traceback" not in server.stderr


# ── Calls ────────────────────────────────────────────────────────────────────────────────────


def test_calls_give_what_they_gave_or_raise_what_they_raised() -> None:
    calls = Calls()
    assert calls.make(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        calls.make(lambda: 1 // 0)


def test_calls_under_way_are_given_up_at_the_end() -> None:
    calls, begun, go_on = Calls(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait()

    with ThreadPoolExecutor() as threads:
        outcome = threads.submit(calls.make, hang)
        begun.wait()
        calls.end()
        assert isinstance(outcome.exception(), HistoryUnavailable)
    go_on.set()
    with pytest.raises(HistoryUnavailable):
        calls.make(lambda: 7)
    calls.end()
