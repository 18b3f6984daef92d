"""Compaction beside the writes: bounded, and broken off at any point without harm."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pycrdt import Doc

from headwater.core.decisions import Append, Create
from headwater.core.documents import addresses
from headwater.core.documents.framing import frame
from headwater.core.expiry import Lifetime
from headwater.core.limits import MIB
from headwater.documents.compaction import Compaction
from headwater.documents.documents import Documents as Layer
from headwater.documents.policy import Policy
from headwater.documents.snapshots import Snapshots
from headwater.documents.workers import PIECE_BYTES
from headwater.service.log import Log
from headwater.store.memory.engine import MemoryEngine
from tests.conftest import StartServer
from tests.documents.editing import Documents, Writer, frames, text_of
from tests.http.client import eventually
from tests.support.server import ServerProcess

OCTETS = "application/octet-stream"
DOCUMENT = addresses.stream_of("s", "a")
WORDS = " ".join(f"word-{number}" for number in range(60))


def figure(server: ServerProcess, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics", timeout=60).text
    found = re.search(rf"^headwater_{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


# ── What no worker can take ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reason", ["malformed", "too_large", "timed_out"])
def test_a_document_that_cannot_be_loaded_is_read_and_written(
    reason: str, start_server: StartServer
) -> None:
    arguments = {
        "malformed": (),
        "too_large": ("--documents-worker-bytes-max", str(256 * MIB)),
        "timed_out": ("--documents-worker-timeout-ms", "100"),
    }[reason]
    server = start_server("--memory", "--documents", "--documents-compact-bytes", "500", *arguments)
    documents = Documents(server)
    path, writer = documents.create(), Writer()
    if reason == "malformed":
        documents.add(path, b"no update of Yjs")
    elif reason == "too_large":
        for _ in range(2):
            huge = Writer()
            huge.text += "x" * (50 * MIB)
            assert documents.add(path, *huge.take()).status == 204
    else:
        for _ in range(4):
            documents.add(path, *large(random.Random(1), MIB))
    stopped = f'document_compactions_stopped_total{{reason="{reason}"}}'

    def is_stopped() -> bool:
        documents.add(path, *writer.type("more"))
        return figure(server, stopped) == 1

    eventually(is_stopped)
    eventually(lambda: "document_not_compacted" in server.stderr)
    assert f"reason={reason}" in re.sub("\x1b[^m]*m", "", server.stderr)
    # Nobody else notices, and it is not tried again.
    tail = documents.add(path, *writer.type(WORDS)).headers["Stream-Next-Offset"]
    assert documents.send("HEAD", path).headers["Stream-Next-Offset"] == tail
    other = documents.create()
    if reason == "malformed":
        documents.add(other, *Writer().type(WORDS))
        documents.await_snapshot(other)
    assert figure(server, stopped) == 1
    eventually(lambda: figure(server, "document_workers") == 0)
    left = documents.client.json(f"/v1/streams?prefix=yjs/notes/docs/{path}/.snapshots")["streams"]
    assert all(one["closed"] for one in left)
    assert "Traceback" not in server.stderr


def large(rng: random.Random, size: int) -> list[bytes]:
    """An update of about that size."""
    writer = Writer()
    writer.text += rng.randbytes(size // 2).hex()
    return writer.take()


# ── Broken off at any point ──────────────────────────────────────────────────────────────────


class Broken(Exception):
    pass


STEPS = ("begin", "add", "finish", "remove")


@asynccontextmanager
async def layer(log: Log) -> AsyncIterator[Layer]:
    """What a server has of documents from its start to its end."""
    documents = Layer(log, Policy(compact_bytes=500))
    try:
        yield documents
    finally:
        await documents.stop()


async def grow(log: Log, documents: Layer, writer: Writer) -> None:
    body = b"".join(map(frame, writer.type(WORDS)))
    await log.append(DOCUMENT, Append(body, OCTETS))
    documents.written(await log.entry(DOCUMENT))


async def settled(documents: Layer) -> None:
    while documents.compaction.figures.running()[0]:  # noqa: ASYNC110 - it is a figure, no event
        await asyncio.sleep(0.01)


async def state_of(log: Log, documents: Layer) -> Doc[Any]:
    """The document as someone who joins gets it, and by its content."""
    doc: Doc[Any] = Doc()
    view = log.view(await log.entry(DOCUMENT))
    snapshot = await documents.newest(DOCUMENT)
    body = b"".join(
        [piece async for piece in documents.compaction.updates(view, snapshot, view.tail)]
    )
    for update in frames(body):
        doc.apply_update(update)
    return doc


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_broken_off_at_any_step(
    step: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a crash: what was done is done, nothing is cleaned up, and a new process goes on."""
    log = await Log.start(MemoryEngine())
    writer = Writer()
    await log.create(Create(DOCUMENT, OCTETS))
    async with layer(log) as first:
        await grow(log, first, writer)
        await settled(first)
        former = await first.newest(DOCUMENT)
        assert former is not None
        with monkeypatch.context() as patch:
            broken = break_off(patch, step, when)
            await grow(log, first, writer)
            await settled(first)
            assert broken()
    async with layer(log) as second:
        # One of the two is valid, and nothing is missing.
        newest = await second.newest(DOCUMENT)
        assert newest is not None
        assert newest.offset.position >= former.offset.position
        await settled(second)
        assert text_of(await state_of(log, second)) == str(writer.text)
        # The next compaction works, and clears away what is left.
        await grow(log, second, writer)
        await settled(second)
        last = await second.newest(DOCUMENT)
        assert last is not None
        assert last.offset.position > newest.offset.position
        assert text_of(await state_of(log, second)) == str(writer.text)
        left = await log.list_streams(addresses.snapshots_of(DOCUMENT), "", 10)
        assert [one.path for one in left] == [addresses.snapshot_of(DOCUMENT, str(last.offset))]
    await log.stop()


