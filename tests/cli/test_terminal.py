"""What a person sees on a terminal: tables, questions, progress, and Ctrl-C."""

from __future__ import annotations

import subprocess
import time
import unicodedata

import pytest

from headwater.client import Headwater, StreamNotFound
from tests.cli.conftest import Run
from tests.cli.terminal import on_terminal

CTRL_C = "\x03"


def test_ls_is_a_table(process_environment: dict[str, str], run: Run, json_stream: str) -> None:
    run("append", json_stream, stdin="1\n2\n")
    run("close", json_stream)
    with on_terminal("ls", "--prefix", json_stream, env=process_environment) as terminal:
        assert terminal.end() == 0
    head, row = terminal.screen.splitlines()
    assert head.split() == ["STREAM", "TYPE", "MESSAGES", "SIZE", "CREATED", "STATE"]
    assert row.split()[0] == json_stream
    assert row.split()[1:3] == ["application/json", "2"]
    assert row.split()[-1] == "closed"


def test_ls_of_nothing_says_what_to_do(process_environment: dict[str, str]) -> None:
    with on_terminal("ls", "--prefix", "nothing/here", env=process_environment) as terminal:
        assert terminal.end() == 0
    assert "headwater create" in terminal.screen


def test_names_are_shown_as_they_are(
    process_environment: dict[str, str], client: Headwater, path: str
) -> None:
    stream = client.stream(f"{path}/:tea:")
    stream.create()
    stream.group("all").ensure()
    # Groups of other tests are listed too, and a long name would have all of them cut.
    with on_terminal("group", "ls", env=process_environment, columns=1_000) as terminal:
        assert terminal.end() == 0
    assert stream.path in terminal.screen.split()


# A new title for the window, red (with one byte and with two), a bell, and a line overwritten.
EVIL = "\x1b]0;title\x07 \x1b[31m \x9b31m \x7f over\rwritten é\n"


@pytest.mark.parametrize(
    "words",
    [
        ("read",),
        ("tail", "--no-follow"),
        ("read", "--grep", "over"),
        ("read", "--json"),
        ("read", "--details"),
        ("read", "--format", "csv"),
        ("read", "--format", "%o %s\\n"),
        ("read", "--timestamps"),
        ("consume", "g", "--max", "1"),
        ("api",),
    ],
    ids=" ".join,
)
def test_messages_do_not_drive_the_terminal(
    process_environment: dict[str, str], client: Headwater, text_stream: str, words: tuple[str, ...]
) -> None:
    stream = client.stream(text_stream)
    stream.append(EVIL)
    stream.group("g").ensure()
    name = f"/v1/stream/{text_stream}" if words == ("api",) else text_stream
    line = (words[0], name, *words[1:])
    with on_terminal(*line, env=process_environment, columns=1_000) as terminal:
        assert terminal.end() == 0, terminal.screen
    _check_harmless(terminal.written)
    if words != ("read", "--details"):  # which has it in base64
        assert "é" in terminal.screen
        assert "\\u001b]0;title" in terminal.screen


def test_a_key_does_not_drive_the_terminal(
    process_environment: dict[str, str], client: Headwater, json_stream: str
) -> None:
    client.stream(json_stream).append({"key": EVIL})
    line = ("read", json_stream, "--format", "%k %s\\n")
    with on_terminal(*line, env=process_environment, columns=1_000) as terminal:
        assert terminal.end() == 0, terminal.screen
    _check_harmless(terminal.written)


def test_escapes_of_a_template_are_meant(
    process_environment: dict[str, str], client: Headwater, text_stream: str
) -> None:
    client.stream(text_stream).append("one\n")
    line = ("read", text_stream, "--format", "\\x1b[1m%s\\x1b[0m\\n")
    with on_terminal(*line, env=process_environment) as terminal:
        assert terminal.end() == 0
    assert b"\x1b[1mone\x1b[0m" in terminal.written


