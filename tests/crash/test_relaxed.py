"""Relaxed streams after kill -9: the last moments may be gone, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from tests.conftest import StartServer
from tests.crash.check import check_directory

JSON = {"Content-Type": "application/json"}
pytestmark = [pytest.mark.late, pytest.mark.crash]


def write_until_it_ends(url: str, acknowledged: list[int]) -> None:
    """Number after number, each in an append with a second half."""
    with httpx.Client(timeout=60) as http:
        number = len(acknowledged)
        while True:
            try:
                reply = http.post(url, json=[number, [number] * 50], headers=JSON)
            except httpx.HTTPError:
                return
            assert reply.status_code == 204
            assert reply.headers["stream-durability"] == "relaxed"
            acknowledged.append(number)
            number += 1


def test_a_killed_server_keeps_a_prefix(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("--data", str(tmp_path))
    url = f"{server.url}/v1/stream/s"
    assert httpx.put(url, headers=JSON | {"Stream-Durability": "relaxed"}).status_code == 201
    kept = 0
    for enough in (50, 200, 120):
        acknowledged = list(range(kept))
        writer = threading.Thread(target=write_until_it_ends, args=(url, acknowledged))
        writer.start()
        while len(acknowledged) < kept + enough and writer.is_alive():
            pass
        server.kill()
        writer.join()
        server.start()
        messages: list[object] = []
        offset = "-1"
        while True:
            reply = httpx.get(url, params={"offset": offset})
            messages += reply.json()
            offset = reply.headers["stream-next-offset"]
            if "stream-up-to-date" in reply.headers:
                break
        before, kept = kept, len(messages) // 2
        assert messages == [part for n in range(kept) for part in (n, [n] * 50)]
        assert before <= kept <= len(acknowledged) + 1
    server.stop()
    check_directory(tmp_path)
