"""What HTTP offers beside reading and writing: settings, ids, snapshots, transactions, layers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Headwater, StateProtocol, TouchSettings
from tests.cli.conftest import Run, Spawn
from tests.cli.plain_server import answering_server, trickling_server
from tests.support.server import ServerProcess, free_port

# ── Settings ─────────────────────────────────────────────────────────────────────────────────


def test_versions_of_settings(run: Run, client: Headwater, path: str) -> None:
    run("create", path, "--keep", "1h", "--version", "2")
    assert client.stream(path).head().retention_s == 3600
    run("create", path, "--keep", "2h", "--version", "3")
    assert client.stream(path).head().retention_s == 7200
    run("create", path, "--keep", "9h", "--version", "1")  # older: nothing changes
    assert client.stream(path).head().retention_s == 7200
    assert "another configuration" in run("create", path, "--version", "3", code=4).err
    assert "settings" in run("create", path, "--version", "4", "--data", "1", code=2).err


def test_set_changes_what_is_named_and_nothing_else(run: Run, path: str) -> None:
    run("create", path, "--keep", "1h", "--unique-ids", "succeed", "--description", "before")
    record = run("set", path, "--keep-bytes", "10MB", "--json").record
    assert record["version"] == 1
    assert (record["retention_s"], record["retention_bytes"]) == (3600, 10_000_000)
    assert (record["unique_ids"], record["description"]) == ("succeed", "before")
    record = run(
        "set", path, "--keep", "none", "--ttl", "1d", "--description", "x", "--json"
    ).record
    assert (record["version"], record["retention_s"], record["ttl_s"]) == (2, None, 86_400)
    record = run("set", path, "--expires-at", "2999-01-01T00:00:00Z", "--json").record
    assert (record["ttl_s"], record["expires_at"]) == (None, "2999-01-01T00:00:00Z")
    assert run("set", path, "--expires-at", "none", "--json").record["expires_at"] is None
    assert "nothing to change" in run("set", path, code=2).err
    assert "no stream" in run("set", f"{path}/no", "--keep", "1h", code=3).err
    for option, value in (("--keep", "soon"), ("--keep-bytes", "much"), ("--expires-at", "x")):
        run("set", path, option, value, code=2)


def test_ids_are_taken_once(run: Run, path: str) -> None:
    run("create", path, "--unique-ids", "succeed")
    assert run("append", path, "1", "--id", "a", "--json").record["duplicates"] == 0
    assert run("append", path, "1", "--id", "a", "--json").record["duplicates"] == 1
    assert run("read", path).lines == ["1"]
    run("create", f"{path}/inside", "--unique-ids", "fail", "--id-pointer", "/id")
    run("append", f"{path}/inside", '{"id": "x"}')
    run("append", f"{path}/inside", '{"id": "x"}', code=4)
    assert "one MESSAGE" in run("append", path, "--id", "b", stdin="1\n", code=2).err


def test_seq_must_grow(run: Run, json_stream: str) -> None:
    run("append", json_stream, "1", "--seq", "b")
    run("append", json_stream, "2", "--seq", "a", code=4)


def test_ranges_can_be_read_one_by_one(run: Run, client: Headwater, json_stream: str) -> None:
    for number in range(40):
        client.stream(json_stream).append({"n": number, "x": "x" * 10_000})
    found = run("ranges", json_stream, "--max-bytes", "100kB", "--json").records
    assert len(found) > 1
    assert sum(one["messages"] for one in found) == 40
    parts = [
        run("read", json_stream, "--from", one["offset"], "--until", one["until"]).lines
        for one in found
    ]
    assert [line for part in parts for line in part] == run("read", json_stream).lines
    assert run("ranges", json_stream).lines[0].split("\t")[0] == found[0]["offset"]


# ── Snapshots ────────────────────────────────────────────────────────────────────────────────


def test_snapshots(run: Run, json_stream: str, tmp_path: Path) -> None:
    run("append", json_stream, "1")
    state = tmp_path / "state.json"
    state.write_text('{"sum": 1}')
    put = run("snapshot", "put", json_stream, "now", "--file", str(state), "--json").record
    assert put["bytes"] == 10
    run("append", json_stream, "2")
    got = run("snapshot", "get", json_stream)
    assert got.out == '{"sum": 1}'
    assert run("read", json_stream, "--from", put["offset"]).lines == ["2"]
    (one,) = run("snapshot", "ls", json_stream, "--json").records
    assert (one["offset"], one["content_type"]) == (put["offset"], "application/json")
    assert run("snapshot", "ls", json_stream).lines == [put["offset"]]
    run("snapshot", "put", json_stream, put["offset"], "--type", "text", stdin="other")
    assert run("snapshot", "get", json_stream, put["offset"]).out == "other"
    assert "--yes" in run("snapshot", "rm", json_stream, put["offset"], code=2).err
    run("snapshot", "rm", json_stream, put["offset"], "--yes")
    run("snapshot", "get", json_stream, code=3)
    run("snapshot", "put", json_stream, "nowhere", stdin="x", code=1)


# ── Transactions ─────────────────────────────────────────────────────────────────────────────


def test_a_transaction_is_all_or_nothing(run: Run, client: Headwater, path: str) -> None:
    for name in ("a", "b"):
        run("create", f"{path}/{name}", "--unique-ids", "fail")
    run("create", f"{path}/bytes", "--type", "bytes")
    lines: list[dict[str, Any]] = [
        {"stream": f"{path}/a", "value": {"n": 1}, "id": "x"},
        {"stream": f"{path}/b", "value": [1, 2], "id": "y"},
        {"stream": f"{path}/bytes", "data": "AP8="},
    ]
    text = "\n".join(map(json.dumps, lines))
    done = run("transaction", "--json", stdin=text).record
    assert [one["stream"] for one in done["published"]] == [one["stream"] for one in lines]
    assert run("read", f"{path}/b").lines == ["[1, 2]"]
    again = [lines[2], lines[0]]
    run("transaction", stdin="\n".join(map(json.dumps, again)), code=4)
    assert client.stream(f"{path}/bytes").read_bytes() == b"\x00\xff"


def test_a_transaction_as_http_takes_it(run: Run, json_stream: str, tmp_path: Path) -> None:
    file = tmp_path / "transaction.json"
    file.write_text(
        json.dumps({"publish": [{"stream": json_stream, "value": 1}]}, indent=2), encoding="utf-8"
    )
    assert run("transaction", str(file), "--json").record["acked"] == 0
    assert run("read", json_stream).lines == ["1"]


@pytest.mark.parametrize(
    "text", ["", "\n", "{", '{"stream": "x"}', "[]", "1", '{"value": 1}', "\xff"]
)
def test_no_transaction(run: Run, text: str) -> None:
    run("transaction", stdin=text, code=1 if text == '{"value": 1}' else 2)


# ── Live ─────────────────────────────────────────────────────────────────────────────────────


def test_live(run: Run, spawn: Spawn, client: Headwater, json_stream: str) -> None:
    assert "generic" in run("live", "profile", json_stream).out
    assert "headwater live profile" in run("live", "status", json_stream, code=1).err
    on = ("--kind", "state-protocol", "--touch")
    record = run("live", "profile", json_stream, *on, "--json").record
    assert record["profile"]["kind"] == "state-protocol"
    activated = run("live", "activate", json_stream, "todos", "tenant", "--json").record
    assert activated["active"]
    status = run("live", "status", json_stream, "--json").record
    assert status["templates"] == 1
    cursor = status["cursor"]
    quiet = ("live", "wait", json_stream, "todos", "--where", "tenant=acme", "--cursor", cursor)
    assert "nothing was touched" in run(*quiet, "--timeout", "10ms", code=1).err
    waiting = spawn(*quiet, "--timeout", "60s", "--json")
    change = {"type": "todos", "key": "1", "value": {"tenant": "acme"}}
    client.stream(json_stream).append({**change, "headers": {"operation": "insert"}})
    out, err = waiting.communicate(timeout=90)
    assert waiting.returncode == 0, err
    assert json.loads(out)["touched"]
    for options in (["--where", "tenant"], ["--timeout", "1h"], ["--timeout", "x"]):
        run("live", "wait", json_stream, "todos", *options, code=2)
    assert "--kind" in run("live", "profile", json_stream, "--touch", code=2).err


def test_the_profile_is_what_the_client_sets(run: Run, client: Headwater, json_stream: str) -> None:
    client.stream(json_stream).live().set_profile(StateProtocol(TouchSettings(enabled=True)))
    assert run("live", "profile", json_stream, "--json").record["profile"]["touch"]["enabled"]


# ── Groups and subscriptions ─────────────────────────────────────────────────────────────────


def test_the_groups_of_all_streams(run: Run, path: str) -> None:
    for name in ("a", "b"):
        run("create", f"{path}/{name}")
        run("group", "create", f"{path}/{name}", f"workers-{name}")
    found = [line.split("\t") for line in run("group", "ls").lines]
    assert [f"{path}/a", "workers-a"] in found
    assert [f"{path}/b", "workers-b"] in found
    streams = {one["stream"] for one in run("group", "ls", "--json").records}
    assert {f"{path}/a", f"{path}/b"} <= streams


def test_a_wake_is_claimed_and_seen_to(run: Run, path: str, tmp_path: Path) -> None:
    name, stream = path.replace("/", "-"), f"{path}/jobs"
    run("create", stream)
    run("create", f"{path}/other")
    run("create", f"{path}/wakes")
    run("subscription", "create", name, "--stream", stream, "--wake-stream", f"{path}/wakes")
    assert run("subscription", "add", name, f"{path}/other", "--json").record["streams_total"] == 2
    assert run("subscription", "drop", name, f"{path}/other", "--json").record["streams_total"] == 1
    assert "nothing to do" in run("subscription", "claim", name, code=3).err
    run("append", stream, "1")
    seen = tmp_path / "seen"
    ran = run("subscription", "claim", name, "--exec", f"cat > {seen}; exit 7", code=1)
    assert "ended with 7" in ran.err
    assert json.loads(seen.read_text())["name"] == stream
    record = run("subscription", "claim", name, "--json").record
    assert record["outcome"] == "released"
    record = run("subscription", "claim", name, "--exec", "cat >/dev/null", "--json").record
    assert (record["outcome"], record["exit_code"]) == ("acked", 0)
    run("subscription", "claim", name, code=3)
    run("append", stream, "2")
    assert run("subscription", "claim", name, "--ack").lines[0].startswith(stream)
    run("subscription", "claim", name, "--ack", "--exec", "true", code=2)
    assert run("subscription", "keys", "--json").record["keys"]


# ── Documents and responses ──────────────────────────────────────────────────────────────────


class _Upstream(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = 500 if self.path == "/broken" else 200
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"you said " + body + b" as " + self.headers.get("X-Who", "").encode())

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def layered(upstream: str) -> Iterator[str]:
    """A server with documents and durable responses."""
    with ServerProcess("--memory", "--documents", "--proxy-allow", f"{upstream}/**") as server:
        yield server.url


def test_documents(run: Run, layered: str) -> None:
    assert "no document" in run("doc", "show", "editor/notes", code=3, STREAM_URL=layered).err
    assert (
        run("doc", "create", "editor/notes", "--json", STREAM_URL=layered).record["name"]
        == "editor/notes"
    )
    assert run("doc", "show", "editor/notes", STREAM_URL=layered).out == "\n"
    assert (
        json.loads(run("doc", "show", "editor/notes", "--as", "json", STREAM_URL=layered).out) == {}
    )
    run("doc", "show", "editor", code=2, STREAM_URL=layered)
    run("doc", "rm", "editor/notes", code=2, STREAM_URL=layered)
    assert run("doc", "rm", "editor/notes", "--yes", "--json", STREAM_URL=layered).record["removed"]
    assert "--documents" in run("doc", "create", "editor/notes", code=3).err


def test_durable_responses(run: Run, layered: str, upstream: str) -> None:
    ran = run("fetch", upstream, "-X", "POST", "-d", "hello", "-H", "X-Who: me", STREAM_URL=layered)
    assert ran.out == "you said hello as me"
    record = run("fetch", upstream, "--detach", "--json", STREAM_URL=layered).record
    assert record["content_type"] == "text/plain"
    assert run("response", "read", record["url"], STREAM_URL=layered).out == "you said  as "
    run("response", "abort", record["url"], STREAM_URL=layered)
    run("response", "rm", record["url"], STREAM_URL=layered)
    run("response", "read", record["url"], code=3, STREAM_URL=layered)
    assert "refused it" in run("fetch", f"{upstream}/broken", code=1, STREAM_URL=layered).err
    assert (
        "not a header" in run("fetch", upstream, "-H", "nonsense", code=2, STREAM_URL=layered).err
    )
    run("fetch", "http://127.0.0.1:9/elsewhere", code=5, STREAM_URL=layered)
    assert "--proxy-allow" in run("fetch", upstream, code=3).err


# ── The server ───────────────────────────────────────────────────────────────────────────────


def test_health(run: Run) -> None:
    assert run("health").lines == ["ready"]
    assert run("health", "--alive", "--json").record["status"] == "ok"
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert "cannot reach" in run("health", STREAM_URL=nowhere, code=6).err
    run("health", "--timeout", "soon", code=2)
    run("health", "--timeout", "200000d")


def test_the_health_of_a_server_that_trickles(run: Run) -> None:
    with trickling_server() as url:
        run("health", "--timeout", "300ms", STREAM_URL=url, code=6)


@pytest.mark.parametrize("said", [b'{"problems": [1]}', b"[" * 100_000, b'{"status": "\\u001b"}'])
def test_the_health_of_a_server_that_makes_no_sense(run: Run, said: bytes) -> None:
    with answering_server(said) as url:
        ran = run("health", STREAM_URL=url, code=1 if said.startswith(b"[") else 0)
        assert "\x1b" not in ran.out
        assert "unexpected" not in ran.err


def test_whoami_without_access_control(run: Run, json_stream: str) -> None:
    record = run("whoami", json_stream, "--json").record
    assert record["administers"]
    assert not record["access"]
    assert record["stream"]["write"]
    assert "everybody may do everything" in run("whoami").out


def test_any_request(run: Run, json_stream: str) -> None:
    assert "headwater_" in run("api", "/metrics").out
    assert json.loads(run("api", "/v1/streams", "-q", f"prefix={json_stream}").out)["streams"]
    out = run("api", f"/v1/stream/{json_stream}", "-X", "head", "-i").out
    assert out.startswith("HTTP 200\n")
    body = json.dumps({"publish": [{"stream": json_stream, "value": 1}]})
    assert json.loads(run("api", "/v1/transaction", "-d", body).out)["published"]
    assert json.loads(run("api", "/v1/transaction", "-d", "@-", stdin=body).out)["published"]
    run("api", "/v1/nothing", code=3)
    for nonsense in (["metrics"], ["/", "-X", "BREW"], ["/", "-d", "{"], ["/", "-q", "x"]):
        run("api", *nonsense, code=2)
