"""consume: printing, running commands, and ending well."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from headwater.client import Group, Headwater, Stream
from tests.cli.conftest import Run, Spawn
from tests.conftest import StartServer


@pytest.fixture
def stream(client: Headwater, json_stream: str) -> Stream:
    return client.stream(json_stream)


@pytest.fixture
def group(stream: Stream) -> Group:
    """A group on a stream with three messages."""
    stream.append_all([{"n": 1}, {"n": 2}, {"n": 3}])
    group = stream.group("g")
    group.ensure()
    return group


def ended(process: subprocess.Popen[bytes], code: int = 0) -> tuple[str, str]:
    """Wait for the end, and check how it was."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err.decode()
    assert b"Traceback" not in err
    return out.decode(), err.decode()


def wait_for(path: Path) -> str:
    for _ in range(6000):
        if path.exists():
            return path.read_text()
        time.sleep(0.01)
    raise AssertionError(f"{path} was never written")


# --- Printing ------------------------------------------------------------------------------------


def test_messages_are_printed_and_acknowledged(run: Run, group: Group, json_stream: str) -> None:
    ran = run("consume", json_stream, "g", "--until-empty")
    assert ran.lines == ['{"n":1}', '{"n":2}', '{"n":3}']
    assert group.info().lag == 0
    assert run("consume", json_stream, "g", "--once").out == ""


def test_what_goes_beyond_the_limit_is_given_back(run: Run, group: Group, json_stream: str) -> None:
    assert run("consume", json_stream, "g", "-n", "2", "--batch", "100").lines == [
        '{"n":1}',
        '{"n":2}',
    ]
    info = group.info()
    assert (info.lag, info.in_flight) == (1, 0)
    [message] = group.fetch()
    assert message.deliveries == 1


def test_records(run: Run, group: Group, json_stream: str) -> None:
    records = run("consume", json_stream, "g", "--once", "--json").records
    assert [record["value"] for record in records] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [record["id"] for record in records] == ["0", "1", "2"]
    assert {record["deliveries"] for record in records} == {1}


def test_a_stream_of_text(run: Run, client: Headwater, text_stream: str) -> None:
    for data in (b"one", b"two\n", b"\xff"):
        client.stream(text_stream).append(data)
    command = ("consume", text_stream, "g", "--create", "--once")
    first, second, third = run(*command, "--json").records
    assert (first["text"], second["text"], third["data"]) == ("one", "two\n", "/w==")


def test_a_line_for_each_text(run: Run, client: Headwater, text_stream: str) -> None:
    for text in ("one", "two\n"):
        client.stream(text_stream).append(text)
    assert run("consume", text_stream, "g", "--create", "--once").out == "one\ntwo\n"


def test_any_other_stream_is_printed_as_it_is(
    run: Run, client: Headwater, bytes_stream: str
) -> None:
    for data in (b"a", b"b\n\n"):
        client.stream(bytes_stream).append(data)
    assert run("consume", bytes_stream, "g", "--create", "--once").out == "ab\n\n"


def test_order_is_kept_over_many(run: Run, stream: Stream, json_stream: str) -> None:
    stream.append_all(range(1000))
    ran = run("consume", json_stream, "g", "--create", "--once")
    assert ran.lines == [str(number) for number in range(1000)]
    assert stream.group("g").info().lag == 0


def test_create_makes_a_group_and_leaves_one_as_it_is(
    run: Run, stream: Stream, json_stream: str
) -> None:
    stream.append_all([1, 2, 3])
    command = ("consume", json_stream, "g", "--create", "--once", "--start", "-1")
    assert run(*command, "--ack-timeout", "5s").lines == ["3"]
    assert run(*command, "--ack-timeout", "9s").lines == []
    assert stream.group("g").info().settings.ack_timeout_s == 5


def test_what_is_not_there(run: Run, path: str, json_stream: str) -> None:
    assert "headwater create" in run("consume", f"{path}/none", "g", code=3).err
    assert "headwater group create" in run("consume", json_stream, "g", code=3).err


def test_a_reader_that_goes_away(spawn: Spawn, group: Group, json_stream: str) -> None:
    process = spawn("consume", json_stream, "g")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)][2] == b'{"n":3}\n'
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_group_that_is_deleted_meanwhile(
    spawn: Spawn, run: Run, group: Group, json_stream: str
) -> None:
    process = spawn("consume", json_stream, "g")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)][2] == b'{"n":3}\n'
    group.delete()
    _, err = ended(process, 3)
    assert err.count("\n") == 1


# --- Commands ------------------------------------------------------------------------------------


