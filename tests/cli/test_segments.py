"""segments and restore at the prompt."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.test_verify import damage_of
from tests.conftest import StartServer
from tests.http.client import eventually
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
