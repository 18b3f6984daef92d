"""Peers that ask and do not read: they are refused more, and nobody else is.

Addresses of the loopback network stand for callers: all of 127.0.0.0/8 is this machine.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.http.client import TEXT, Client, eventually
from tests.http.conftest import watched
from tests.http.test_bodies_in_transit import figure
from tests.http.test_slow_clients import TINY_WINDOW, resident_bytes
from tests.http.wire import request_bytes
from tests.support.server import HOST, ServerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback")

MIB: Final = 1024 * 1024
BUFFERS: Final = 8 * MIB
OPENAPI: Final = request_bytes("GET", "/openapi.json")


@pytest.fixture(scope="module")
def tight_server() -> Iterator[ServerProcess]:
    with ServerProcess("--memory", "--buffers-bytes-max", str(BUFFERS)) as server:
        yield server


@pytest.fixture
def tight(tight_server: ServerProcess) -> Iterator[Client]:
    yield from watched(tight_server)


def deaf(port: int, address: str, data: bytes) -> socket.socket:
    """Someone who asks, and never reads."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, TINY_WINDOW)
    peer.settimeout(60)
    peer.bind((address, 0))
    peer.connect((HOST, port))
    peer.sendall(data)
    return peer


def ask(port: int, address: str, target: str = "/openapi.json") -> bytes:
    """The status line that someone at an address gets."""
    with socket.create_connection((HOST, port), 60, (address, 0)) as peer:
        peer.sendall(request_bytes("GET", target))
        return peer.recv(12)


def test_who_does_not_read_is_refused_and_nobody_else(tight: Client) -> None:
    port = tight.server.port
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(deaf(port, "127.0.0.9", OPENAPI * 8))
        eventually(lambda: figure(tight, "headwater_unread_bytes") > BUFFERS // 3)
        eventually(lambda: ask(port, "127.0.0.9") == b"HTTP/1.1 503")
        for _ in range(20):
            assert ask(port, "127.0.0.1") == b"HTTP/1.1 200"
            for target in ("/healthz", "/readyz"):
                assert ask(port, "127.0.0.9", target) == b"HTTP/1.1 200"
    eventually(lambda: ask(port, "127.0.0.9") == b"HTTP/1.1 200")


def test_those_who_take_nothing_are_cut_off_when_it_is_too_much_in_all(tight: Client) -> None:
    """Many addresses, each with little: the greediest goes first, and health is always told."""
    port = tight.server.port
    path = tight.create(TEXT, b"x" * MIB)
    page = request_bytes("GET", f"/v1/stream/{path}")
    less = request_bytes("GET", f"/v1/stream/{tight.create(TEXT, b'x' * (MIB * 3 // 4))}")
    with ExitStack() as stack:
        greedy = [stack.enter_context(deaf(port, "127.0.1.1", page * 4)) for _ in range(3)]
        modest = stack.enter_context(deaf(port, "127.0.1.2", less))
        eventually(lambda: figure(tight, "headwater_unread_bytes") > 2 * MIB)
        for number in range(3, 20):
            stack.enter_context(deaf(port, f"127.0.1.{number}", page * 4))
            assert ask(port, "127.0.1.2", "/healthz") == b"HTTP/1.1 200"
        eventually(lambda: figure(tight, "headwater_readers_cut_off_total") > 0)
        eventually(lambda: figure(tight, "headwater_unread_bytes") <= BUFFERS)
        eventually(lambda: ask(port, "127.0.0.1", f"/v1/stream/{path}") == b"HTTP/1.1 200")
        assert any(is_cut(peer) for peer in greedy)
        assert not is_cut(modest), "it has the least"


def is_cut(peer: socket.socket) -> bool:
    """Read it all, up to a reset or up to where there is nothing more for now."""
    peer.settimeout(0.5)
    try:
        while peer.recv(MIB):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    return True


def test_one_large_answer_is_held_once(tight: Client) -> None:
    """Everyone who is sent it has it in common, so that it takes no room to keep it for them."""
    before = resident_bytes(tight.server)
    size = len(tight.send("GET", "/openapi.json").body)
    with ExitStack() as stack:
        for number in range(400):
            stack.enter_context(deaf(tight.server.port, f"127.0.2.{number % 200 + 1}", OPENAPI))
        time.sleep(0.5)
        assert resident_bytes(tight.server) - before < 400 * size // 2
        assert tight.send("GET", "/healthz").status == 200
