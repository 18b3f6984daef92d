"""segments and restore at the prompt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.core.decisions import Append, Create
from headwater.store.history.object_storage import Remote
from headwater.store.postgresql.history import PostgresqlHistory
from tests.cli.conftest import Run
from tests.cli.test_verify import damage_of
from tests.conftest import StartServer
from tests.http.client import eventually
from tests.support.archiving import archived, gather, objects, seal
from tests.support.decided import CommittedStreams
from tests.support.postgresql import EngineDatabase
from tests.support.sealing import SEALING_AT_ONCE


def served(start_server: StartServer, run: Run, data: Path, *more: str) -> None:
    """A server with history was here."""
    server = start_server("--data", str(data), *SEALING_AT_ONCE, *more)
    for number in range(3):
        run("create", f"s{number}", STREAM_URL=server.url)
        run("append", f"s{number}", '{"n": 1}', STREAM_URL=server.url)
        eventually(lambda number=number: len(names(data)) > number)  # type: ignore[misc]
    server.stop()


def names(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "segments").glob("*.seg"))


def test_files_are_listed_verified_and_compacted(
    start_server: StartServer, run: Run, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    served(start_server, run, data)
    listed = run("segments", "ls", str(data)).out.splitlines()
    assert [line.split()[0] for line in listed] == names(data)
    first = run("segments", "ls", str(data), "--json").records[0]
    assert (first["name"], first["streams"], first["place"]) == (names(data)[0], 1, "here")
    assert run("segments", "verify", str(data)).out == "ok\n"
    became = run("segments", "compact", str(data), "--json").record
    assert (became["files_before"], became["files_after"]) == (len(listed), 1)
    assert run("verify", str(data)).out == "ok\n"
    (path,) = (data / "segments").iterdir()
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    assert path.name in run("segments", "verify", str(data), code=1).out
    assert "s0" in damage_of(data)


def test_a_directory_is_restored_from_object_storage(
    start_server: StartServer, run: Run, tmp_path: Path
) -> None:
    data, far, new = tmp_path / "data", (tmp_path / "far"), tmp_path / "new"
    server = start_server("--data", str(data), *SEALING_AT_ONCE, "--history-store", far.as_uri())
    run("create", "orders", STREAM_URL=server.url)
    run("append", "orders", '{"n": 1}', STREAM_URL=server.url)
    # The catalog that knows of the upload.
    eventually(lambda: len([*(far / "segments").glob("*.seg")]) > 0)
    uploaded = len([*(far / "catalogs").glob("*")])
    eventually(lambda: len([*(far / "catalogs").glob("*")]) > uploaded)
    server.stop()
    assert run("segments", "verify", str(data), "--store", far.as_uri()).out == "ok\n"
    told = run("restore", "--from", far.as_uri(), "--data", str(new))
    assert told.out.startswith("1 streams")
    assert "orders" not in told.out, "nothing of it is missing"
    again = start_server("--data", str(new), "--history-store", far.as_uri())
    assert run("read", "orders", STREAM_URL=again.url).out == '{"n": 1}\n'


def test_what_nobody_knows_of_is_found_and_removed(
    start_server: StartServer, run: Run, tmp_path: Path
) -> None:
    data, far = tmp_path / "data", tmp_path / "far"
    served(start_server, run, data, "--history-store", far.as_uri())
    server = start_server("--data", str(data), "--history-store", far.as_uri())
    eventually(lambda: names(far) == names(data))
    store = ("--store", far.as_uri())
    assert run("segments", "sweep", str(data), *store).out == ""
    orphan = "0000009999-0123456789abcdef0123456789abcdef.seg"
    (far / "segments" / orphan).write_bytes(b"of a machine that is lost")
    assert run("segments", "sweep", str(data), *store).out == f"{orphan}\n"
    record = run("segments", "sweep", str(data), *store, "--remove", "--json").record
    assert record == {"name": orphan, "removed": True}
    server.stop()
    assert names(far) == names(data)
    other = tmp_path / "other"
    start_server("--data", str(other)).stop()
    assert "another server" in run("segments", "sweep", str(other), *store, code=1).err
    assert names(far) == names(data)


def test_what_cannot_be_done_is_said(run: Run, tmp_path: Path) -> None:
    far = (tmp_path / "far").as_uri()
    assert "no catalog" in run("restore", "--from", far, "--data", str(tmp_path / "x"), code=1).err
    assert "cannot be used" in run("restore", "--from", "x://", "--data", "y", code=2).err
    for command in (["ls"], ["verify"], ["compact"], ["sweep", "--store", far]):
        assert "no headwater database" in run("segments", *command, str(tmp_path), code=2).err
    assert "cannot be used" in run("segments", "sweep", str(tmp_path), "--store", "x", code=2).err


def test_a_server_refuses_a_store_that_leads_nowhere(run: Run, tmp_path: Path) -> None:
    arguments = ("--data", str(tmp_path), "--port", "0", "--history-store", "nonsense")
    assert "cannot be used as object storage" in run("serve", *arguments, code=1).err
    # And has let go of its directory.
    assert run("segments", "compact", str(tmp_path)).out.startswith("0 files")


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────

TEXT = "text/plain"


@contextmanager
def sealed(database: EngineDatabase, directory: Path) -> Iterator[PostgresqlHistory]:
    """A node with two files of history."""
    with archived(database.url, directory) as (engine, history):
        streams = CommittedStreams(engine)
        for path in ("a", "b"):
            streams.create(Create(path, TEXT), 1_000)
            streams.append(path, Append(b"something to keep;" * 9, TEXT), 1_001)
            seal(history)
        streams.append("a", Append(b"later;", TEXT), 1_002)
        yield history


def test_files_of_a_database_are_listed_and_verified(
    database: EngineDatabase, run: Run, tmp_path: Path
) -> None:
    store = ("--store", (tmp_path / "objects").as_uri())
    with sealed(database, tmp_path) as history:
        history.announce(gather(history), 5)
        listed = run("segments", "ls", database.url, "--json").records
        assert {one["name"] for one in listed[:2]} == objects(tmp_path)
        assert [one["place"] for one in listed] == ["object storage"] * 2 + ["uploading"]
        assert [one["needed_bytes"] for one in listed] == [162, 162, 0]
        assert len(run("segments", "ls", database.url).lines) == 3
        assert run("segments", "verify", database.url, *store).out == "ok\n"
        first, second = sorted((tmp_path / "objects" / "segments").glob("*.seg"))
        content = bytearray(first.read_bytes())
        content[20] ^= 1
        first.write_bytes(content)
        second.unlink()
        found = run("segments", "verify", database.url, *store, code=1)
        assert [line.split(":")[0] for line in found.lines] == [first.name, second.name]
        assert "2 of 2 files" in found.err
        database.query("DELETE FROM extents")
        database.query("UPDATE segments SET unused_at = 5 WHERE remote = 1")
        assert run("segments", "verify", database.url, *store).out == "ok\n"
        listed = run("segments", "ls", database.url, "--json").records
        assert [one["place"] for one in listed] == ["going", "going", "uploading"]


def test_what_a_database_does_not_know_is_found_and_removed(
    database: EngineDatabase, run: Run, tmp_path: Path
) -> None:
    store = ("--store", (tmp_path / "objects").as_uri())
    orphan = "0000009999-0123456789abcdef0123456789abcdef.seg"
    assert run("cluster", "init", database.url).code == 0
    assert run("segments", "sweep", database.url, *store).out == ""
    with sealed(database, tmp_path) as history:
        known = objects(tmp_path)
        (tmp_path / "objects" / "segments" / orphan).write_bytes(b"after the moment of the backup")
        assert run("segments", "sweep", database.url, *store).out == f"{orphan}\n"
        record = run("segments", "sweep", database.url, *store, "--remove", "--json").record
        assert record == {"name": orphan, "removed": True}
        assert objects(tmp_path) == known
        history.remote.put_owner("somebody else")
        for command in ("sweep", "verify"):
            assert "another server" in run("segments", command, database.url, *store, code=1).err
        (tmp_path / "objects" / "owner").unlink()
        assert "another server" in run("segments", "sweep", database.url, *store, code=1).err
        assert objects(tmp_path) == known


def test_what_cannot_be_done_with_a_database_is_said(
    database: EngineDatabase, run: Run, tmp_path: Path
) -> None:
    store = ("--store", (tmp_path / "objects").as_uri())
    assert "--seal-after-ms" in run("segments", "compact", database.url, code=2).err
    assert "--store" in run("segments", "verify", database.url, code=2).err
    nowhere = "postgresql://me:secret@127.0.0.1:1/none"
    for command in (["ls"], ["verify", *store], ["sweep", *store]):
        error = run("segments", *command, nowhere, code=1).err
        assert "127.0.0.1:1/none" in error
        assert "secret" not in error
    Remote(store[1]).put_owner("a database")
    told = run("restore", "--from", store[1], "--data", str(tmp_path / "new"), code=1).err
    assert "PostgreSQL" in told
