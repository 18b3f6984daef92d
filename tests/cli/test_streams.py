"""create, ls, info, fork, close, clear, rm, undelete."""

from __future__ import annotations

import msgspec
import pytest

from headwater.client import Headwater, StreamNotFound
from tests.cli.conftest import Run
from tests.cli.plain_server import answering_server, plain_server


def test_create_makes_a_json_stream_unless_told_otherwise(run: Run, path: str) -> None:
    record = run("create", path, "--json").record
    assert record["name"] == path
    assert record["content_type"] == "application/json"
    assert record["url"].endswith(f"/v1/stream/{path}")
    assert record["closed"] is False


@pytest.mark.parametrize(
    "given, stored",
    [
        ("json", "application/json"),
        ("text", "text/plain"),
        ("bytes", "application/octet-stream"),
        ("image/png", "image/png"),
    ],
)
def test_create_knows_short_names_of_types(run: Run, path: str, given: str, stored: str) -> None:
    assert run("create", path, "-t", given, "--json").record["content_type"] == stored


def test_create_says_nothing_when_nobody_looks(run: Run, path: str) -> None:
    ran = run("create", path)
    assert (ran.out, ran.err) == ("", "")


def test_create_of_what_exists_is_a_conflict(run: Run, json_stream: str) -> None:
    assert "exists already" in run("create", json_stream, code=4).err
    assert run("create", json_stream, "--if-missing", "--json").record["name"] == json_stream
    assert "configuration" in run("create", json_stream, "-t", "text", code=4).err
    assert "configuration" in run("create", json_stream, "-t", "text", "--if-missing", code=4).err


def test_create_with_content(run: Run, path: str) -> None:
    run("create", path, "--data", '{"n": 1}', "--closed")
    assert run("read", path).lines == ['{"n": 1}']
    assert run("info", path, "--json").record["closed"] is True


def test_create_with_a_lifetime(run: Run, path: str) -> None:
    run("create", f"{path}/ttl", "--ttl", "1h30m")
    assert run("info", f"{path}/ttl", "--json").record["ttl_s"] == 5400
    run("create", f"{path}/seconds", "--ttl", "90")
    assert run("info", f"{path}/seconds", "--json").record["ttl_s"] == 90
    run("create", f"{path}/at", "--expires-at", "2099-01-31T12:00:00+01:00")
    assert run("info", f"{path}/at", "--json").record["expires_at"] == "2099-01-31T11:00:00Z"


def test_create_a_stream_that_keeps_only_so_much(run: Run, base_url: str, path: str) -> None:
    run("create", path, "--keep", "30d", "--keep-bytes", "10GiB")
    record = run("info", path, "--json").record
    assert (record["retention_s"], record["retention_bytes"]) == (30 * 86_400, 10 << 30)
    assert "2,592,000 s, at most 10.0 GiB" in run("info", path).out
    with plain_server(base_url) as url:
        assert run("info", path, "--json", STREAM_URL=url).record["retention_s"] == 30 * 86_400
    run("create", f"{path}/size", "--keep-bytes", "500 kB")
    record = run("info", f"{path}/size", "--json").record
    assert (record["retention_s"], record["retention_bytes"]) == (None, 500_000)
    run("fork", path, f"{path}/fork", "--keep", "90")
    record = run("info", f"{path}/fork", "--json").record
    assert (record["retention_s"], record["retention_bytes"]) == (90, None)
    run("create", f"{path}/all")
    assert run("info", f"{path}/all", "--json").record["retention_s"] is None
    assert "keeps" not in run("info", f"{path}/all").out


def test_create_a_relaxed_stream(run: Run, path: str) -> None:
    run("create", path, "--durability", "relaxed")
    assert run("info", path, "--json").record["durability"] == "relaxed"
    assert "relaxed" in run("info", path).out
    run("create", path, "--durability", "relaxed", "--if-missing")
    run("create", path, "--durability", "synced", "--if-missing", code=4)
    run("fork", path, f"{path}/fork")
    assert run("info", f"{path}/fork", "--json").record["durability"] == "synced"
    run("fork", path, f"{path}/relaxed", "--durability", "relaxed")
    assert run("info", f"{path}/relaxed", "--json").record["durability"] == "relaxed"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--durability", "some"),
        ("--keep", "long"),
        ("--keep", "1500ms"),
        ("--keep-bytes", "much"),
        ("--keep-bytes", "1.5GB"),
        ("--keep-bytes", "-1"),
        ("--ttl", "soon"),
        ("--ttl", "1500ms"),
        ("--expires-at", "tomorrow"),
        ("--expires-at", "2099-01-31T12:00:00"),
        ("--ttl", "1h", "--expires-at", "2099-01-31T12:00:00Z"),
        ("--type", "nonsense"),
        ("--data", "{"),
    ],
)
def test_create_refuses_what_makes_no_sense(
    run: Run, path: str, arguments: tuple[str, ...]
) -> None:
    run("create", path, *arguments, code=2)
    run("info", path, code=3)


