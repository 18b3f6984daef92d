"""Every answer about a stream, compared over all tiers: the same server data, started in many ways.

At first everything is in rows, then in many files, then in few, then in object storage. What a
client sees must be the same to the last header, but for how long it may be cached.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from headwater.store.sqlite.database import DATABASE_NAME, connect
from tests.http.client import JSON, TEXT, Client, eventually
from tests.http.wire import Reply
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import ServerProcess

ALWAYS = (
    *("--hot-bytes-per-stream-max", "0", "--chunk-bytes-max", "300"),
    *("--long-poll-timeout-ms", "50"),
)
CHANGING = {"date", "cache-control", "stream-cursor"}


def plain(reply: Reply) -> tuple[object, ...]:
    fields = {name: value for name, value in reply.headers.fields if name.lower() not in CHANGING}
    return reply.status, fields, reply.body


def fill(client: Client) -> dict[str, list[str]]:
    """A few streams with small and large appends; the offsets that each has given out."""
    random, offsets = Random(12), dict[str, list[str]]()
    for path, headers in (("text", TEXT), ("json", JSON), ("bytes", {"Content-Type": "a/b"})):
        client.create(headers, path=path)
        offsets[path] = ["-1"]
        for number in range(40):
            size = random.choice([1, 20, 90, 400, 3_000])
            body = json.dumps([number, "e\n" * (size // 2)]) if headers is JSON else "x" * size
            offsets[path].append(client.post(path, body.encode(), headers).next_offset)
    client.close("text")
    fork = {"Stream-Forked-From": "json", "Stream-Fork-Offset": offsets["json"][20]}
    client.put("fork", JSON | fork)
    for number in range(9):
        client.post("fork", b'{"own": %d}' % number, JSON)
    offsets["fork"] = offsets["json"][:21]
    return offsets


def everything(client: Client, offsets: dict[str, list[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, tokens in offsets.items():
        for token in tokens:
            for query in (f"offset={token}", f"offset={token}&live=long-poll"):
                found[f"{path} {query}"] = plain(client.get(path, query))
            zipped = client.get(path, f"offset={token}", {"Accept-Encoding": "gzip"})
            found[f"{path} {token} gzip"] = plain(zipped)
            tag = zipped.headers["ETag"]
            again = client.get(path, f"offset={token}", {"If-None-Match": tag})
            found[f"{path} {token} again"] = plain(again)
        for count in (0, 1, 7, 10_000):
            found[f"{path} last {count}"] = client.json(f"/v1/stream/{path}/_position?last={count}")
        found[f"{path} head"] = plain(client.head(path))
        middle = "0".join(tokens[5].split("0")[:-1]) + "3"
        found[f"{path} nonsense"] = client.get(path, f"offset={middle}").status
    with client.events("text") as events:
        found["events"] = [(event.kind, event.data) for event in events.rest() if event.data]
    found["events"] = [
        (kind, data if kind == "data" else json.loads(data)["streamNextOffset"])
        for kind, data in found["events"]
    ]
    return found


def count(data: Path, sql: str) -> int:
    connection: apsw.Connection = connect(data / DATABASE_NAME, read_only=True)
    try:
        return int(connection.execute(sql).fetchall()[0][0] or 0)
    finally:
        connection.close()


@pytest.mark.slow
def test_no_tier_can_be_told_from_another(tmp_path: Path) -> None:
    data = tmp_path / "data"
    far = (tmp_path / "far").as_uri()
    files = (*SEALING_AT_ONCE, "--segment-bytes", "8000", "--compact-bytes-per-second", "0")
    fewer = (*SEALING_AT_ONCE, "--segment-bytes", "400000")
    cold = ("--history-store", far, "--history-local-bytes-max", "0")
    tiers: dict[str, tuple[tuple[str, ...], Callable[[], bool]]] = {
        "rows": (("--no-seal",), lambda: True),
        "files": (files, lambda: count(data, "SELECT count(*) FROM ops") == 0),
        "fewer": (fewer, lambda: count(data, "SELECT count(*) FROM segments") < 10),
        "cold": (
            (*fewer, *cold, "--history-cache-bytes-max", "0"),
            lambda: count(data, "SELECT count(*) FROM segments WHERE local = 1") == 0,
        ),
    }
    answers: dict[str, dict[str, Any]] = {}
    files_of: dict[str, int] = {}
    offsets: dict[str, list[str]] = {}
    for name, (arguments, there) in tiers.items():
        with ServerProcess("--data", str(data), *ALWAYS, *arguments) as server:
            client = Client(server)
            offsets = offsets or fill(client)
            eventually(there)
            answers[name] = everything(client, offsets)
            assert "Traceback" not in server.stderr
            files_of[name] = count(data, "SELECT count(*) FROM segments")
    assert files_of["files"] > 10 > files_of["fewer"]
    for name in ("files", "fewer", "cold"):
        different = {
            key: (answer, answers[name][key])
            for key, answer in answers["rows"].items()
            if answers[name][key] != answer
        }
        assert different == {}


def immutable(client: Client, offsets: dict[str, list[str]]) -> dict[str, object]:
    """What caches may keep for ever, by address."""
    found: dict[str, object] = {}
    for path, tokens in offsets.items():
        for token in tokens:
            reply = client.get(path, f"offset={token}")
            if "immutable" in reply.headers["Cache-Control"]:
                found[f"{path} {token}"] = plain(reply)
    return found


@pytest.mark.slow
def test_what_may_be_kept_for_ever_never_changes(tmp_path: Path) -> None:
    """Whatever is appended, sealed, rewritten and moved after it was sent."""
    data = tmp_path / "data"
    many = (*SEALING_AT_ONCE, "--segment-bytes", "8000", "--compact-bytes-per-second", "0")
    fewer = (*SEALING_AT_ONCE, "--segment-bytes", "400000")
    cold = ("--history-store", (tmp_path / "far").as_uri(), "--history-local-bytes-max", "0")
    in_rows, segments = "SELECT count(*) FROM ops", "SELECT count(*) FROM segments"
    with ServerProcess("--data", str(data), *ALWAYS, *many) as server:
        client = Client(server)
        offsets = fill(client)
        eventually(lambda: count(data, in_rows) == 0)
        kept = immutable(client, offsets)
        assert len(kept) > 50
        for number in range(20):
            client.post("json", b'{"more": %d}' % number, JSON)
            client.post("bytes", b"more", {"Content-Type": "a/b"})
        assert immutable(client, offsets).items() >= kept.items()
        eventually(lambda: count(data, in_rows) == 0)
        kept |= immutable(client, offsets)
    with ServerProcess("--data", str(data), *ALWAYS, *fewer) as server:
        client = Client(server)
        # It rests a hundred times as long as it looked, and that was long on a busy machine.
        eventually(lambda: count(data, segments) < 10, patience_s=600)
        assert immutable(client, offsets).items() >= kept.items()
    with ServerProcess("--data", str(data), *ALWAYS, *fewer, *cold) as server:
        client = Client(server)
        eventually(lambda: count(data, f"{segments} WHERE local = 1") == 0)
        assert immutable(client, offsets).items() >= kept.items()
