"""Requests to webhooks: receivers that are slow, down or lying, and names that change."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwater.core.limits import Limits
from headwater.core.subscriptions.errors import WebhookUrlRejected
from headwater.service.subscriptions.webhooks import Outcome, Webhooks

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answering(status: str, body: bytes, *headers: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + body)

    return answer


OK = answering("200 OK", b"{}")


async def never(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        await writer.drain()


async def garbage(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\x01 this is not HTTP\r\n\r\n")


@dataclass
class Receiver:
    """Something that listens on an address of this machine and answers as it is told."""

    answer: Answer = OK
    host: str = "127.0.0.1"
    heads: list[str] = field(default_factory=list)
    port: int = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            await self.answer(writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/hook?a=b"


Listen = Callable[..., Awaitable[Receiver]]


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    servers: list[asyncio.Server] = []

    async def start(answer: Answer = OK, host: str = "127.0.0.1") -> Receiver:
        receiver = Receiver(answer, host)
        server = await asyncio.start_server(receiver, host, 0)
        receiver.port = server.sockets[0].getsockname()[1]
        servers.append(server)
        return receiver

    yield start
    for server in servers:
        server.close()


@pytest.fixture
async def webhooks() -> AsyncIterator[Webhooks]:
    webhooks = Webhooks(Limits(), development=True)
    yield webhooks
    await webhooks.stop()


async def post(webhooks: Webhooks, url: str) -> Outcome:
    return await webhooks.post(url, b'{"wake_id":"w"}', "t=1,kid=k,ed25519=s")


@pytest.mark.parametrize(
    "answer, expected",
    [
        (answering("200 OK", b'{"done": true}'), Outcome(True, done=True)),
        (answering("200 OK", b'{"done": false}'), Outcome(True)),
        (answering("200 OK", b'{"done": "true"}'), Outcome(True)),
        (answering("200 OK", b'{"done": 1}'), Outcome(True)),
        (answering("200 OK", b"[true]"), Outcome(True)),
        (answering("200 OK", b"thank you"), Outcome(True)),
        (answering("200 OK", b"[" * 60_000), Outcome(True)),
        (answering("200 OK", b"\xff\xfe"), Outcome(True)),
        (answering("204 No Content", b""), Outcome(True)),
        (answering("200 OK", b'{"done": true}' + b" " * 100_000), Outcome(True)),
        (answering("500 Oops", b'{"done": true}'), Outcome(False, problem="answered 500")),
        (answering("404 Not Found", b""), Outcome(False, problem="answered 404")),
    ],
)
async def test_what_an_answer_means(
    listen: Listen, webhooks: Webhooks, answer: Answer, expected: Outcome
) -> None:
    receiver = await listen(answer)
    assert await post(webhooks, receiver.url) == expected


async def test_the_request_is_what_receivers_expect(listen: Listen, webhooks: Webhooks) -> None:
    receiver = await listen()
    await post(webhooks, receiver.url)
    (head,) = receiver.heads
    assert head.startswith("POST /hook?a=b HTTP/1.1\r\n")
    assert f"\r\nHost: 127.0.0.1:{receiver.port}\r\n" in head
    assert "\r\nWebhook-Signature: t=1,kid=k,ed25519=s\r\n" in head
    assert "\r\nContent-Type: application/json\r\n" in head


async def test_an_answer_without_end_is_not_read_to_the_end(
    listen: Listen, webhooks: Webhooks
) -> None:
    receiver = await listen(endless)
    assert await post(webhooks, receiver.url) == Outcome(True)


async def test_redirects_are_not_followed(listen: Listen, webhooks: Webhooks) -> None:
    secret = await listen()
    location = f"Location: {secret.url}"
    for status in ("301 Moved", "302 Found", "307 Temporary", "308 Permanent"):
        receiver = await listen(answering(status, b"", location))
        assert not (await post(webhooks, receiver.url)).taken
    assert secret.heads == []


@pytest.mark.parametrize("answer", [garbage, never])
async def test_receivers_that_do_not_answer(listen: Listen, answer: Answer) -> None:
    webhooks = Webhooks(Limits(webhook_timeout_ms=300), development=True)
    receiver = await listen(answer)
    outcome = await post(webhooks, receiver.url)
    assert not outcome.taken
    assert outcome.problem
    await webhooks.stop()


async def test_nobody_listens(listen: Listen, webhooks: Webhooks) -> None:
    outcome = await post(webhooks, "http://127.0.0.1:1/")
    assert not outcome.taken
    assert outcome.problem.startswith("cannot be reached")


# ── Names ────────────────────────────────────────────────────────────────────────────────────


class Names:
    """A resolver that says what a test wants, and something else the next time."""

    def __init__(self, *answers: list[str] | OSError) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


async def with_names(*answers: list[str] | OSError) -> tuple[Webhooks, Names]:
    names = Names(*answers)
    return Webhooks(Limits(), development=True, resolve=names), names


async def test_a_name_that_leads_inside_is_refused_at_creation() -> None:
    webhooks, _ = await with_names(["10.0.0.7"])
    with pytest.raises(WebhookUrlRejected):
        await webhooks.check("https://hooks.example.com/")
    await webhooks.stop()


async def test_a_name_that_cannot_be_resolved_is_let_through_but_gets_nothing() -> None:
    webhooks, names = await with_names(OSError("no such host"))
    await webhooks.check("https://hooks.example.com/")
    outcome = await post(webhooks, "https://hooks.example.com/")
    assert outcome == Outcome(False, problem="cannot be resolved: no such host")
    assert len(names.asked) == 2
    await webhooks.stop()


async def test_a_name_that_changes_its_mind_gets_nothing(listen: Listen) -> None:
    """DNS rebinding: public when the subscription is made, this machine when it is used."""
    receiver = await listen()
    webhooks, names = await with_names(["93.184.216.34"], ["127.0.0.1"])
    url = f"https://hooks.example.com:{receiver.port}/"
    await webhooks.check(url)
    outcome = await post(webhooks, url)
    assert (outcome.taken, receiver.heads) == (False, [])
    assert "public internet" in outcome.problem
    assert names.asked == ["hooks.example.com"] * 2
    await webhooks.stop()


async def test_the_request_goes_to_the_address_that_was_checked(listen: Listen) -> None:
    """One look-up for a request. The name stays in the request, the address is the checked one."""
    other = await listen(host="127.0.0.2")
    webhooks, names = await with_names(["127.0.0.2"], OSError("asked twice"))
    assert (await post(webhooks, f"http://localhost:{other.port}/")).taken
    assert f"Host: localhost:{other.port}" in other.heads[0]
    assert names.asked == ["localhost"]
    await webhooks.stop()


async def test_a_second_address_is_tried_when_the_first_is_down(listen: Listen) -> None:
    receiver = await listen(host="127.0.0.2")
    webhooks, _ = await with_names(["127.0.0.3", "127.0.0.2"])
    assert (await post(webhooks, f"http://localhost:{receiver.port}/")).taken
    await webhooks.stop()


@dataclass(frozen=True)
class Certificate:
    """A certificate for one name that vouches for itself."""

    path: Path
    trust: ssl.SSLContext

    def listening(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path)
        return context


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hooks.example.com")])
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("hooks.example.com")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "pair.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    path.write_bytes(private + public)
    return Certificate(path, ssl.create_default_context(cadata=public.decode()))


@pytest.mark.parametrize("host, taken", [("hooks.example.com", True), ("other.example.com", False)])
async def test_certificates_are_checked_for_the_name_although_the_address_is_fixed(
    certificate: Certificate, host: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if 127.0.0.1 were a public address, since a test can listen on no other.
    monkeypatch.setattr("headwater.core.targets.is_public", lambda address: True)
    receiver = Receiver()
    server = await asyncio.start_server(receiver, "127.0.0.1", 0, ssl=certificate.listening())
    port = server.sockets[0].getsockname()[1]
    webhooks = Webhooks(Limits(), resolve=Names(["127.0.0.1"]), verify=certificate.trust)
    outcome = await post(webhooks, f"https://{host}:{port}/")
    assert (outcome.taken, len(receiver.heads)) == (taken, int(taken))
    server.close()
    await webhooks.stop()


async def test_proxies_of_the_environment_are_not_used(
    listen: Listen, webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    receiver = await listen()
    assert (await post(webhooks, receiver.url)).taken
