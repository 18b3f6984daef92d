"""The process that commits, and what the writer makes of its answers.

Most of these run a process of a few lines instead of the real one. It can do what the real one
should never do: answer half, end with a batch in its hands, or not end at all.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import OutcomeUnknown, StorageUnavailable
from headwater.core.mutations import AnyMutation
from headwater.core.stream import Appended, Touched
from headwater.service import background
from headwater.service import committer as service
from headwater.service.commit_thread import CommitThread
from headwater.service.committer import CommitProcess, Done
from headwater.service.log import Log
from headwater.store.engine.committer import ANSWER, LENGTH, Answer
from headwater.store.history import segment_format
from headwater.store.history.large_appends import LARGE_BYTES
from headwater.store.sqlite import shared_bodies
from headwater.store.sqlite.committer import SqliteCommitter
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.sqlite.shared_bodies import SHARED_BYTES
from tests.support.logs import begin, data, outcome, read_all, until

BATCH = (Touched(1, 2),)
SYNC_S = 0.25
_TOOLS = f"""
import os, socket, struct, sys, time
channel = socket.socket(fileno=0)
batches = channel.makefile("rb")
def answer(kind):
    channel.sendall(struct.pack({ANSWER.format!r}, kind, {SYNC_S}))
def batch():
    length = batches.read({LENGTH.size})
    if not length:
        sys.exit()
    return batches.read(*struct.unpack({LENGTH.format!r}, length))
READY, DONE, FAILED = range(3)
"""


@pytest.fixture(autouse=True)
def _is_started_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S", 0.001)
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S_MAX", 0.01)


def is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


# ── The process alone ────────────────────────────────────────────────────────────────────────


class ScriptedCommitter:
    """Runs a script in place of the committer, and keeps what it is told."""

    def __init__(self, script: str, batch: bytes | None = b"batch") -> None:
        self.python = sys.executable
        self.script = script
        self.descriptors: Sequence[int] = ()
        self.batch = batch
        self.heard: list[tuple[Sequence[AnyMutation], float]] = []
        self.starts = 0

    @property
    def command(self) -> Sequence[str]:
        self.starts += 1
        return (self.python, "-c", _TOOLS + self.script)

    def encode(self, mutations: Sequence[AnyMutation], size_bytes: int) -> bytes | None:
        return self.batch

    def committed(self, mutations: Sequence[AnyMutation], sync_s: float) -> None:
        self.heard.append((mutations, sync_s))

    def ended(self, mutations: Sequence[AnyMutation]) -> None:
        raise AssertionError("this is up to the writer")


class Start(Protocol):
    def __call__(self, script: str, batch: bytes | None = b"batch") -> Scripted: ...


class Scripted:
    """A process that was started, and the answers it gave."""

    def __init__(self, committer: ScriptedCommitter) -> None:
        self.committer = committer
        self.process = CommitProcess(committer)
        self.answers: list[Answer | None] = []

    def commit(self) -> bool:
        return self.process.commit(BATCH, 1, self.answers.append)

    async def committing(self) -> None:
        """Wait until it takes a batch."""
        await until(self.commit)

    async def answer(self) -> Answer | None:
        """Let it have a batch, and wait for what becomes of that."""
        before = len(self.answers)
        await self.committing()
        await until(lambda: len(self.answers) > before)
        return self.answers[-1]

    @property
    def starts(self) -> int:
        return self.committer.starts

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[Scripted] = []

    def start(script: str, batch: bytes | None = b"batch") -> Scripted:
        scripted = Scripted(ScriptedCommitter(script, batch))
        started.append(scripted)
        scripted.process.start()
        scripted.process.want()
        return scripted

    yield start
    for scripted in started:
        await scripted.process.stop()


async def test_batches_and_answers(start: Start) -> None:
    script = """
answer(READY)
while True:
    answer(DONE if batch() == b"batch" else FAILED)
