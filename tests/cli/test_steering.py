"""pipeline ls, show, pause, resume, reset."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from headwater.client import Headwater
from headwater.core.pipelines import CONTROL
from tests.cli.conftest import Run

PATIENCE_S = 60


@pytest.fixture
def name(json_stream: str) -> str:
    """The name of a pipeline that no other test has."""
    return f"archive-{json_stream.replace('/', '-')}"


def report(base_url: str, name: str, stream: str, **more: Any) -> None:
    said = {"name": name, "kind": "archive", "batch": 3, "rows": 1200, "rows_per_s": 412.5}
    said |= {"batch_ms": 900, "lag_messages": 7, "lag_s": 75, "selection": stream, "streams": 1}
    said |= {"root": "lake", "maintenance_in": 12, "error": "the disk said no"}
    said |= {"last_error": "the disk said no", "last_error_at": 1_767_225_600_000}
    httpx.post(f"{base_url}/v1/pipelines", json=said | more).raise_for_status()


def orders(client: Headwater, name: str) -> list[Any]:
    told = client.stream(CONTROL).read_json()
    return [
        {k: v for k, v in one.items() if k != "pipeline"} for one in told if one["pipeline"] == name
    ]


@contextmanager
def obedient(base_url: str, client: Headwater, name: str, stream: str) -> Iterator[None]:
    """A pipeline that does as it is told."""
    over = threading.Event()

    def obey() -> None:
        while not over.wait(0.1):
            info = client.stream(CONTROL).head()
            last = orders(client, name)[-1:] or [{"do": "resume"}]
            state = "paused" if last[0]["do"] == "pause" else "running"
            report(base_url, name, stream, state=state, obeyed=info.next_offset)

    client.stream(CONTROL).ensure(content_type="application/json")
    report(base_url, name, stream)
    thread = threading.Thread(target=obey)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)


def test_seen(run: Run, base_url: str, name: str, json_stream: str) -> None:
    report(base_url, name, json_stream, state="failing", on_error="quarantine", quarantined=2)
    listed = [one for one in run("pipeline", "ls", "--json").records if one["name"] == name]
    assert [(one["state"], one["lag_messages"], one["error"]) for one in listed] == [
        ("failing", 7, "the disk said no")
    ]
    assert name in run("pipeline", "ls").out
    shown = run("pipeline", "show", name).out
    for part in ("412 rows/s", "7 messages", "1m15s", "in 12 commits", f"2 in quarantine/{name}"):
        assert part in shown
    assert "the disk said no (2026-01-01T00:00:00Z)" in shown
    assert run("pipeline", "show", name, "--json").record == listed[0]


def test_told_and_obeyed(
    run: Run, base_url: str, client: Headwater, name: str, json_stream: str
) -> None:
    offset = client.stream(json_stream).append_all([1, 2]).next_offset  # type: ignore[union-attr]
    with obedient(base_url, client, name, json_stream):
        assert f"{name} is paused" in run("pipeline", "pause", name).err
        assert f"{name} is running again" in run("pipeline", "resume", name).err
        run("pipeline", "reset", name, "--to", "first", "--yes")
        run("pipeline", "reset", name, "--to", str(offset), "--yes")
        run("pipeline", "reset", name, "--to", "latest", "--stream", json_stream, "--yes")
        run("pipeline", "reset", name, "--to", "-1", "--yes")
    told = orders(client, name)
    assert [one["do"] for one in told] == ["pause", "resume", *["reset"] * 4]
    start = "0000000000000000_0000000000000000"
    assert [one["to"] for one in told[2:]] == [
        "earliest",
        {json_stream: offset},
        {json_stream: "latest"},
        {json_stream: start},
    ]


def test_one_that_does_not_run_is_told_for_later(
    run: Run, base_url: str, client: Headwater, name: str, json_stream: str
) -> None:
    assert "did you mean" in run("pipeline", "pause", _with_a_slip(run, base_url, name), code=3).err
    report(base_url, name, json_stream, state="ended")
    assert "does not run now" in run("pipeline", "pause", name).err
    assert "does not run now" in run("pipeline", "pause", f"{name}-2", "--yes").err
    assert [one["do"] for one in orders(client, f"{name}-2")] == ["pause"]


def _with_a_slip(run: Run, base_url: str, name: str) -> str:
    report(base_url, name, "any")
    return f"{name}x"


def test_a_reset_is_confirmed_and_means_something(
    run: Run, base_url: str, client: Headwater, name: str, json_stream: str
) -> None:
    report(base_url, name, json_stream)
    reset = ("pipeline", "reset", name)
    assert "add --yes" in run(*reset, "--to", "first", code=2).err
    assert "--to" in run(*reset, code=2).err
    for nonsense in ("", "one two", "@yesterday", "-x"):
        run(*reset, "--to", nonsense, "--yes", code=2)
    assert run(*reset, "--to", "7_7", "--yes", code=1).err.count("\n") == 1
    missing = run(*reset, "--stream", f"{json_stream}/no", "--to", "-1", "--yes", code=3)
    assert f"{json_stream}/no" in missing.err
    report(base_url, name, "shops/*")
    assert "several streams" in run(*reset, "--to", "-1", "--yes", code=2).err
    report(base_url, name, json_stream, kind="snapshot")
    assert "no position of its own" in run(*reset, "--to", "first", "--yes", code=2).err
    assert orders(client, name) == []
