"""The command as a process: pipes, signals, and a server that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headwater.client import Headwater
from tests.cli.conftest import Run, Spawn
from tests.conftest import StartServer
from tests.support.server import ServerProcess

HEADWATER = f"{sys.executable} -m headwater"


def shell(command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_reader_that_goes_away_is_no_error(
    process_environment: dict[str, str], client: Headwater, text_stream: str
) -> None:
    client.stream(text_stream).append_all(["a line\n"] * 500_000)
    ran = shell(f"{HEADWATER} read {text_stream} | head -1", process_environment)
    assert ran.stdout == "a line\n"
    assert ran.stderr == ""
    assert ran.returncode == 141


def test_so_it_is_for_a_few_bytes_that_come_too_late(
    process_environment: dict[str, str], run: Run, json_stream: str
) -> None:
    run("append", json_stream, "1")
    ran = shell(f"{HEADWATER} read {json_stream} | true", process_environment)
    assert ran.stderr == ""
    assert ran.returncode in (0, 141)


def test_a_tail_that_has_nothing_to_write_notices_too(
    spawn: Spawn, run: Run, json_stream: str
) -> None:
    run("append", json_stream, "1")
    process = spawn("tail", json_stream)
    assert read_line(process) == b"1\n"
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_the_end_of_a_tail(spawn: Spawn, run: Run, json_stream: str) -> None:
    run("append", json_stream, "1")
    process = spawn("tail", json_stream)
    assert read_line(process) == b"1\n"
    run("append", json_stream, "2", "--close")
    assert process.communicate(timeout=60) == (b"2\n", b"")
    assert process.returncode == 0


def test_a_stream_that_is_deleted_meanwhile(spawn: Spawn, run: Run, json_stream: str) -> None:
    run("append", json_stream, "1")
    process = spawn("tail", json_stream)
    assert read_line(process) == b"1\n"
    time.sleep(0.2)
    run("rm", json_stream, "--yes")
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == (b"", 3)
    assert err.count(b"\n") == 1


@pytest.mark.parametrize("signals", [1, 3])
def test_an_interrupt_is_clean(spawn: Spawn, run: Run, json_stream: str, signals: int) -> None:
    run("append", json_stream, "1")
    process = spawn("read", json_stream, "--follow")
    assert read_line(process) == b"1\n"
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (b"", b"", 130)


def test_an_interrupt_while_waiting_for_input(spawn: Spawn, run: Run, json_stream: str) -> None:
    process = spawn("append", json_stream)
    assert process.stdin is not None
    process.stdin.write(b"1\n")
    process.stdin.flush()
    wait_until(lambda: run("read", json_stream).lines == ["1"])
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_lines_are_sent_while_the_pipe_is_open(spawn: Spawn, run: Run, text_stream: str) -> None:
    process = spawn("append", text_stream)
    assert process.stdin is not None
    for number in range(3):
        process.stdin.write(b"line %d\n" % number)
        process.stdin.flush()
        wait_until(lambda seen=number + 1: len(run("read", text_stream).lines) == seen)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_with_a_producer_too(spawn: Spawn, run: Run, json_stream: str) -> None:
    process = spawn("append", json_stream, "--producer", "p", "--epoch", "0")
    assert process.stdin is not None
    for number in range(3):
        process.stdin.write(b"%d\n" % number)
        process.stdin.flush()
        wait_until(lambda seen=number + 1: len(run("read", json_stream).lines) == seen)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_batches_do_not_depend_on_time(spawn: Spawn, run: Run, text_stream: str) -> None:
    """The same input, dripping or at once, is cut into the same batches."""
    lines = [b"%d\n" % number for number in range(50)]
    process = spawn("append", text_stream, "--producer", "p", "--epoch", "0", "--batch", "20")
    assert process.stdin is not None
    for line in lines:
        process.stdin.write(line)
        process.stdin.flush()
        time.sleep(0.01)
    process.communicate(timeout=60)
    # A text stream counts its appends.
    assert run("info", text_stream, "--json").record["messages"] == 3
    again = run(
        "append",
        text_stream,
        "--producer",
        "p",
        "--epoch",
        "0",
        "--batch",
        "20",
        "--json",
        stdin=b"".join(lines),
    )
    assert again.record["duplicates"] == 50
    assert run("read", text_stream).out == b"".join(lines).decode()


def test_a_pipe_into_a_pipe(process_environment: dict[str, str], run: Run, path: str) -> None:
    run("create", f"{path}/a", "-t", "text")
    run("create", f"{path}/b", "-t", "text")
    ran = shell(
        f"seq 1 50000 | {HEADWATER} append {path}/a "
        f"&& {HEADWATER} read {path}/a | {HEADWATER} append {path}/b "
        f"&& {HEADWATER} read {path}/b | sha256sum; seq 1 50000 | sha256sum",
        process_environment,
    )
    assert ran.stderr == ""
    first, second = ran.stdout.splitlines()
    assert first == second


def test_bytes_pass_through_unchanged(
    process_environment: dict[str, str], run: Run, bytes_stream: str, tmp_path: Path
) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(os.urandom(3_000_000))
    ran = shell(
        f"{HEADWATER} append {bytes_stream} --raw < {blob} "
        f"&& {HEADWATER} read {bytes_stream} | cmp - {blob}",
        process_environment,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_full_disk_is_one_line(
    process_environment: dict[str, str], client: Headwater, text_stream: str
) -> None:
    client.stream(text_stream).append("x" * 100_000)
    for command in f"read {text_stream}", "ls", "--help", "ls --help", "--version":
        ran = shell(f"{HEADWATER} {command} > /dev/full", process_environment)
        assert (ran.returncode, ran.stderr) == (1, "headwater: No space left on device\n")


def test_streams_that_were_closed(
    process_environment: dict[str, str], run: Run, json_stream: str
) -> None:
    command = f"{HEADWATER} append {json_stream} 1 --json"
    assert shell(f"{command} >&- 2>&- <&-", process_environment).returncode == 0
    assert shell(f"{command} <&-", process_environment).stdout.startswith('{"name"')
    assert run("read", json_stream).lines == ["1", "1"]


def test_arguments_that_are_not_text(
    process_environment: dict[str, str], client: Headwater, text_stream: str
) -> None:
    ran = shell(f"{HEADWATER} append {text_stream} $'\\xff\\xfe'", process_environment)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert client.stream(text_stream).read_bytes() == b"\xff\xfe\n"
    ran = shell(f"{HEADWATER} read $'\\xff'", process_environment)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [(), ("--timestamps",)])
def test_the_server_goes_away_for_a_moment(
    start_server: StartServer,
    spawn: Spawn,
    tmp_path: Path,
    process_environment: dict[str, str],
    options: tuple[str, ...],
) -> None:
    """Lines and a reader, through a server that is killed and comes back: once each, in order."""
    server = start_server("--data", str(tmp_path / "data"))
    process_environment["STREAM_URL"] = server.url
    with Headwater(server.url) as client:
        client.stream("s").create(content_type="application/json")
    tail = spawn("read", "s", "--follow", *options)
    append = spawn("append", "s")
    assert append.stdin is not None
    expected = [b"%d\n" % number for number in range(300)]
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.extend(tail.stdout or ()))
    reader.start()
    for number, line in enumerate(expected):
        append.stdin.write(line)
        append.stdin.flush()
        time.sleep(0.003)
        if number == 0:
            wait_until(lambda: bool(received))  # both are at work
        if number in (80, 200):
            server.kill()
            time.sleep(0.2)
            server.start()
    _, err = append.communicate(timeout=60)
    assert (append.returncode, err) == (0, b"")
    with Headwater(server.url) as client:
        client.stream("s").close()
        assert client.stream("s").read_json() == list(range(300))
    assert tail.wait(60) == 0
    reader.join(60)
    assert [line.split(b" ")[-1] for line in received] == expected


def test_a_run_that_fails_can_be_repeated(
    start_server: StartServer,
    spawn: Spawn,
    run: Run,
    tmp_path: Path,
    process_environment: dict[str, str],
) -> None:
    """Kill the command in the middle of its input, run it again: every line once."""
    server = start_server("--data", str(tmp_path / "data"))
    process_environment["STREAM_URL"] = server.url
    data = b"".join(b'{"line": %d}\n' % number for number in range(20_000))
    run("create", "s", STREAM_URL=server.url)
    arguments = ("append", "s", "--producer", "import", "--epoch", "0", "--batch", "100")
    for cut in (50_000, 120_000, 250_000):
        process = spawn(*arguments)
        assert process.stdin is not None
        process.stdin.write(data[:cut])
        process.stdin.flush()
        wait_until(lambda: bool(run("read", "s", "-n", "1", STREAM_URL=server.url).out))
        process.kill()
        process.wait()
        if cut == 120_000:
            server.kill()
            server.start()
    ran = run(*arguments, "--json", stdin=data, STREAM_URL=server.url)
    assert 0 < ran.record["duplicates"] < 20_000
    assert run("read", "s", STREAM_URL=server.url).out.encode() == data


def test_a_run_without_a_server_fails_and_says_how_far_it_came(
    server: ServerProcess,
    spawn: Spawn,
    process_environment: dict[str, str],
) -> None:
    process_environment["STREAM_URL"] = server.url
    process = spawn("create", "s")
    assert process.wait(60) == 0
    server.stop()
    process = spawn("append", "s", "1")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 6
    assert err.count(b"\n") == 1


def wait_until(condition: object, timeout_s: float = 60.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