"""
    scripted = start(script)
    assert not scripted.commit(), "it is not there yet"
    for number in range(1, 20):
        assert await scripted.answer() is Answer.DONE
        assert scripted.committer.heard == [(BATCH, SYNC_S)] * number
    scripted.committer.batch = b"another"
    assert await scripted.answer() is Answer.FAILED
    assert len(scripted.committer.heard) == 19, "nothing was stored"
    assert scripted.starts == 1


async def test_one_batch_at_a_time(start: Start, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"""
answer(READY)
while batch():
    while not os.path.exists({str(go)!r}):
        time.sleep(0.01)
    answer(DONE)
"""
    scripted = start(script)
    await scripted.committing()
    assert not scripted.commit()
    assert scripted.answers == []
    go.touch()
    await until(lambda: scripted.answers == [Answer.DONE])
    assert await scripted.answer() is Answer.DONE


async def test_what_the_engine_has_to_commit_itself(start: Start) -> None:
    scripted = start("answer(READY)\nwhile batch(): answer(DONE)")
    assert await scripted.answer() is Answer.DONE
    scripted.committer.batch = None
    assert not scripted.commit()
    scripted.committer.batch = b"batch"
    assert await scripted.answer() is Answer.DONE


async def test_a_batch_that_fits_no_buffer(start: Start) -> None:
    large = b"x" * 10_000_000
    scripted = start(f"answer(READY)\nwhile batch() == b'x' * {len(large)}: answer(DONE)", large)
    assert await scripted.answer() is Answer.DONE
    assert await scripted.answer() is Answer.DONE


async def test_an_answer_in_pieces(start: Start) -> None:
    script = f"""
def slowly(kind):
    for byte in struct.pack({ANSWER.format!r}, kind, {SYNC_S}):
        channel.sendall(bytes((byte,)))
        time.sleep(0.002)
slowly(READY)
while batch():
    slowly(DONE)
"""
    scripted = start(script)
    for _ in range(3):
        assert await scripted.answer() is Answer.DONE
    assert scripted.committer.heard == [(BATCH, SYNC_S)] * 3


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit()",
        "os.kill(os.getpid(), 9)",
        # Half an answer, which must not become the first half of the next one's.
        f"channel.sendall(struct.pack({ANSWER.format!r}, DONE, 1.0)[:5]); os._exit(1)",
    ],
)
async def test_it_ends_with_a_batch_in_its_hands(start: Start, end: str, tmp_path: Path) -> None:
    once = tmp_path / "once"
    script = f"""
answer(READY)
while batch():
    if not os.path.exists({str(once)!r}):
        open({str(once)!r}, "w").close()
        {end}
    answer(DONE)
"""
    scripted = start(script)
    await scripted.committing()
    first = scripted.pid
    await until(lambda: bool(scripted.answers))
    assert scripted.answers == [None]
    assert not is_there(first), "told before it is certain that nothing more happens"
    assert scripted.committer.heard == []
    assert await scripted.answer() is Answer.DONE
    assert scripted.starts == 2


async def test_an_answer_just_before_its_end_counts(start: Start) -> None:
    scripted = start("answer(READY)\nbatch()\nanswer(DONE)")
    for number in range(1, 4):
        assert await scripted.answer() is Answer.DONE
        # Only one that was asked something ends.
        await until(lambda: scripted.starts > number)  # noqa: B023 - it is called here
    assert scripted.answers == [Answer.DONE] * 3


async def test_one_that_hangs_up_and_does_not_end_is_killed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_END_S", 0.01)
    script = """
