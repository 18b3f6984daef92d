"""top and bench: figures about a server."""

from __future__ import annotations

import signal
import threading
import time
from array import array

from headwater.cli.bench.load import latency, message
from headwater.client import Headwater
from tests.cli.conftest import Run, Spawn
from tests.cli.plain_server import plain_server, refusing_server


def test_top_once(run: Run, client: Headwater, path: str) -> None:
    quiet, busy = client.stream(f"{path}/quiet"), client.stream(f"{path}/busy")
    for stream in (quiet, busy):
        stream.create(content_type="application/json")
    quiet.append_all(range(10))
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            busy.append({"n": 1})
            time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        arguments = ("top", "--prefix", path, "--once", "--interval", "0.3")
        record = run(*arguments, "--json").record
        while not record["messages_per_s"]:  # a slow machine may write nothing in that time
            record = run(*arguments, "--json").record
        table = run(*arguments, "--sort", "name", "-n", "1").lines
    finally:
        done.set()
        writer.join()
    assert record["interval_s"] >= 0.3
    first, second = record["streams"]
    assert first["name"] == f"{path}/busy"
    assert first["messages_per_s"] > 0
    assert first["bytes_per_s"] > first["messages_per_s"]
    assert record["messages_per_s"] == first["messages_per_s"]
    assert second["messages"] == 10
    assert (second["messages_per_s"], second["bytes_per_s"], second["closed"]) == (0, 0, False)
    assert table[1].split() == ["STREAM", "MESSAGES/S", "BYTES/S", "MESSAGES", "SIZE", "STATE"]
    assert [line.split()[0] for line in table[2:]] == [f"{path}/busy"]


def test_top_goes_on_in_json(spawn: Spawn, run: Run, json_stream: str) -> None:
    process = spawn("top", "--json", "--interval", "0.1", "--prefix", json_stream)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert all(json_stream.encode() in line for line in lines)
    process.stdout.close()
    assert process.wait(60) == 141


def test_a_stream_made_anew_starts_from_nothing(
    run: Run, client: Headwater, json_stream: str
) -> None:
    stream = client.stream(json_stream)
    stream.append_all(range(100))

    def replace() -> None:
        time.sleep(0.2)
        stream.delete()
        stream.create(content_type="application/json")

    thread = threading.Thread(target=replace)
    thread.start()
    ran = run("top", "--prefix", json_stream, "--once", "--json", "--interval", "0.6")
    thread.join()
    # It may be gone at the moment of the look.
    assert not any(stream["messages_per_s"] for stream in ran.record["streams"])


def test_bench_prints_figures_and_cleans_up(run: Run, path: str) -> None:
    arguments = ("bench", "--count", "100", "--seconds", "20", "-c", "4", "-s", "3")
    record = run(*arguments, "--prefix", path, "--json").record
    assert record["append"]["count"] == 100
    assert record["append"]["per_s"] > 0
    figures = [record["append"][name] for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
    assert figures == sorted(figures)
    assert figures[0] > 0
    assert (record["errors"], record["delivery"]) == (0, None)
    assert run("ls", "--prefix", path).out == ""
    table = run(*arguments, "--prefix", path).lines
    assert table[1].split()[:3] == ["COUNT", "PER", "SECOND"]
    assert table[2].split()[:2] == ["append", "100"]


def test_bench_times_the_delivery_too(run: Run, path: str) -> None:
    record = run(
        "bench", "-n", "50", "-s", "2", "--follow", "--rate", "200", "--prefix", path, "--json"
    ).record
    assert record["append"]["count"] == record["delivery"]["count"] == 50
    assert record["delivery"]["p50_ms"] > 0
    assert record["seconds"] >= 0.2


def test_bench_stops_in_time(run: Run, path: str) -> None:
    record = run("bench", "-n", "1000000", "--seconds", "0.5", "--prefix", path, "--json").record
    assert 0 < record["append"]["count"] < 1_000_000


def test_bench_can_leave_the_streams(run: Run, path: str) -> None:
    run("bench", "-n", "4", "-s", "2", "--size", "1000", "--keep", "--prefix", path)
    records = run("ls", "--prefix", path, "--json").records
    assert [record["messages"] for record in records] == [2, 2]
    assert all(record["ttl_s"] for record in records)
    message_line = run("read", records[0]["name"], "-n", "1").out.strip()
    assert len(message_line) == 1000


def test_bench_on_another_server(run: Run, base_url: str, path: str) -> None:
    with plain_server(base_url) as url:
        ran = run("bench", "-n", "20", "--prefix", path, "--json", STREAM_URL=url)
    assert ran.record["append"]["count"] == 20


def test_bench_where_it_cannot_work(run: Run) -> None:
    with refusing_server(401) as (url, _):
        run("bench", "-n", "5", STREAM_URL=url, code=5)
    run("bench", "-n", "5", STREAM_URL="http://127.0.0.1:1", code=6)
    run("bench", "-n", "5", "--prefix", "a//b", code=2)


def test_latencies() -> None:
    values = array("q", [number * 1_000_000 for number in range(1, 101)])
    figures = latency(values, 2.0)
    assert (figures.count, figures.per_s) == (100, 50.0)
    assert (figures.p50_ms, figures.p90_ms, figures.p99_ms, figures.max_ms) == (50, 90, 99, 100)
    assert latency(array("q"), 0.0).max_ms == 0


def test_messages_have_the_size_that_was_asked_for() -> None:
    assert {len(message(at, 64)) for at in (0, 1, 2**62)} == {64}


def test_an_interrupted_bench_cleans_up_too(spawn: Spawn, run: Run, path: str) -> None:
    process = spawn("bench", "--prefix", path, "-n", "1000000", "--seconds", "60", "--follow")
    deadline = time.monotonic() + 60
    while not run("ls", "--prefix", path).out:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (b"", b"", 130)
    assert run("ls", "--prefix", path).out == ""
