"""group ls, info, lag, create, seek, pause, resume, rm."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.cli.groups.view import age
from headwater.client import Group, Headwater
from tests.cli.conftest import Complete, Run


@pytest.fixture
def group(run: Run, client: Headwater, json_stream: str) -> Group:
    """A group on a stream with two appends of three messages each."""
    client.stream(json_stream).append_all([1, 2, 3])
    client.stream(json_stream).append_all([4, 5, 6])
    run("group", "create", json_stream, "g")
    return client.stream(json_stream).group("g")


def values(group: Group) -> list[int]:
    return [message.value for message in group.fetch(max=10)]


def test_create(run: Run, json_stream: str) -> None:
    dead = f"{json_stream}/dead"
    record = run(
        *("group", "create", json_stream, "g", "--start", "latest", "--ack-timeout", "1m30s"),
        *("--max-deliveries", "3", "--dead-letter", f"/{dead}", "--max-in-flight", "7"),
        *("--order-by", "/key", "--json"),
    ).record
    assert record["stream"] == json_stream
    assert record["name"] == "g"
    assert record["start"] == "latest"
    assert record["ack_timeout_s"] == 90
    assert record["max_deliveries"] == 3
    assert record["dead_letter"] == dead
    assert record["max_in_flight"] == 7
    assert record["order_by"] == "/key"
    assert record["durable"] is True
    assert record["members"] == {}


def test_create_of_what_exists(run: Run, group: Group, json_stream: str) -> None:
    command = ("group", "create", json_stream, "g", "--ack-timeout", "5s")
    assert "exists already" in run(*command, code=4).err
    assert run(*command, "--if-missing", "--json").record["ack_timeout_s"] == 30
    assert run(*command, "--update", "--json").record["ack_timeout_s"] == 5
    assert "ephemeral" in run(*command, "--update", "--ephemeral", code=4).err


def test_create_with_a_version(run: Run, group: Group, json_stream: str) -> None:
    command = ("group", "create", json_stream, "g", "--json", "--version")
    assert run(*command, "2", "--ack-timeout", "5s").record["ack_timeout_s"] == 5
    assert run(*command, "1", "--ack-timeout", "9s").record["ack_timeout_s"] == 5
    assert (
        "ack_timeout_ms is 5000, not 9000" in run(*command, "2", "--ack-timeout", "9s", code=4).err
    )
    assert run(*command, "3").record["version"] == 3
    run(*command, "3", "--update", code=2)


def test_create_says_nothing_when_nobody_looks(run: Run, json_stream: str) -> None:
    ran = run("group", "create", json_stream, "g")
    assert (ran.out, ran.err) == ("", "")


def test_create_refused_by_the_server(run: Run, path: str, json_stream: str) -> None:
    run("group", "create", f"{path}/none", "g", code=3)
    refused = run("group", "create", json_stream, "_g", code=1).err
    assert "refused it" in refused
    assert "/errors/" in refused
    assert "refused it" in run("group", "create", json_stream, "g", "--start", "x", code=1).err
    short = ("group", "create", json_stream, "g", "--ack-timeout", "1ms")
    assert "refused it" in run(*short, code=1).err
    assert run("group", "ls", json_stream).lines == []


def test_ls(run: Run, group: Group, json_stream: str) -> None:
    run("group", "create", json_stream, "a")
    assert run("group", "ls", json_stream).lines == ["a", "g"]
    records = run("group", "ls", json_stream, "--json").records
    assert [record["name"] for record in records] == ["a", "g"]
    assert run("group", "info", json_stream, "g", "--json").record.keys() == records[0].keys()


def test_info(run: Run, group: Group, json_stream: str) -> None:
    group.fetch(consumer="ann", max=2)
    facts = dict(line.split("  ", 1) for line in run("group", "info", json_stream, "g").lines)
    assert facts["group"].strip() == "g"
    assert facts["members"].strip() == "ann (2)"
    assert facts["lag"].strip().startswith("6 messages")
    assert "dead letters" not in facts
    record = run("group", "info", json_stream, "g", "--json").record
    assert record["in_flight"] == 2
    assert record["position"].endswith("/2")


def test_lag(run: Run, group: Group, json_stream: str) -> None:
    run("group", "create", json_stream, "done", "--start", "latest")
    group.ack(group.fetch(max=4))
    done, behind = run("group", "lag", json_stream, "--json").records
    assert done == {
        "stream": json_stream,
        "name": "done",
        "messages": 0,
        "bytes": 0,
        "seconds": 0.0,
    }
    assert behind["messages"] == 2
    assert behind["bytes"] == 6
    assert behind["seconds"] >= 0
    assert run("group", "lag", json_stream, "g", "--json").record["messages"] == 2
    head, row = run("group", "lag", json_stream, "g").lines
    assert head.split() == ["GROUP", "MESSAGES", "BYTES", "SECONDS"]
    assert row.split()[:3] == ["g", "2", "6"]


@pytest.mark.parametrize(
    "to, expected",
    [
        ("first", [1, 2, 3, 4, 5, 6]),
        ("start", [1, 2, 3, 4, 5, 6]),
        ("latest", []),
        ("now", []),
        ("-0", []),
        ("-2", [5, 6]),
        ("-4", [3, 4, 5, 6]),
        ("-99", [1, 2, 3, 4, 5, 6]),
        ("@1h", [1, 2, 3, 4, 5, 6]),
        ("@2099-01-31T12:00:00Z", []),
        ("start/5", [6]),
    ],
)
def test_seek(run: Run, group: Group, json_stream: str, to: str, expected: list[int]) -> None:
    group.fetch(max=3)
    run("group", "seek", json_stream, "g", to)
    assert values(group) == expected


def test_seek_to_an_offset_and_back(run: Run, group: Group, json_stream: str) -> None:
    group.fetch(max=4)
    position = run("group", "info", json_stream, "g", "--json").record["position"]
    run("group", "seek", json_stream, "g", "first")
    assert run("group", "seek", "--json", json_stream, "g", position).record["lag_messages"] == 2
    assert values(group) == [5, 6]
    assert "refused it" in run("group", "seek", json_stream, "g", "nowhere", code=1).err


def test_places_in_a_stream_of_text_are_appends(
    run: Run, client: Headwater, text_stream: str
) -> None:
    for line in ("a\nb\n", "c\nd\n", "e\n"):
        client.stream(text_stream).append(line)
    run("group", "create", text_stream, "g", "--start", "-2")
    fetched = client.stream(text_stream).group("g").fetch(max=9)
    assert [message.data for message in fetched] == [b"c\nd\n", b"e\n"]


def test_pause_and_resume(run: Run, group: Group, json_stream: str) -> None:
    assert run("group", "pause", json_stream, "g", "--json").record["paused"] is True
    assert values(group) == []
    assert run("group", "resume", json_stream, "g", "--json").record["paused"] is False
    assert len(values(group)) == 6


def test_rm(run: Run, group: Group, json_stream: str) -> None:
    assert "--yes" in run("group", "rm", json_stream, "g", code=2).err
    assert run("group", "ls", json_stream).lines == ["g"]
    record = run("group", "rm", json_stream, "g", "--yes", "--json").record
    assert record == {"stream": json_stream, "name": "g", "removed": True}
    assert run("group", "ls", json_stream).lines == []
    assert run("info", json_stream, "--json").record["messages"] == 6


@pytest.mark.parametrize(
    "arguments",
    [
        lambda stream: ("info", stream, "none"),
        lambda stream: ("lag", stream, "none"),
        lambda stream: ("seek", stream, "none", "first"),
        lambda stream: ("pause", stream, "none"),
        lambda stream: ("resume", stream, "none"),
        lambda stream: ("rm", "--yes", stream, "none"),
    ],
)
def test_a_group_that_is_not_there(
    run: Run, json_stream: str, arguments: Callable[[str], tuple[str, ...]]
) -> None:
    error = run("group", *arguments(json_stream), code=3).err
    assert f"headwater group create {json_stream} none" in error


def test_names_of_groups_are_completed(complete: Complete, run: Run, json_stream: str) -> None:
    for name in ("one", "other"):
        run("group", "create", json_stream, name)
    assert complete(f"headwater group info {json_stream} o") == ["one", "other"]
    assert complete(f"headwater consume {json_stream} ot") == ["other"]
    assert complete("headwater group info nothing/here o") == []


def test_ages() -> None:
    assert [age(s) for s in (0, 0.25, 59, 60, 75, 3600, 7260, 86_400, 200_000)] == [
        *("0s", "0.2s", "59s", "1m", "1m15s", "1h", "2h1m", "1d", "2d7h")
    ]