answer(READY)
batch()
channel.shutdown(socket.SHUT_RDWR)
time.sleep(600)
"""
    scripted = start(script)
    await scripted.committing()
    first = scripted.pid
    await until(lambda: scripted.answers == [None])
    assert not is_there(first)


@pytest.mark.parametrize("script", ["sys.exit(3)", "raise SystemError", "batch()"])
async def test_one_that_never_gets_ready_is_given_nothing(start: Start, script: str) -> None:
    scripted = start(script)
    if script != "batch()":
        await until(lambda: scripted.starts > 2)
    await until(lambda: scripted.process.pid is not None)
    assert not scripted.commit()
    assert scripted.answers == []


async def test_one_that_cannot_be_started(start: Start) -> None:
    scripted = start("answer(READY)\nwhile batch(): answer(DONE)")
    scripted.committer.python = "/does/not/exist"
    await until(lambda: scripted.process.failures > 3)
    assert not scripted.commit()
    assert "/does/not/exist" in str(scripted.process.problem)
    scripted.committer.python = sys.executable
    assert await scripted.answer() is Answer.DONE


@pytest.mark.parametrize("listens", [True, False])
async def test_it_is_stopped(start: Start, monkeypatch: pytest.MonkeyPatch, listens: bool) -> None:
    if not listens:
        monkeypatch.setattr(service, "_END_S", 0.01)
    scripted = start("answer(READY)\nwhile batch(): answer(DONE)")
    assert await scripted.answer() is Answer.DONE
    if not listens:
        os.kill(scripted.pid, signal.SIGSTOP)
    pid = scripted.pid
    await scripted.process.stop()
    assert not is_there(pid)
    assert not scripted.commit()
    assert scripted.starts == 1


async def test_it_is_stopped_while_it_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was started has ended when `stop` is over."""
    arrived, go = threading.Event(), threading.Event()
    pids: list[int] = []
    popen = subprocess.Popen

    def slow_popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        arrived.set()
        assert go.wait(60)
        process = popen(*arguments, **options)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", slow_popen)
    scripted = Scripted(ScriptedCommitter("answer(READY)\nwhile batch(): answer(DONE)"))
    scripted.process.start()
    scripted.process.want()
    assert await asyncio.to_thread(arrived.wait, 60)
    stopping = begin(scripted.process.stop())
    await asyncio.sleep(0.01)
    go.set()
    await stopping
    assert len(pids) == 1
    assert not is_there(pids[0])


# ── The thread that makes room for it ────────────────────────────────────────────────────────


async def test_jobs_wait_while_another_process_commits() -> None:
    thread = CommitThread()
    done: list[int] = []
    thread.hold()
    works = [begin(thread.run(partial(done.append, number))) for number in range(5)]
    await asyncio.sleep(0.05)
    assert done == []
    assert not thread.is_idle
    thread.release()
    await asyncio.gather(*works)
    assert done == [0, 1, 2, 3, 4]
    await until(lambda: thread.is_idle)
    thread.hold()
    thread.release()
    await thread.run(lambda: done.append(5))
    assert done[-1] == 5
    await thread.stop()


async def test_jobs_that_waited_are_done_before_the_end() -> None:
    thread = CommitThread()
    done: list[int] = []
    thread.hold()
    thread.put(lambda: done.append(1))
    thread.release()
    await thread.stop()
    assert done == [1]


# ── The writer with a database ───────────────────────────────────────────────────────────────


class StartLog(Protocol):
    def __call__(self, script: str | None = None) -> Awaitable[Log]: ...


@pytest.fixture
def engine(tmp_path: Path) -> SqliteEngine:
    return SqliteEngine(tmp_path)


@pytest.fixture
async def start_log(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StartLog]:
    """Start a log with the real committer, or with a script in its place."""
    started: list[Log] = []

    async def start(script: str | None = None) -> Log:
        if script is not None:
            command = (sys.executable, "-c", _TOOLS + script, engine.committer.command[-2])
            monkeypatch.setattr(SqliteCommitter, "command", command)
        log = await Log.start(engine, commit_process=True)
        started.append(log)
        assert log.writer.process is not None
        log.writer.process.want()
        return log

    yield start
    for log in started:
        await log.stop()