async def test_due_when_the_server_ended() -> None:
    """Nobody writes to it any more, and whoever opens it next has it compacted."""
    log = await Log.start(MemoryEngine())
    writer = Writer()
    await log.create(Create(DOCUMENT, OCTETS))
    await log.append(DOCUMENT, Append(b"".join(map(frame, writer.type(WORDS))), OCTETS))
    async with layer(log) as documents:
        assert await documents.newest(DOCUMENT) is None
        await settled(documents)
        snapshot = await documents.newest(DOCUMENT)
        assert snapshot is not None
        assert snapshot.offset.position == log.view(await log.entry(DOCUMENT)).tail
        assert text_of(await state_of(log, documents)) == str(writer.text)
        # Once is enough.
        assert documents.compaction.figures.running()[0] == 0
    await log.stop()


async def test_another_node_has_it_for_a_while() -> None:
    """Who has it back knows the snapshot that the other one left, not the one that is gone."""
    log = await Log.start(MemoryEngine())
    writer = Writer()
    await log.create(Create(DOCUMENT, OCTETS))
    async with layer(log) as here, layer(log) as elsewhere:
        await grow(log, here, writer)
        await settled(here)
        former = await here.newest(DOCUMENT)
        entry = await log.entry(DOCUMENT)
        await here.releasing({entry.shard})
        # Someone asks while the shard is still here.
        assert await here.newest(DOCUMENT) == former
        await log.release({entry.shard})
        await grow(log, elsewhere, writer)
        await settled(elsewhere)
        await log.release({entry.shard})
        found = await here.newest(DOCUMENT)
        assert found is not None
        assert found != former
        assert found == await elsewhere.newest(DOCUMENT)
        await log.stop()


