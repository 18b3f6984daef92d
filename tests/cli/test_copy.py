"""copy: one of everything goes to PostgreSQL and comes back, and servers go on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.store.copying import TABLES
from tests.cli.conftest import Run
from tests.conftest import StartServer
from tests.support.postgresql import EngineDatabase, shared_server
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}
STAMP = JSON | {"Producer-Id": "shop", "Producer-Epoch": "0", "Producer-Seq": "0"}


class Client:
    """Requests that have to succeed."""

    def __init__(self, server: ServerProcess) -> None:
        self._url = f"{server.url}/v1/stream/"

    def __call__(self, method: str, path: str, json: Any = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = httpx.request(method, self._url + path, json=json, headers=JSON | named)
        assert answer.is_success, answer.text
        return answer


def fill(send: Client) -> None:
    """Something in every table."""
    send("PUT", "orders", Stream_Unique_Ids="succeed", Stream_Id_Pointer="/id")
    offset = send("POST", "orders", [{"id": "a\0"}, {"id": "b"}]).headers["stream-next-offset"]
    assert send("POST", "orders", {"id": "c"}, **STAMP).status_code == 200
    send("PUT", f"orders/_snapshots/{offset}", {"sum": 2})
    send("PUT", "orders/_groups/work", {"ack_timeout_ms": 600_000})
    send("POST", "orders/_groups/work/fetch", {"consumer": "w", "max": 1})
    send("PUT", "source", ["inherited"])
    send("PUT", "fork", Stream_Forked_From="source")
    send("DELETE", "source")
    send("PUT", "gone", ["kept"])
    send("DELETE", "gone")
    send("PUT", "table")
    profile = {"kind": "state-protocol", "touch": {"enabled": True}}
    send("POST", "table/_profile", {"apiVersion": "durable.streams/profile/v1", "profile": profile})
    template = {"entity": "t", "fields": [{"name": "f", "encoding": "string"}]}
    send("POST", "table/touch/templates/activate", {"templates": [template]})
    pull = {"type": "pull-wake", "pattern": "inbox/*", "wake_stream": "wakes"}
    send("PUT", "__ds/subscriptions/mail", pull)
    send("POST", "__ds/subscriptions/mail/streams", {"streams": ["orders"]})
    send("PUT", "inbox/ann", ["hello"])
    send("POST", "__ds/subscriptions/mail/claim", {"worker": "postman"})


def check(send: Client) -> None:
    """What was there is there, and nothing begins again."""
    assert [one["id"] for one in send("GET", "orders").json()] == ["a\0", "b", "c"]
    assert send("POST", "orders", {"id": "c"}, **STAMP).status_code == 204
    assert send("POST", "orders", {"id": "b"}).headers["stream-duplicate-ids"] == "1"
    assert send("GET", "fork").json() == ["inherited"]
    assert send("POST", "gone/_undelete").is_success
    assert send("GET", "gone").json() == ["kept"]
    assert send("GET", "orders/_groups/work").json()["in_flight"] == 1
    fetched = send("POST", "orders/_groups/work/fetch", {"consumer": "w", "max": 5}).json()
    assert len(fetched["messages"]) == 2
    assert len(send("GET", "orders/_snapshots").json()["snapshots"]) == 1
    send("GET", "__ds/subscriptions/mail")


def test_there_and_back(
    start_server: StartServer, run: Run, tmp_path: Path, database: EngineDatabase
) -> None:
    data, again = tmp_path / "data", tmp_path / "again"
    keep = ("--undelete-grace-s", "3600")
    server = start_server("--data", str(data), *SEALING_AT_ONCE, *keep)
    fill(Client(server))
    assert "in use" in run("copy", str(data), database.url, code=1).err
    server.stop()

    there = run("copy", str(data), database.url, "--json")
    empty = {table for table, count in there.record["rows"].items() if not count}
    # What nobody needs any more may have been cleared away already.
    assert empty <= {"releases"}
    assert {*there.record["rows"]} == {*TABLES}
    assert there.record["target"].startswith("postgresql://127.0.0.1:")
    assert "postgres:" not in there.out + there.err
    assert run("verify", database.url).out == "ok\n"
    back = run("copy", database.url, str(again), "--json")
    assert back.record["digest"] == there.record["digest"]
    assert run("verify", str(again)).out == "ok\n"

    for place in (("--engine", database.url), ("--data", str(again))):
        server = start_server(*place, *keep)
        check(Client(server))
        assert server.stop() == 0


def test_keys_stay_where_they_are(run: Run, tmp_path: Path, database: EngineDatabase) -> None:
    data = tmp_path / "data"
    run("keys", "create", "--name", "me", "--data", str(data), "--admin", "*")
    server = ServerProcess("--data", str(data))
    server.start()
    server.stop()
    said = run("copy", str(data), database.url).err
    assert f"--keys-file {data / 'keys.json'}" in said
    assert database.url not in said


def test_two_directories(run: Run, tmp_path: Path) -> None:
    said = run("copy", str(tmp_path), str(tmp_path / "b"), code=2).err
    assert "`headwater backup` copies a directory" in said


def test_backup_of_postgresql(run: Run, tmp_path: Path) -> None:
    said = run("backup", "postgresql://db/headwater", "--to", str(tmp_path / "b"), code=2).err
    assert "pg_dump" in said
    assert "headwater copy" in said


def test_verify_says_what_is_damaged(
    run: Run, database: EngineDatabase, start_server: StartServer
) -> None:
    server = start_server("--engine", database.url)
    Client(server)("PUT", "s", ["whole"])
    # While a node uses it.
    assert run("verify", database.url).out == "ok\n"
    database.query("UPDATE ops SET body = 'other'")
    said = CliRunner().invoke(app, ["verify", database.url])
    assert said.exit_code == 1
    assert "is not what was committed" in said.stdout
    assert "restore it from a copy" in said.stderr.splitlines()[-1]


def test_verify_without_a_database(run: Run) -> None:
    said = run("verify", "postgresql://127.0.0.1:1/headwater", code=1).err
    assert "does not answer" in said
    assert "holds no streams of headwater" in run("verify", shared_server().dsn, code=1).err