class Elsewhere:
    """Who commits when; fails if two do it at the same time."""

    def __init__(self, log: Log, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches = 0
        self.jobs = 0
        self.overlaps = 0
        self._at_work: set[str] = set()
        self._lock = threading.Lock()
        assert log.writer.process is not None
        process, put, commit_here = log.writer.process, log.writer.thread.put, engine.commit
        commit = process.commit

        def commit_elsewhere(mutations: Sequence[AnyMutation], size_bytes: int, done: Done) -> bool:
            def noting(answer: Answer | None) -> None:
                self._end("committer")
                done(answer)

            # First, because it may begin before this returns.
            self._begin("committer")
            taken = commit(mutations, size_bytes, noting)
            if taken:
                self.batches += 1
            else:
                self._end("committer")
            return taken

        def put_noting(job: Callable[[], None]) -> None:
            def noting() -> None:
                self._begin("thread")
                self.jobs += 1
                try:
                    job()
                finally:
                    self._end("thread")

            put(noting)

        def commit_noting(mutations: Sequence[AnyMutation]) -> None:
            if "committer" in self._at_work:
                self.overlaps += 1
            commit_here(mutations)

        monkeypatch.setattr(process, "commit", commit_elsewhere)
        monkeypatch.setattr(log.writer.thread, "put", put_noting)
        monkeypatch.setattr(engine, "commit", commit_noting)

    def _begin(self, who: str) -> None:
        with self._lock:
            self.overlaps += bool(self._at_work - {who})
            self._at_work.add(who)

    def _end(self, who: str) -> None:
        with self._lock:
            self._at_work.discard(who)


async def until_it_commits(log: Log, elsewhere: Elsewhere) -> None:
    await log.create(Create("first"))
    async with asyncio.timeout(60):
        while not elsewhere.batches:
            await log.append("first", data(b"x"))


async def test_it_never_commits_while_something_else_does(
    start_log: StartLog, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await start_log()
    elsewhere = Elsewhere(log, engine, monkeypatch)
    await until_it_commits(log, elsewhere)
    for number in range(8):
        await log.create(Create(f"s{number}"))

    async def write(path: str) -> None:
        for number in range(60):
            await log.append(path, data(b"%d," % number))

    async def replace(path: str) -> None:
        # What is rare is committed by the engine itself.
        for _ in range(15):
            await log.create(Create(path, body=b"x" * 5_000))
            await log.delete(path)

    async def reap() -> None:
        for _ in range(40):
            await log.writer.run(lambda: engine.reap(10))

    batches = elsewhere.batches
    writing = [write(f"s{number}") for number in range(8)]
    await asyncio.gather(*writing, replace("a"), replace("b"), reap())
    assert elsewhere.overlaps == 0
    assert elsewhere.batches > batches + 5
    assert elsewhere.jobs > 40
    for number in range(8):
        assert await read_all(log, f"s{number}") == b"".join(b"%d," % n for n in range(60))


async def test_large_appends_go_into_files(
    start_log: StartLog, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await start_log()
    elsewhere = Elsewhere(log, engine, monkeypatch)
    await until_it_commits(log, elsewhere)
    for path in ("a", "b", "c"):
        await log.create(Create(path))
    batches, bodies = elsewhere.batches, [bytes([number]) * LARGE_BYTES for number in range(5)]
    for body in bodies:
        large = [log.append(path, data(body)) for path in ("a", "b", "c")]
        await asyncio.gather(log.append("first", data(b"x")), *large)
    assert elsewhere.batches > batches
    for path in ("a", "b", "c"):
        assert await read_all(log, path) == b"".join(bodies)
    size = "SELECT max(length(body)) FROM ops"
    assert (await log.writer.run(lambda: engine._query(size)))[0][0] == 1, "the rest is in files"
    assert engine.figures().history.local_bytes > 15 * LARGE_BYTES


async def test_large_appends_after_rows_are_left_to_the_engine(
    start_log: StartLog, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the server knows of the rows or the committer finds them."""
    log = await start_log()
    elsewhere = Elsewhere(log, engine, monkeypatch)
    await until_it_commits(log, elsewhere)
    for path, knows in (("a", True), ("b", False)):
        await log.create(Create(path))
        await log.append(path, data(b"row"))
        if not knows:
            monkeypatch.setattr(engine.history.ledger, "with_rows", lambda runs: [])
        jobs = elsewhere.jobs
        await log.append(path, data(b"l" * LARGE_BYTES))
        assert elsewhere.jobs == jobs + 1
        assert await read_all(log, path) == b"row" + b"l" * LARGE_BYTES
    size = "SELECT count(*) FROM ops WHERE length(body) > 1000"
    assert (await log.writer.run(lambda: engine._query(size)))[0][0] == 2


async def test_the_engine_writes_the_files_that_it_could_not(
    start_log: StartLog, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await start_log()
    elsewhere = Elsewhere(log, engine, monkeypatch)
    await until_it_commits(log, elsewhere)
    await log.create(Create("s"))
    monkeypatch.setattr(engine.history, "new_id", iter(range(10, 40)).__next__)
    engine.history.ensure_directory()
    for number in range(10, 12):
        (engine.history.directory / segment_format.draft_name(number)).mkdir()
    jobs = elsewhere.jobs
    await log.append("s", data(b"l" * LARGE_BYTES))
    assert elsewhere.jobs == jobs + 1
    assert await read_all(log, "s") == b"l" * LARGE_BYTES


def test_which_batches_it_takes(engine: SqliteEngine) -> None:
    encode = engine.committer.encode
    small = [Appended(1, start, bytes(1_000), start, 1, 5) for start in range(LARGE_BYTES // 500)]
    large = Appended(2, 0, bytes(LARGE_BYTES), 0, 1, 5)
    many = [
        Appended(run, 0, large.body, 0, 1, 5) for run in range(2, 3 + SHARED_BYTES // LARGE_BYTES)
    ]
    assert encode(small, LARGE_BYTES) is not None
    assert encode(small, 4 * LARGE_BYTES) is None, "too much to copy"
    assert encode([large], LARGE_BYTES) is None, "nothing is shared yet"
    assert len(engine.committer.descriptors) == 2
    batch = encode([*small, large], 3 * LARGE_BYTES)
    assert batch is not None
    assert len(batch) < 3 * LARGE_BYTES
    assert encode([*small, large], 4 * LARGE_BYTES) is None
    assert encode([Appended(2, 0, b"s", 0, 1, 5), large], 2 * LARGE_BYTES) is None, "after a row"
    assert encode(many[:-1], len(many) * LARGE_BYTES) is not None
    assert encode(many, len(many) * LARGE_BYTES) is None, "more than is shared"
    engine.committer.close()
    assert encode([large], LARGE_BYTES) is None


def test_a_system_that_has_nothing_to_share(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_bodies, "_DIRECTORY", tmp_path / "none")
    assert len(engine.committer.descriptors) == 1
    assert engine.committer.command[-1] == ""
    assert engine.committer.encode([Appended(2, 0, bytes(LARGE_BYTES), 0, 1, 5)], 1_000_000) is None


def test_memory_that_is_promised_but_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    shared = shared_bodies.SharedBodies()
    assert not shared.put([b"early"])
    assert shared.descriptor() is not None
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert not shared.put([b"late"])
    monkeypatch.undo()
    assert not shared.put([b"later"]), "the process may have been told that there is none"
    shared.close()


def test_what_is_shared_is_seen_by_both() -> None:
    shared = shared_bodies.SharedBodies()
    descriptor = shared.descriptor()
    assert descriptor is not None
    borrowed = shared_bodies.BorrowedBodies(os.dup(descriptor))
    for bodies in ([b"one", b"three"], [b"", b"x" * SHARED_BYTES], [b"again"]):
        assert shared.put(bodies)
        assert borrowed.look_at([*map(len, bodies)]) == bodies
    assert not shared.put([b"x" * SHARED_BYTES, b"y"])
    shared.close()


async def test_a_lone_client_is_served_by_one_at_a_time(
    start_log: StartLog, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await start_log()
    elsewhere = Elsewhere(log, engine, monkeypatch)
    await until_it_commits(log, elsewhere)
    # Only now: what the loop commits leaves it no time to start a process.
    log.writer.is_alone = lambda: True
    await log.create(Create("s"))
    for number in range(300):
        await log.append("s", data(b"%d," % number))
        if number % 50 == 0:
            await asyncio.gather(*(log.append("first", data(b"x")) for _ in range(3)))
    assert elsewhere.overlaps == 0
    assert await read_all(log, "s") == b"".join(b"%d," % number for number in range(300))


FAILING = "answer(READY)\nwhile batch(): answer(FAILED)"
ENDING = "answer(READY)\nbatch()"
STORING = """
from pathlib import Path
from headwater.store.sqlite import committer
def carry_out(commits, batch, carry_out=committer._carry_out):
    carry_out(commits, batch)
    os._exit(1)
committer._carry_out = carry_out
batches.close()
channel.detach()
committer.main(Path(sys.argv[1]))
"""


async def test_the_engine_commits_what_it_could_not(
    start_log: StartLog, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await start_log(FAILING)
    elsewhere = Elsewhere(log, engine, monkeypatch)
    await until_it_commits(log, elsewhere)
    await log.create(Create("s"))
    await asyncio.gather(*(log.append("s", data(b"x")) for _ in range(20)))
    before, alone = elsewhere.batches, 0
    async with asyncio.timeout(60):
        # What comes while the thread is at work is left to it.
        while elsewhere.batches == before:
            await log.append("s", data(b"y"))
            alone += 1
    assert elsewhere.overlaps == 0
    assert await read_all(log, "s") == b"x" * 20 + b"y" * alone
    assert log.writer.failures == 0


async def until_nobody_knows(log: Log, body: bytes) -> bytes:
    """Append until the committer has ended with an append; returns what was stored before."""
    before = b""
    async with asyncio.timeout(60):
        while True:
            found = await outcome(log.append("s", data(body)))
            if found is OutcomeUnknown:
                return before
            before += body


@pytest.mark.parametrize("stored", [True, False])
async def test_nobody_knows_what_became_of_a_batch(start_log: StartLog, stored: bool) -> None:
    log = await start_log(STORING if stored else ENDING)
    await log.create(Create("s"))
    before = await until_nobody_knows(log, b"a")
    # The thread does it, without a pause. Later there may be a new committer, which ends as well.
    await log.append("s", data(b"b"))
    after = before + b"a" if stored else before
    assert await read_all(log, "s") == after + b"b"


@pytest.mark.parametrize("stored", [True, False])
async def test_a_producer_finds_out(start_log: StartLog, stored: bool) -> None:
    log = await start_log(STORING if stored else ENDING)
    await log.create(Create("s"))
    unknown = seq = 0
    found = None
    async with asyncio.timeout(60):
        while unknown < 3 or found is OutcomeUnknown:
            found = await outcome(log.append("s", data(b"%d," % seq, ("p", 0, seq))))
            if found is OutcomeUnknown:
                unknown += 1
            else:
                seq += 1
    assert await read_all(log, "s") == b"".join(b"%d," % number for number in range(seq))


async def test_what_waited_for_such_a_batch_is_refused(
    start_log: StartLog, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    waiting = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    log = await start_log(f"{ENDING}\n{waiting}")
    elsewhere = Elsewhere(log, engine, monkeypatch)
    await log.create(Create("s"))
    before = b""
    async with asyncio.timeout(60):
        while True:
            first = begin(outcome(log.append("s", data(b"a"))))
            await asyncio.sleep(0)
            await until(lambda: first.done() or elsewhere.batches > 0)  # noqa: B023
            if not first.done():
                break
            before += b"a"
    others = [begin(outcome(log.append("s", data(b"b")))) for _ in range(3)]
    job = begin(log.writer.run(lambda: engine.reap(10)))
    await asyncio.sleep(0.05)
    assert not job.done(), "the committer may be at work"
    go.touch()
    assert await first is OutcomeUnknown
    assert [await other for other in others] == [StorageUnavailable] * 3
    await job
    assert elsewhere.overlaps == 0
    assert await read_all(log, "s") == before


async def test_history_knows_of_what_was_stored_after_all(
    start_log: StartLog, engine: SqliteEngine
) -> None:
    """Otherwise it would stay in rows until the stream grows, or the server is started again."""
    log = await start_log(STORING)
    await log.writer.run(engine.history.keep_ledger)
    await log.create(Create("s"))
    stored = await until_nobody_knows(log, b"x" * 1_000)
    assert engine.history.ledger._total == len(stored) + 1_000


async def test_it_is_started_when_requests_begin_to_share_commits(engine: SqliteEngine) -> None:
    log = await Log.start(engine, commit_process=True)
    process = log.writer.process
    assert process is not None
    await log.create(Create("s", "text/plain"))
    for _ in range(50):
        await log.append("s", Append(b"alone", "text/plain"))
    assert process.pid is None
    await asyncio.gather(*[log.append("s", Append(b"together", "text/plain")) for _ in range(2)])
    async with asyncio.timeout(60):
        while process.pid is None:  # noqa: ASYNC110 - another process is started
            await asyncio.sleep(0.01)
    await log.stop()