async def test_a_snapshot_that_is_gone_is_not_looked_for_forever() -> None:
    log = await Log.start(MemoryEngine())
    writer = Writer()
    await log.create(Create(DOCUMENT, OCTETS))
    async with layer(log) as documents:
        await grow(log, documents, writer)
        await settled(documents)
        gone = await documents.newest(DOCUMENT)
        await documents.compaction.snapshots.remove_others(DOCUMENT, keep=set())
        await grow(log, documents, writer)
        await settled(documents)
        await grow(log, documents, writer)
        await settled(documents)
        newest = await documents.newest(DOCUMENT)
        assert newest is not None
        assert newest != gone
        assert text_of(await state_of(log, documents)) == str(writer.text)
        await log.stop()


def break_off(patch: pytest.MonkeyPatch, step: str, when: str) -> Callable[[], bool]:
    """From that step on, nothing more happens."""
    is_over = False

    def broken(name: str) -> Callable[..., Any]:
        original = getattr(Snapshots, name)

        async def call(self: Snapshots, *arguments: Any, **options: Any) -> Any:
            nonlocal is_over
            if is_over:
                raise Broken
            ends = name == step
            if ends and when == "before":
                is_over = True
                raise Broken
            result = await original(self, *arguments, **options)
            if ends:
                is_over = True
                raise Broken
            return result

        return call

    for name in STEPS:
        patch.setattr(Snapshots, name, broken(name))
    patch.setattr(asyncio, "sleep", _at_once(asyncio.sleep))
    return lambda: is_over


def _at_once(sleep: Callable[[float], Any]) -> Callable[[float], Any]:
    async def soon(delay_s: float) -> None:
        await sleep(min(delay_s, 0.01))

    return soon


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Let compactions wait in the middle of their work: when they do, and until when."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    original = Compaction.updates

    async def waiting(*arguments: Any) -> AsyncIterator[bytes]:
        begun.set()
        await go_on.wait()
        async for piece in original(*arguments):
            yield piece

    monkeypatch.setattr(Compaction, "updates", waiting)
    return begun, go_on


async def test_a_document_that_is_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    log = await Log.start(MemoryEngine())
    await log.create(Create(DOCUMENT, OCTETS))
    begun, go_on = held_up(monkeypatch)
    async with layer(log) as documents:
        await grow(log, documents, Writer())
        await begun.wait()
        await log.delete(DOCUMENT, purge=True)
        await documents.deleted(DOCUMENT, purge=True)
        go_on.set()
        await settled(documents)
        assert documents.workers.running == set()
        assert await log.list_streams("yjs/", "", 10) == []
    await log.stop()