def test_a_command_for_each_message(spawn: Spawn, group: Group, stream: Stream) -> None:
    variables = "STREAM GROUP OFFSET MESSAGE_ID DELIVERIES"
    shown = " ".join(f"$HEADWATER_{name}" for name in variables.split())
    offset = group.info().position
    out, err = ended(spawn("consume", stream.path, "g", "-x", f'cat; echo "{shown}"', "--once"))
    assert err == ""
    assert out.splitlines() == [
        *('{"n":1}', f"{stream.path} g {offset} 0 1"),
        *('{"n":2}', f"{stream.path} g {offset} 1 1"),
        *('{"n":3}', f"{stream.path} g {offset} 2 1"),
    ]
    assert group.info().lag == 0


def test_exit_codes_decide(
    spawn: Spawn, client: Headwater, stream: Stream, json_stream: str
) -> None:
    stream.append_all([0, 3, 65])
    dead = client.stream(f"{json_stream}/dead")
    stream.group("g").ensure(dead_letter=dead.path)
    command = ("-x", "exit $(cat)", "--reject-code", "65", "--nack-delay", "1h")
    out, err = ended(spawn("consume", json_stream, "g", *command, "--once", "--json"), 1)
    records = [msgspec.json.decode(line) for line in out.splitlines()]
    assert [(record["outcome"], record["exit_code"]) for record in records] == [
        ("acked", 0),
        ("nacked", 3),
        ("rejected", 65),
    ]
    assert "message 1: the command ended with 3; it is delivered again in 1h" in err
    assert "message 2: the command ended with 65; it was rejected" in err
    assert err.endswith("headwater: 2 of 3 messages failed\n")
    assert next(dead.follow().messages())["value"] == 65
    assert stream.group("g").info().lag == 1


def test_a_failed_message_is_delivered_again(spawn: Spawn, stream: Stream) -> None:
    stream.append(1)
    stream.group("g").ensure()
    command = ("-x", "test $HEADWATER_DELIVERIES -gt 2", "--nack-delay", "10ms", "-n", "3")
    out, err = ended(spawn("consume", stream.path, "g", *command, "--json"), 1)
    outcomes = [msgspec.json.decode(line)["outcome"] for line in out.splitlines()]
    assert outcomes == ["nacked", "nacked", "acked"]
    assert err.endswith("headwater: 2 of 3 messages failed\n")


@pytest.mark.parametrize(
    "command, content",
    [
        ("true", "x" * 1_000_000),  # does not read what it is given
        ("head -c 1 > /dev/null", "x" * 1_000_000),  # stops early
        ("exec <&-; exit 0", "x" * 1_000_000),  # closes its stdin
        ("head -c 3000000 /dev/zero; cat > /dev/null", "x"),  # prints much
    ],
)
def test_commands_that_do_as_they_like(
    spawn: Spawn, stream: Stream, command: str, content: str
) -> None:
    stream.append(content)
    _, err = ended(spawn("consume", stream.path, "g", "--create", "-x", command, "--once"))
    assert err == ""
    assert stream.group("g").info().lag == 0


def test_a_command_that_is_killed(spawn: Spawn, group: Group, json_stream: str) -> None:
    process = spawn("consume", json_stream, "g", "-x", "kill -9 $$", "-n", "1", "--json")
    out, err = ended(process, 1)
    assert msgspec.json.decode(out)["exit_code"] == -9
    assert "was killed by signal 9" in err
    assert group.info().lag == 3


@pytest.mark.parametrize("command", ["no-such-command-anywhere", "/dev/null"])
def test_a_command_that_cannot_be_run(
    spawn: Spawn, group: Group, json_stream: str, command: str
) -> None:
    """That is not the messages' fault, so they are as they were."""
    _, err = ended(spawn("consume", json_stream, "g", "-x", command, "-c", "3"), 1)
    assert err.splitlines()[-1].startswith("headwater: the command cannot be run (exit code 12")
    assert [message.deliveries for message in group.fetch(max=3)] == [1, 1, 1]


def test_ids_that_the_environment_cannot_hold(spawn: Spawn, client: Headwater, path: str) -> None:
    stream = client.stream(path)
    headers = {"Stream-Unique-Ids": "fail", "Stream-Id-Pointer": "/id"}
    stream.create(content_type="application/json", headers=headers)
    stream.append({"id": "a\0b=\n"})
    command = 'printf %s "$HEADWATER_MESSAGE_ID"'
    assert ended(spawn("consume", path, "g", "--create", "-x", command, "--once"))[0] == "ab=\n"


def test_leases_are_extended_while_a_command_runs(spawn: Spawn, stream: Stream) -> None:
    stream.append(1)
    group = stream.group("g")
    # A machine that stalls for longer than the lease is given a longer one.
    for lease_s in (0.3, 3, 15):
        group.ensure(ack_timeout_s=lease_s)
        group.seek("first")
        command = f"sleep {lease_s * 4}"
        spawn("consume", stream.path, "g", "-x", command, "-n", "1").communicate(timeout=120)
        if group.info().lag == 0:
            break
    assert group.info().lag == 0