@pytest.mark.parametrize("bad", ["a//b", "..", "a/../b", "/"])
def test_a_path_that_cannot_be(run: Run, bad: str) -> None:
    assert "path of a stream" in run("create", bad, code=2).err
    assert "path of a stream" in run("read", bad, code=2).err


def test_ls_writes_one_path_a_line(run: Run, client: Headwater, path: str) -> None:
    names = [f"{path}/{number}" for number in range(3)]
    for name in names:
        client.stream(name).create(content_type="text/plain")
    assert run("ls", "--prefix", f"{path}/").lines == names
    records = run("ls", "--prefix", f"{path}/", "--json").records
    assert [record["name"] for record in records] == names
    assert set(records[0]) == {
        "name",
        "content_type",
        "next_offset",
        "closed",
        "messages",
        "bytes",
        "created_at",
        "ttl_s",
        "expires_at",
    }


def test_ls_turns_pages(
    run: Run, client: Headwater, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.cli.remote.list_streams.__defaults__", ("", 2))
    names = [f"{path}/{number}" for number in range(5)]
    for name in names:
        client.stream(name).create()
    assert run("ls", "--prefix", f"{path}/").lines == names


def test_info_shows_what_there_is(run: Run, json_stream: str) -> None:
    run("append", json_stream, "1")
    ran = run("info", json_stream)
    facts = dict(line.split(maxsplit=1) for line in ran.lines if not line.startswith("next"))
    assert facts["stream"] == json_stream
    assert facts["messages"] == "1"
    assert facts["closed"] == "no"
    assert "expires" not in facts
    record = run("info", json_stream, "--json").record
    assert record["messages"] == 1
    assert record["forks"] == 0
    assert record["forked_from"] is None


def test_info_of_another_server_shows_what_head_tells(run: Run, base_url: str, path: str) -> None:
    run("create", path, "--ttl", "1h")
    with plain_server(base_url) as url:
        record = run("info", path, "--json", STREAM_URL=url).record
        assert record["content_type"] == "application/json"
        assert record["ttl_s"] == 3600
        assert record["messages"] is None
        assert run("info", path, STREAM_URL=url).lines[0].split() == ["stream", path]
        run("info", f"{path}/nothing", code=3, STREAM_URL=url)


def test_ls_of_another_server_says_that_it_cannot(run: Run, base_url: str) -> None:
    with plain_server(base_url) as url:
        assert "no list of streams" in run("ls", code=1, STREAM_URL=url).err


def test_fork_shares_the_past(run: Run, json_stream: str) -> None:
    run("append", json_stream, stdin="1\n2\n3\n")
    fork = f"{json_stream}/fork"
    assert run("fork", json_stream, fork, "--json").record["name"] == fork
    run("append", json_stream, "4")
    run("append", fork, '"mine"')
    assert run("read", fork).lines == ["1", "2", "3", '"mine"']
    assert run("info", fork, "--json").record["forked_from"].endswith(json_stream)


@pytest.mark.parametrize(
    "where, shared",
    [("start", 0), ("-1", 2), ("-2", 1), ("-9", 0), ("now", 3), ("@0s", 3), ("@1h", 0)],
)
def test_fork_at_a_place(run: Run, json_stream: str, where: str, shared: int) -> None:
    run("append", json_stream, stdin="1\n2\n3\n")
    run("fork", json_stream, f"{json_stream}/fork", "--at", where)
    assert run("read", f"{json_stream}/fork").lines == ["1", "2", "3"][:shared]


def test_fork_of_nothing(run: Run, path: str) -> None:
    run("fork", path, f"{path}/fork", code=3)


def test_close_ends_a_stream(run: Run, json_stream: str) -> None:
    record = run("close", json_stream, "--json").record
    assert record["closed"] is True
    assert record["content_type"] == "application/json"
    run("close", json_stream)
    assert "closed" in run("append", json_stream, "1", code=4).err


def test_rm_without_a_terminal_needs_yes(run: Run, client: Headwater, json_stream: str) -> None:
    assert "--yes" in run("rm", json_stream, code=2).err
    assert client.stream(json_stream).head().content_type == "application/json"
    assert run("rm", json_stream, "--yes", "--json").record == {
        "name": json_stream,
        "removed": True,
    }
    with pytest.raises(StreamNotFound):
        client.stream(json_stream).head()


def test_rm_goes_on_after_a_stream_that_is_not_there(
    run: Run, client: Headwater, path: str
) -> None:
    for name in ("a", "c"):
        client.stream(f"{path}/{name}").create()
    ran = run("rm", "-y", f"{path}/a", f"{path}/b", f"{path}/c", "--json", code=3)
    assert [record["name"] for record in ran.records] == [f"{path}/a", f"{path}/c"]
    assert f"'{path}/b'" in ran.err


def test_clear_without_a_terminal_needs_yes(run: Run, json_stream: str) -> None:
    run("append", json_stream, "1")
    assert "--yes" in run("clear", json_stream, code=2).err
    assert run("read", json_stream).lines == ["1"]
    before = run("info", json_stream, "--json").record
    record = run("clear", json_stream, "--yes", "--json").record
    assert (record["name"], record["next_offset"]) == (json_stream, before["next_offset"])
    run("append", json_stream, "2")
    assert run("read", json_stream).lines == ["2"]
    run("clear", f"{json_stream}/nothing", "--yes", code=3)


def test_what_was_deleted_is_listed_and_comes_back(run: Run, path: str) -> None:
    for name in ("a", "b"):
        run("create", f"{path}/{name}", "--data", "1")
    run("rm", "-y", f"{path}/a", f"{path}/b")
    assert run("ls", "--prefix", f"{path}/").lines == []
    listing = ("ls", "--deleted", "--prefix", f"{path}/")
    assert run(*listing).lines == [f"{path}/a", f"{path}/b"]
    first = run(*listing, "--json").records[0]
    assert first["messages"] == 1
    assert first["deleted_at"] < first["kept_until"]
    ran = run("undelete", f"{path}/a", f"{path}/none", f"{path}/b", "--json", code=3)
    assert [record["name"] for record in ran.records] == [f"{path}/a", f"{path}/b"]
    assert f"'{path}/none'" in ran.err
    assert "ls --deleted" in ran.err
    assert run("read", f"{path}/a").lines == ["1"]
    assert run(*listing).lines == []


def test_undelete_does_not_replace_a_stream(run: Run, json_stream: str) -> None:
    run("rm", "-y", json_stream)
    run("create", json_stream)
    assert "another stream" in run("undelete", json_stream, code=4).err


def test_rm_purge_keeps_nothing(run: Run, json_stream: str) -> None:
    assert "--yes" in run("rm", "--purge", json_stream, code=2).err
    run("rm", "--purge", "-y", json_stream)
    run("undelete", json_stream, code=3)


def test_other_servers_have_no_deleted_streams(run: Run, base_url: str, json_stream: str) -> None:
    with plain_server(base_url) as url:
        assert "deleted" in run("ls", "--deleted", code=1, STREAM_URL=url).err
        for command in (("clear", "-y"), ("undelete",)):
            ran = run(*command, json_stream, code=1, STREAM_URL=url)
            assert "does not offer this" in ran.err


def test_names_of_the_server_options_in_front(run: Run, base_url: str, json_stream: str) -> None:
    nowhere = "http://127.0.0.1:1"
    ran = run("--url", base_url, "info", json_stream, "--json", STREAM_URL=nowhere)
    assert ran.record["name"] == json_stream


@pytest.mark.parametrize("at_ms", [10**19, -(10**17), 10**18])
def test_times_that_no_calendar_has_are_not_shown(run: Run, at_ms: int) -> None:
    page = {"streams": [{"name": "s", "created": at_ms}]}
    with answering_server(msgspec.json.encode(page)) as url:
        assert run("ls", "--json", STREAM_URL=url).record["created_at"] is None