def _check_harmless(written: bytes) -> None:
    text = written.decode().replace("\r\n", "\n")
    assert not [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"], text


def test_rm_asks(process_environment: dict[str, str], client: Headwater, json_stream: str) -> None:
    stream = client.stream(json_stream)
    with on_terminal("rm", json_stream, env=process_environment) as terminal:
        terminal.wait_for(f"Delete {json_stream} on ")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert "nothing was deleted" in terminal.screen
    assert stream.head().closed is False
    with on_terminal("rm", json_stream, env=process_environment) as terminal:
        terminal.wait_for("[y/N]")
        assert terminal.interrupt() == 130
    assert "Traceback" not in terminal.screen
    assert stream.head().closed is False
    with on_terminal("rm", json_stream, env=process_environment) as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("y\n")
        assert terminal.end() == 0
    with pytest.raises(StreamNotFound):
        stream.head()


def test_clear_and_purge_ask_whether_it_is_for_good(
    process_environment: dict[str, str], json_stream: str
) -> None:
    for command, what in (
        (("clear",), f"all messages of {json_stream}"),
        (("rm", "--purge"), json_stream),
    ):
        with on_terminal(*command, json_stream, env=process_environment) as terminal:
            terminal.wait_for(f"Delete {what} on ")
            terminal.wait_for("for good? [y/N]")
            terminal.type("n\n")
            assert terminal.end() == 1
        assert "nothing was deleted" in terminal.screen


def test_deleted_streams_are_a_table(
    process_environment: dict[str, str], client: Headwater, json_stream: str
) -> None:
    client.stream(json_stream).append([1, 2])
    client.stream(json_stream).delete()
    listing = ("ls", "--deleted", "--prefix")
    with on_terminal(*listing, json_stream, env=process_environment) as terminal:
        assert terminal.end() == 0
    header, row = (line for line in terminal.screen.splitlines() if line.strip())
    assert "KEPT UNTIL" in header
    assert row.split()[:2] == [json_stream, "2"]
    with on_terminal(*listing, "nothing/here", env=process_environment) as terminal:
        assert terminal.end() == 0
    assert "no deleted streams" in terminal.screen


def test_groups_are_a_table(
    process_environment: dict[str, str], run: Run, json_stream: str
) -> None:
    with on_terminal("group", "ls", json_stream, env=process_environment) as terminal:
        assert terminal.end() == 0
    assert f"headwater group create {json_stream} NAME" in terminal.screen
    run("append", json_stream, "1")
    run("group", "create", json_stream, "workers")
    run("group", "pause", json_stream, "workers")
    with on_terminal("group", "ls", json_stream, env=process_environment) as terminal:
        assert terminal.end() == 0
    head, row = terminal.screen.splitlines()
    assert head.split() == ["GROUP", "LAG", "OLDEST", "IN", "FLIGHT", "MEMBERS", "STATE"]
    assert row.split()[:2] == ["workers", "1"]
    assert row.split()[-1] == "paused"


def test_group_rm_asks(
    process_environment: dict[str, str], client: Headwater, run: Run, json_stream: str
) -> None:
    run("group", "create", json_stream, "workers")
    for answer, code, left in (("n", 1, 1), ("y", 0, 0)):
        with on_terminal(
            "group", "rm", json_stream, "workers", env=process_environment
        ) as terminal:
            terminal.wait_for(f"Delete group workers of {json_stream} on ")
            terminal.type(f"{answer}\n")
            assert terminal.end() == code
        assert len(client.stream(json_stream).groups()) == left


def test_ctrl_c_lets_a_command_finish(
    process_environment: dict[str, str], run: Run, json_stream: str
) -> None:
    run("append", json_stream, "1")
    command = ("consume", json_stream, "g", "--create", "-x", "echo begun; sleep 0.5; echo done")
    with on_terminal(*command, env=process_environment) as terminal:
        terminal.wait_for("begun")
        terminal.type(CTRL_C)
        terminal.wait_for("repeat to stop it")
        assert terminal.end() == 130
    assert "done" in terminal.screen
    assert run("group", "lag", json_stream, "g", "--json").record["messages"] == 0


def test_ctrl_c_ends_a_tail_and_tells_where_to_go_on(
    process_environment: dict[str, str], run: Run, json_stream: str
) -> None:
    run("append", json_stream, stdin='1\n2\n"three"\n')
    with on_terminal("tail", json_stream, env=process_environment) as terminal:
        terminal.wait_for('"three"')
        run("append", json_stream, '"live"')
        terminal.wait_for('"live"')
        terminal.type(CTRL_C)
        assert terminal.end() == 130
    assert "Traceback" not in terminal.screen
    position = terminal.screen.split("--from ")[1].split()[0]
    run("append", json_stream, '"after"')
    # Nothing is skipped. What was just being shown when the interrupt came may be shown again.
    followed = run("read", json_stream, "--from", position).lines
    assert followed in (['"after"'], ['"live"', '"after"'])


def test_typed_lines_are_sent_as_they_come(
    process_environment: dict[str, str], run: Run, text_stream: str
) -> None:
    with on_terminal("append", text_stream, env=process_environment) as terminal:
        terminal.type("first\n")
        deadline = time.monotonic() + 60
        while run("read", text_stream).out != "first\n":
            assert time.monotonic() < deadline
        terminal.type("second\n\x04")
        assert terminal.end() == 0
    assert "appended 2 messages" in terminal.screen
    assert run("read", text_stream).out == "first\nsecond\n"


def test_a_long_append_shows_progress(
    process_environment: dict[str, str], text_stream: str
) -> None:
    with on_terminal(
        "append", text_stream, env=process_environment, stdin=subprocess.PIPE
    ) as terminal:
        pipe = terminal.process.stdin
        assert pipe is not None
        for _ in range(50):
            pipe.write(b"some line\n" * 512)
            pipe.flush()
            time.sleep(0.03)
            if "appending to" in terminal.screen:
                break
            terminal._read(0)
        terminal.wait_for("appending to")
        terminal.wait_for("stored")
        pipe.close()
        assert terminal.end() == 0
    assert "appended" in terminal.screen


def test_a_long_read_shows_progress_unless_the_data_is_in_the_way(
    process_environment: dict[str, str],
    client: Headwater,
    text_stream: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    client.stream(text_stream).append_all(["x" * 1023 + "\n"] * 20_000)
    with on_terminal(
        "read", text_stream, "--json", env=process_environment, stdout=subprocess.PIPE
    ) as terminal:
        pipe = terminal.process.stdout
        assert pipe is not None
        # A slow reader makes it long.
        total = len(pipe.read(1 << 20))
        time.sleep(0.6)
        while piece := pipe.read(1 << 20):
            total += len(piece)
        assert terminal.end() == 0
        pipe.close()
    assert total > 20_000_000
    assert "reading" in terminal.screen
    assert "MiB" in terminal.screen


def test_top_is_live(process_environment: dict[str, str], run: Run, json_stream: str) -> None:
    arguments = ("top", "--prefix", json_stream, "--interval", "0.1")
    with on_terminal(*arguments, env=process_environment) as terminal:
        terminal.wait_for("MESSAGES/S")
        terminal.wait_for(json_stream)
        run("append", json_stream, stdin="1\n" * 77)
        terminal.wait_for(" 77 ")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
    assert "Traceback" not in terminal.screen


def test_a_token_is_typed_unseen(process_environment: dict[str, str], run: Run) -> None:
    arguments = ("ctx", "add", "prod", "http://streams.example.com", "--token", "-")
    with on_terminal(*arguments, env=process_environment) as terminal:
        terminal.wait_for("Token: ")  # by now, echoing is off
        terminal.type("s3cret\n")
        assert terminal.end() == 0
    assert "s3cret" not in terminal.screen
    assert run("ctx", "ls", "--json").record["has_token"] is True