def test_as_many_at_a_time_as_allowed(spawn: Spawn, stream: Stream, tmp_path: Path) -> None:
    """Each waits for the other, so they can only end if both run."""
    stream.append_all([1, 2])
    stream.group("g").ensure()
    meet = f"cd {tmp_path}; n=$(cat); touch $n; until [ -e $((3 - n)) ]; do sleep 0.02; done"
    ended(spawn("consume", stream.path, "g", "-x", meet, "-c", "2", "--once"))
    assert stream.group("g").info().lag == 0


def test_commands_see_keys_in_order(spawn: Spawn, stream: Stream) -> None:
    """What waits behind another of its key is worked on before the end."""
    stream.append_all([{"k": "a", "n": n} for n in range(5)])
    stream.group("g").ensure(order_by="/k")
    out, _ = ended(spawn("consume", stream.path, "g", "-x", "cat", "-c", "4", "--once"))
    assert [msgspec.json.decode(line)["n"] for line in out.splitlines()] == [0, 1, 2, 3, 4]


# --- Signals -------------------------------------------------------------------------------------


def begin(spawn: Spawn, stream: Stream, tmp_path: Path, script: str) -> subprocess.Popen[bytes]:
    """A worker that has begun one of three messages, which it has fetched all."""
    command = f"echo $$ > {tmp_path}/pid; mv {tmp_path}/pid {tmp_path}/begun; {script}"
    process = spawn("consume", stream.path, "g", "-x", command, "--batch", "3")
    wait_for(tmp_path / "begun")
    return process


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_what_has_begun_is_finished(
    spawn: Spawn, group: Group, stream: Stream, tmp_path: Path, number: int, code: int
) -> None:
    go = tmp_path / "go"
    process = begin(spawn, stream, tmp_path, f"until [ -e {go} ]; do sleep 0.02; done; echo done")
    assert group.info().in_flight == 3
    process.send_signal(number)
    for _ in range(6000):
        if group.info().in_flight == 1:
            break
        time.sleep(0.01)
    # The rest is there for others while the command still runs.
    assert [message.deliveries for message in group.fetch(max=3)] == [1, 1]
    assert process.poll() is None
    go.touch()
    out, err = ended(process, code)
    assert (out, err) == ("done\n", "")
    assert group.info().lag == 2


def test_a_second_signal_ends_the_commands(
    spawn: Spawn, group: Group, stream: Stream, tmp_path: Path
) -> None:
    process = begin(spawn, stream, tmp_path, "sleep 600")
    process.send_signal(signal.SIGTERM)
    for _ in range(6000):
        if group.info().in_flight == 1:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    ended(process)
    assert [message.deliveries for message in group.fetch(max=3)] == [1, 1, 1]


def test_ctrl_c_of_a_terminal_does_not_reach_the_command(
    spawn: Spawn, group: Group, stream: Stream, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    process = begin(spawn, stream, tmp_path, f"until [ -e {go} ]; do sleep 0.02; done; echo done")
    command_pid = int((tmp_path / "begun").read_text())
    session = subprocess.run(
        ["ps", "-o", "sid=", "-p", str(command_pid)], capture_output=True, text=True, check=True
    )
    assert int(session.stdout) == command_pid != process.pid
    process.send_signal(signal.SIGINT)
    go.touch()
    assert ended(process, 130)[0] == "done\n"


def test_a_signal_ends_a_wait(spawn: Spawn, run: Run, json_stream: str) -> None:
    process = spawn("consume", json_stream, "g", "--create", "--name", "me")
    for _ in range(6000):
        if "me" in run("group", "ls", json_stream, "--json").out:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert ended(process, 130) == ("", "")


# --- The server ----------------------------------------------------------------------------------


@pytest.mark.crash
def test_a_server_that_dies_while_a_command_runs(
    spawn: Spawn, start_server: StartServer, tmp_path: Path
) -> None:
    """The command goes on, and its message is acknowledged when the server is back."""
    server = start_server("--data", str(tmp_path / "data"))
    begun, go = tmp_path / "begun", tmp_path / "go"
    command = f"touch {begun}; until [ -e {go} ]; do sleep 0.02; done; cat"
    with Headwater(server.url) as client:
        stream = client.stream("jobs")
        stream.create(content_type="application/json")
        stream.append_all([1, 2])
        process = spawn(
            "--url", server.url, "consume", "jobs", "g", "--create", "-x", command, "-n2"
        )
        wait_for(begun)
        # Who has the message is stored behind the delivery, and before anybody is told of it.
        assert stream.group("g").info().in_flight == 1
        server.kill()
        server.start()
        go.touch()
        assert ended(process) == ("1\n2\n", "")
        assert stream.group("g").info().lag == 0
