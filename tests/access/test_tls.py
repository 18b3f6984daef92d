"""TLS: who is talked to, how, and with which certificate."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509

from headwater.client import AsyncHeadwater, ConnectionFailed, Headwater, RetryPolicy
from headwater.core.limits import Limits
from headwater.http.messages import Request, Response
from headwater.http.wire.server import Server, Timeouts
from headwater.http.wire.tls import Certificate, CertificateError
from tests.access.authority import Authority, Issued
from tests.http.client import eventually
from tests.http.wire import PATIENCE_S
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import HOST, ServerFailedError, ServerProcess

ONCE = RetryPolicy(give_up_after_s=0)


class SecureServer(ServerProcess):
    """A server process that is asked for its health over TLS."""

    def __init__(
        self, authority: Authority, issued: Issued, *arguments: str, data: Path | None = None
    ) -> None:
        storage = ("--memory",) if data is None else ("--data", str(data))
        tls = ("--tls-cert", str(issued.chain), "--tls-key", str(issued.key))
        super().__init__(*storage, *tls, *arguments)
        self.authority = authority

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority.file)

    @contextmanager
    def connected(
        self, context: ssl.SSLContext | None = None, name: str | None = "localhost"
    ) -> Iterator[ssl.SSLSocket]:
        plain = socket.create_connection((HOST, self.port), timeout=PATIENCE_S)
        chosen = context or self.context()
        if name is None:
            chosen.check_hostname = False
        with chosen.wrap_socket(plain, server_hostname=name) as secure:
            yield secure

    def serial(self, name: str | None = "localhost") -> int:
        """Which certificate it shows."""
        with self.connected(name=name) as secure:
            shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number

    def _is_healthy(self) -> bool:
        try:
            with self.connected() as secure:
                return ask(secure).startswith(b"HTTP/1.1 200")
        except OSError:
            return False


def ask(secure: ssl.SSLSocket, target: str = "/healthz") -> bytes:
    secure.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return secure.recv(65536)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secure_server(authority: Authority) -> Iterator[SecureServer]:
    with SecureServer(authority, authority.issue()) as server:
        yield server


def test_the_client_checks_who_it_talks_to(
    secure_server: SecureServer, authority: Authority
) -> None:
    with Headwater(secure_server.url, verify=str(authority.file), retry=ONCE) as client:
        stream = client.stream("orders")
        stream.create(content_type="application/json")
        stream.append({"n": 1})
        assert stream.read_json() == [{"n": 1}]
        located = client.request("PUT", "/v1/stream/new", json=None).headers["location"]
        assert located.startswith("https://")
    with Headwater(secure_server.url, retry=ONCE) as client, pytest.raises(ConnectionFailed):
        client.stream("orders").read_json()


async def test_events_over_tls(secure_server: SecureServer, authority: Authority) -> None:
    """Appends reach a follower, large ones as well."""
    async with AsyncHeadwater(secure_server.url, verify=authority.file, retry=ONCE) as client:
        stream = client.stream("live")
        await stream.create(content_type="text/plain")
        large = "x" * 3_000_000
        async with asyncio.timeout(PATIENCE_S):
            async with stream.follow(live="sse") as reader:
                await stream.append("small")
                await stream.append(large)
                got = ""
                async for batch in reader:
                    got += batch.text
                    if len(got) >= len(large) + 5:
                        break
    assert got == "small" + large


def test_history_in_files_is_encrypted_too(authority: Authority, tmp_path: Path) -> None:
    """The kernel sends files as they are, and must not where nobody else may read them."""
    history = (*SEALING_AT_ONCE, "--hot-bytes-per-stream-max", "0", "--chunk-bytes-max", "3000000")
    issued = authority.issue(name="history")
    data = tmp_path / "data"
    bodies = [bytes([65 + number]) * 500_000 for number in range(12)]
    with SecureServer(authority, issued, *history, data=data) as server:
        with Headwater(server.url, verify=str(authority.file), retry=ONCE) as client:
            stream = client.stream("long")
            stream.create(content_type="text/plain")
            for body in bodies:
                stream.append(body)
            segments = data / "segments"
            eventually(
                lambda: sum(file.stat().st_size for file in segments.glob("*.seg")) > 6_000_000
            )
            assert stream.read_bytes() == b"".join(bodies)
        # One who hangs up in the middle disturbs nobody.
        with server.connected() as secure:
            assert b"200" in ask(secure, "/v1/stream/long")
        with server.connected() as secure:
            assert b"200" in ask(secure)
        assert "Traceback" not in server.stderr


def test_versions_and_protocols(secure_server: SecureServer) -> None:
    context = secure_server.context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with secure_server.connected(context) as secure:
        assert secure.selected_alpn_protocol() == "http/1.1"
        assert secure.version() == "TLSv1.3"
    twelve = secure_server.context()
    twelve.maximum_version = ssl.TLSVersion.TLSv1_2
    with secure_server.connected(twelve) as secure:
        assert secure.version() == "TLSv1.2"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_old_versions_are_refused(secure_server: SecureServer) -> None:
    old = secure_server.context()
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionResetError)), secure_server.connected(old):
        pass


def test_plain_http_is_not_answered(secure_server: SecureServer) -> None:
    with socket.create_connection((HOST, secure_server.port), timeout=PATIENCE_S) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in plain.recv(1000)
    assert secure_server.serial()
    assert "Traceback" not in secure_server.stderr


# ── Another certificate ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("told", [False, True], ids=["noticed", "told"])
def test_a_new_certificate_without_dropping_connections(
    secure_server: SecureServer, authority: Authority, told: bool
) -> None:
    old = secure_server.serial()
    with secure_server.connected() as open_before:
        assert b"200" in ask(open_before)
        new = authority.issue()
        assert new.serial != old
        if told:
            os.kill(secure_server.pid, signal.SIGHUP)
        eventually(lambda: secure_server.serial() == new.serial)
        # Also for one who does not say which name it came for.
        assert secure_server.serial(name=None) == new.serial
        assert b"200" in ask(open_before)


def test_files_that_do_not_fit_change_nothing(
    secure_server: SecureServer, authority: Authority
) -> None:
    old = secure_server.serial()
    good_key = (authority.file.parent / "server.key").read_bytes()
    new = authority.issue()
    new.key.write_bytes(good_key)
    eventually(lambda: "not_reloaded" in secure_server.stderr)
    assert secure_server.serial() == old
    newest = authority.issue()
    eventually(lambda: secure_server.serial() == newest.serial)


@pytest.mark.parametrize("problem", ["missing", "garbage", "mismatch", "passphrase"])
def test_files_that_cannot_be_used(authority: Authority, problem: str) -> None:
    issued = authority.issue(name="bad", passphrase="typed" if problem == "passphrase" else None)
    match problem:
        case "missing":
            issued.key.unlink()
        case "garbage":
            issued.chain.write_text("nonsense")
        case "mismatch":
            issued.key.write_bytes(authority.issue(name="other").key.read_bytes())
    with pytest.raises(CertificateError) as failure:
        Certificate(issued.chain, issued.key)
    assert "\n" not in str(failure.value)
    with pytest.raises(ServerFailedError) as start:
        SecureServer(authority, issued).start()
    assert "Traceback" not in str(start.value)
    assert "cannot use the certificate" in str(start.value)


def test_a_certificate_needs_its_key(authority: Authority) -> None:
    issued = authority.issue(name="alone")
    with pytest.raises(ServerFailedError, match="both"):
        ServerProcess("--memory", "--tls-cert", str(issued.chain)).start()


# ── Those who take their time ────────────────────────────────────────────────────────────────


def answer(request: Request) -> Response:
    return Response(200, [], b"ok")


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"])
async def test_a_handshake_that_is_not_finished_is_cut_off(
    authority: Authority, first: bytes
) -> None:
    issued = authority.issue(name="slow")
    certificate = Certificate(issued.chain, issued.key)
    timeouts = Timeouts(handshake_s=0.1)
    server = Server(answer, Limits(), timeouts=timeouts, certificate=certificate)
    port = await server.start(HOST, 0)
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(first)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()
        # Others are not kept waiting by it.
        context = ssl.create_default_context(cafile=authority.file)
        async with asyncio.timeout(PATIENCE_S):
            while not await is_answered(port, context):
                pass
    finally:
        await server.stop(0)


async def is_answered(port: int, context: ssl.SSLContext) -> bool:
    """Whether it is, or was too slow itself, as it may be on a busy machine."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    except ConnectionError:
        return False
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"ok")
    writer.close()
    return True


async def test_strangers_who_never_finish_a_handshake_do_not_keep_others_out(
    authority: Authority,
) -> None:
    """However patient they are: there are never more of them than the server bears."""
    issued = authority.issue(name="strangers")
    certificate = Certificate(issued.chain, issued.key)
    limits, timeouts = Limits(connections_max=10), Timeouts(handshake_s=3600)
    server = Server(answer, limits, timeouts=timeouts, certificate=certificate)
    port = await server.start(HOST, 0)
    most = limits.connections_max + server.descriptors.probes_max
    before = len(os.listdir("/proc/self/fd"))
    strangers = []
    try:
        for _ in range(2 * most):
            strangers.append(await asyncio.open_connection(HOST, port))
        context = ssl.create_default_context(cafile=authority.file)
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"ok")
        writer.close()
        held = len(os.listdir("/proc/self/fd")) - before - len(strangers)
        assert held <= most + 1, "those that were given up are closed"
    finally:
        for _, writer in strangers:
            writer.close()
        await server.stop(0)
    async with asyncio.timeout(PATIENCE_S):
        while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
