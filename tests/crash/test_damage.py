"""Damaged files: a clear error or the right data, never anything else.

Most cases run in this process, which makes it possible to try every page and many bytes. Some go
through a real server, to see what a client and an operator get to see.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import apsw
import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import DataCorrupt, StorageUnavailable, StreamNotFound
from headwater.core.lineage import ForkRequest
from headwater.core.offsets import Anchor, Offset, parse_offset
from headwater.core.producers import ProducerStamp
from headwater.service.log import Log
from headwater.store.engine import Problem
from headwater.store.sqlite.database import DATABASE_NAME, DataDirectoryError, connect
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.sqlite.schema import SCHEMA_VERSION
from headwater.store.verify import verify_database
from tests.crash.check import headwater
from tests.crash.wire import Wire
from tests.support.server import ServerFailedError, ServerProcess

PAGE_BYTES, SECTOR_BYTES, DATABASE_HEADER_BYTES = 4096, 512, 100
WAL_NAME = f"{DATABASE_NAME}-wal"
WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
TEXT = "text/plain"
LAST = "last"
LAST_COMMIT_FRAMES = 12

# Root may write wherever it likes, unless that is taken from it.
ORDINARY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")

Contents = dict[str, bytes]

pytestmark = pytest.mark.crash


@dataclass(frozen=True)
class Original:
    """Two copies of the same streams: one stopped in peace, one as a crash leaves it."""

    stopped: Path
    crashed: Path
    contents: Contents


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    directory = tmp_path_factory.mktemp("original")
    return asyncio.run(build(directory))


async def build(directory: Path) -> Original:
    rng = Random(1)
    stopped, crashed = directory / "stopped", directory / "crashed"
    log = await Log.start(SqliteEngine(stopped))
    for number in range(8):
        path = f"streams/{number}"
        await log.create(Create(path, TEXT))
        for seq in range(10):
            # Small ones share a page, large ones take several.
            body = bytes(rng.choices(b"abcdef", k=rng.choice((20, 300, 6_000))))
            await log.append(path, Append(body, TEXT, producer=ProducerStamp("p", 0, seq)))
    await log.create(Create("forks/0", fork=ForkRequest("streams/0")))
    await log.append("forks/0", Append(b"of its own", TEXT))
    await log.create(Create(LAST, TEXT, b"before the end"))
    shutil.copytree(stopped, crashed)
    contents = {path: await read(log, path) for path in await names(log)}
    await log.stop()
    return Original(stopped, crashed, contents)


async def names(log: Log) -> list[str]:
    return [summary.path for summary in await log.list_streams("", "", 1_000)]


async def read(log: Log, path: str) -> bytes:
    content = b""
    offset: Anchor | Offset = Anchor.START
    while True:
        chunk = await log.read(path, offset)
        content += b"".join(chunk.bodies)
        if chunk.up_to_date:
            return content
        offset = parse_offset(chunk.next_offset)


# ── In this process ──────────────────────────────────────────────────────────────────────────


def flip(data: bytearray, position: int, rng: Random) -> None:
    data[position] ^= rng.randrange(1, 256)


def tear(data: bytearray, position: int, rng: Random) -> None:
    """A sector that was never written: something else is in its place."""
    start = position - position % SECTOR_BYTES
    data[start : start + SECTOR_BYTES] = rng.randbytes(SECTOR_BYTES)


Damage = Callable[[bytearray, int, Random], None]


def spoil(file: Path, damage: Damage, position: int, rng: Random) -> None:
    data = bytearray(file.read_bytes())
    size = len(data)
    damage(data, position, rng)
    file.write_bytes(data[:size])


def fresh_copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def problems(directory: Path) -> list[Problem]:
    found = verify_database(directory / DATABASE_NAME)
    return [result for result in found if isinstance(result, Problem)]


async def look(directory: Path, expected: Contents) -> set[str]:
    """Use a directory and say what came of it, over all streams. Anything unforeseen raises."""
    try:
        log = await Log.start(SqliteEngine(directory))
    except DataDirectoryError as error:
        if "\n" in str(error):
            pytest.fail(f"more than one line: {error}")
        return {"refused"}
    outcomes: set[str] = set()
    try:
        for path, content in expected.items():
            try:
                found = await read(log, path)
            except (DataCorrupt, StorageUnavailable):
                outcomes.add("error")
            else:
                assert found == content, f"{path} reads wrong"
                outcomes.add("right")
    finally:
        await log.stop()
    return outcomes


async def test_damage_in_any_page(original: Original, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    size = (original.stopped / DATABASE_NAME).stat().st_size
    a_byte_of_each_page = [
        page * PAGE_BYTES + rng.randrange(PAGE_BYTES) for page in range(size // PAGE_BYTES)
    ]
    outcomes: set[str] = set()
    for position in [*range(DATABASE_HEADER_BYTES), *a_byte_of_each_page]:
        copy = fresh_copy(original.stopped, tmp_path / "copy")
        spoil(copy / DATABASE_NAME, rng.choice((flip, tear)), position, rng)
        assert problems(copy), f"verify finds nothing wrong with byte {position}"
        outcomes |= await look(copy, original.contents)
    assert outcomes == {"refused", "error", "right"}


async def test_damage_in_the_log(original: Original, tmp_path: Path, seed: int) -> None:
    """What a crash leaves in the log is all that there is of the last appends."""
    rng = Random(seed)
    size = (original.crashed / WAL_NAME).stat().st_size
    frame_bytes = FRAME_HEADER_BYTES + PAGE_BYTES
    heads = [
        WAL_HEADER_BYTES + frame * frame_bytes + byte
        for frame in (0, 1, 30)
        for byte in range(0, FRAME_HEADER_BYTES, 3)
    ]
    anywhere = rng.sample(range(size - LAST_COMMIT_FRAMES * frame_bytes), 40)
    for position in [*range(0, WAL_HEADER_BYTES, 2), *heads, *anywhere]:
        copy = fresh_copy(original.crashed, tmp_path / "copy")
        spoil(copy / WAL_NAME, rng.choice((flip, tear)), position, rng)
        assert problems(copy), f"verify finds nothing wrong with byte {position}"
        assert await look(copy, original.contents) == {"refused"}


async def test_a_log_that_a_crash_cut_off(original: Original, tmp_path: Path, seed: int) -> None:
    """The last commit never happened, as far as anyone can tell. The others did."""
    rng = Random(seed)
    size = (original.crashed / WAL_NAME).stat().st_size
    rest = {path: content for path, content in original.contents.items() if path != LAST}
    for _ in range(20):
        copy = fresh_copy(original.crashed, tmp_path / "copy")
        # Its first page is not there, although later ones are, or the end is missing.
        if rng.random() < 0.5:
            spoil(copy / WAL_NAME, tear, size - rng.randrange(1, PAGE_BYTES), rng)
        else:
            os.truncate(copy / WAL_NAME, size - rng.randrange(1, PAGE_BYTES))
        assert not problems(copy)
        assert await look(copy, rest) == {"right"}
        log = await Log.start(SqliteEngine(copy))
        with pytest.raises(StreamNotFound):
            await read(log, LAST)
        await log.stop()


# ── Through a server ─────────────────────────────────────────────────────────────────────────


def refusal(directory: Path, under: Sequence[str] = ()) -> str:
    """The one line with which a server does not start."""
    done = headwater("serve", "--data", str(directory), "--port", "0", under=under)
    assert done.returncode != 0
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("headwater: ")
    return line


async def assert_honest(server: ServerProcess, contents: Contents) -> None:
    """Every stream is right, or the client is told what is wrong in the usual form."""
    wire = Wire(server.port)
    for path, content in contents.items():
        reply = await wire.request("GET", path, query="offset=-1")
        if reply.status == 200:
            assert reply.body == content
        else:
            assert reply.status in (500, 503), reply
            error = json.loads(reply.body)["error"]
            assert error["code"] in ("data_corrupt", "storage_unavailable")
        assert b"Traceback" not in reply.body
    await wire.close()


@pytest.mark.parametrize("name", [DATABASE_NAME, WAL_NAME])
async def test_a_server_on_damaged_files(
    name: str, original: Original, tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    source = original.stopped if name == DATABASE_NAME else original.crashed
    for _ in range(2):
        copy = fresh_copy(source, tmp_path / "copy")
        size = (copy / name).stat().st_size
        spoil(copy / name, flip, rng.randrange(size // 2), rng)
        verified = headwater("verify", str(copy))
        assert verified.returncode == 1
        assert "Traceback" not in verified.stderr
        server = ServerProcess("--data", str(copy))
        try:
            server.start()
        except ServerFailedError:
            # And it stays refused: the attempt has changed nothing.
            assert str(copy / name) in refusal(copy)
        else:
            await assert_honest(server, original.contents)
            assert server.stop() == 0
        assert "Traceback" not in server.stderr


def truncate_to(size: int | float) -> Callable[[Path], None]:
    """Cut a database to a size in bytes, or to a part of what it was."""

    def change(directory: Path) -> None:
        file = directory / DATABASE_NAME
        keep = size if isinstance(size, int) else int(file.stat().st_size * size)
        os.truncate(file, keep)

    return change


def come_from_the_future(directory: Path) -> None:
    connection = connect(directory / DATABASE_NAME)
    connection.pragma("user_version", SCHEMA_VERSION + 1)
    connection.close()


def belong_to_someone_else(directory: Path) -> None:
    (directory / DATABASE_NAME).unlink()
    connection = apsw.Connection(str(directory / DATABASE_NAME))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()


@pytest.mark.parametrize(
    "change, message",
    [
        pytest.param(truncate_to(0), "is empty", id="empty"),
        pytest.param(truncate_to(50), "cannot be read", id="50-bytes"),
        pytest.param(truncate_to(2 * PAGE_BYTES), "cannot be read", id="two-pages"),
        pytest.param(truncate_to(0.7), "cannot be read", id="most-of-it"),
        pytest.param(come_from_the_future, "written by a newer headwater", id="newer"),
        pytest.param(belong_to_someone_else, "not a headwater database", id="foreign"),
    ],
)
def test_a_database_that_is_refused(
    change: Callable[[Path], None], message: str, original: Original, tmp_path: Path
) -> None:
    copy = fresh_copy(original.stopped, tmp_path / "copy")
    change(copy)
    before = (copy / DATABASE_NAME).read_bytes()
    assert message in refusal(copy)
    assert (copy / DATABASE_NAME).read_bytes() == before


def test_a_log_without_its_database(original: Original, tmp_path: Path) -> None:
    copy = fresh_copy(original.crashed, tmp_path / "copy")
    (copy / DATABASE_NAME).unlink()
    assert "is missing" in refusal(copy)
    assert (copy / WAL_NAME).exists()


async def test_a_truncated_database_with_a_log(original: Original, tmp_path: Path) -> None:
    """Much of it may be in the log; what is not must be missed."""
    copy = fresh_copy(original.crashed, tmp_path / "copy")
    os.truncate(copy / DATABASE_NAME, PAGE_BYTES)
    await look(copy, original.contents)


def test_two_servers_on_one_directory(tmp_path: Path) -> None:
    with ServerProcess("--data", str(tmp_path)) as server:
        line = refusal(tmp_path)
        assert "in use" in line
        assert str(server.pid) in line


def test_a_directory_without_write_permission(original: Original, tmp_path: Path) -> None:
    under = () if os.geteuid() else ORDINARY
    if under and (not shutil.which(under[0]) or subprocess.run([*under, "true"]).returncode):
        pytest.skip("nothing is forbidden to root")
    copy = fresh_copy(original.stopped, tmp_path / "copy")
    copy.chmod(0o555)
    (copy / "LOCK").chmod(0o444)
    try:
        assert "Permission denied" in refusal(copy, under)
    finally:
        copy.chmod(0o755)