async def test_content_is_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads on where it ends gets what was written while it was loaded."""
    log = await Log.start(MemoryEngine())
    await log.create(Create(DOCUMENT, OCTETS))
    writer = Writer()
    await log.append(DOCUMENT, Append(b"".join(map(frame, writer.type("before"))), OCTETS))
    end = log.view(await log.entry(DOCUMENT)).tail
    original = Compaction.updates

    async def late(*arguments: Any) -> AsyncIterator[bytes]:
        await log.append(DOCUMENT, Append(b"".join(map(frame, writer.type("after"))), OCTETS))
        async for piece in original(*arguments):
            yield piece

    monkeypatch.setattr(Compaction, "updates", late)
    async with layer(log) as documents:
        offset, body = await documents.content(DOCUMENT, "text", "text")
    assert (offset.position, body) == (end, b"before ")
    await log.stop()


async def test_a_document_that_expires_takes_all_along() -> None:
    """One with a lifetime was made as a stream; nobody asks for it any more when that is over."""
    now_ms = 1_000_000
    log = await Log.start(MemoryEngine(), clock=lambda: now_ms)
    await log.create(Create(DOCUMENT, OCTETS, lifetime=Lifetime(ttl_s=60)))
    async with layer(log) as documents:
        await documents.ensure_awareness(DOCUMENT, "default")
        await grow(log, documents, Writer())
        await settled(documents)
        assert await documents.newest(DOCUMENT) is not None
        # Due by what is stored, but used in between: nothing is to go.
        await documents.expiring(DOCUMENT)
        assert await documents.newest(DOCUMENT) is not None
        now_ms += 120_000
        async with asyncio.timeout(60):
            while await log.list_streams("yjs/", "", 10):  # noqa: ASYNC110 - of a task's doing
                await asyncio.sleep(0.01)
    await log.stop()


async def test_one_compaction_of_a_document_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    log = await Log.start(MemoryEngine())
    await log.create(Create(DOCUMENT, OCTETS))
    writer = Writer()
    _, go_on = held_up(monkeypatch)
    async with layer(log) as documents:
        for _ in range(10):
            await grow(log, documents, writer)
            assert documents.compaction.figures.running()[0] == 1
        go_on.set()
        await settled(documents)
        assert documents.compaction.figures.compactions == 1
        assert text_of(await state_of(log, documents)) == str(writer.text)
    await log.stop()


# ── Killed ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.crash
def test_killed_in_the_middle_of_a_compaction(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(
        *("--data", str(tmp_path / "data"), "--documents", "--documents-compact-bytes", "20000")
    )
    documents = Documents(server)
    path, writer, rng = documents.create(), Writer(), random.Random(1)
    former = "offset=-1"
    for _ in range(3):
        # Enough that a worker is busy when it is looked for.
        for _ in range(40):
            writer.text.insert(rng.randint(0, len(writer.text)), rng.randbytes(20_000).hex())
            documents.add(path, *writer.take())
            if figure(server, "document_workers"):
                break
        eventually(lambda: figure(server, "document_compacting") > 0 or is_new(documents, path))
        server.kill()
        server.start()
        assert documents.load(path).get_update() == writer.doc.get_update()
        later = documents.location(path).partition("?")[2]
        assert later >= former or former == "offset=-1"
        former = later
    documents.add(path, *writer.type(WORDS))
    for _ in range(5):
        writer.text += rng.randbytes(100_000).hex()
        documents.add(path, *writer.take())
    documents.await_snapshot(path, former)
    assert documents.load(path).get_update() == writer.doc.get_update()


def is_new(documents: Documents, path: str) -> bool:
    return "_snapshot" in documents.location(path)


# ── Large ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def large_server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess("--data", str(tmp_path / "data"), "--documents") as server:
        yield server


def test_a_large_document_is_compacted_beside_other_appends(large_server: ServerProcess) -> None:
    """50 MB: no work on it is done in the server, and others' appends go in between."""
    documents = Documents(large_server)
    path, rng = documents.create(), random.Random(2)
    other = documents.client.create()
    expected: list[str] = []

    def add_a_part() -> None:
        writer = Writer(client_id=len(expected) + 1)
        writer.text += rng.randbytes(2 * MIB).hex()
        expected.append(str(writer.text))
        assert documents.add(path, *writer.take()).status == 204

    for _ in range(13):
        add_a_part()
    closed: list[dict[str, Any]] = []
    size = between = 0
    # Until a snapshot covers that much, others append.
    while size < 50_000_000:
        for _ in range(5):
            before = figure(large_server, "document_workers")
            assert documents.client.post(other, b"x", {"Content-Type": "text/plain"}).status == 204
            between += bool(before and figure(large_server, "document_workers"))
        listing = documents.client.json(f"/v1/streams?prefix=yjs/notes/docs/{path}/.snapshots")
        closed = [one for one in listing["streams"] if one["closed"]]
        size = max((one["size_bytes"] for one in closed), default=0)
        if size < 50_000_000 and closed and not figure(large_server, "document_compacting"):
            # It was quicker than the writer: what came since is not yet worth another one.
            add_a_part()
            assert len(expected) < 40
    assert between > 0
    # It was stored piece by piece, so no commit held up the others for long.
    assert closed[-1]["messages"] >= size / PIECE_BYTES
    # The library that loads documents is not in the server.
    assert "pycrdt" not in Path(f"/proc/{large_server.pid}/maps").read_text()
    text = text_of(documents.load(path))
    assert all(part in text for part in expected)
