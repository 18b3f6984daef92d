"""Exit codes, and errors as one line; also for what nobody thought of."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from headwater import __version__, client
from headwater.cli.exits import MEANINGS, ExitCode, one_line
from headwater.cli.failures import explain
from headwater.cli.main import COMMANDS, app
from headwater.client import HeadwaterError
from headwater.settings import Settings
from tests.cli.conftest import Run
from tests.cli.plain_server import refusing_server
from tests.cli.test_reference import below


def refusal(kind: type[client.ResponseError], status: int, **headers: str) -> HeadwaterError:
    return kind("said so", status=status, headers=headers)


@pytest.mark.parametrize(
    "error, code, words",
    [
        (refusal(client.StreamNotFound, 404), 3, "headwater create s"),
        (refusal(client.StreamGone, 410), 3, "forks"),
        (refusal(client.GroupNotFound, 404), 3, "headwater group create s g"),
        (refusal(client.Unauthorized, 401), 5, "--token"),
        (refusal(client.Forbidden, 403), 5, "does not allow"),
        (refusal(client.StaleEpoch, 403, **{"producer-epoch": "7"}), 4, "--epoch 8"),
        (refusal(client.StreamClosed, 409), 4, "closed"),
        (refusal(client.StreamExists, 200), 4, "--if-missing"),
        (refusal(client.ConfigConflict, 409), 4, "said so"),
        (refusal(client.SequenceConflict, 409), 4, "said so"),
        (refusal(client.Conflict, 409), 4, "said so"),
        (refusal(client.TooLarge, 413), 1, "smaller"),
        (refusal(client.BadRequest, 400), 1, "said so"),
        (refusal(client.RateLimited, 429), 6, "later"),
        (refusal(client.ServerUnavailable, 503), 6, "later"),
        (refusal(client.UnexpectedAnswer, 200), 1, "check the address"),
        (client.ConnectionFailed("GET http://x: refused"), 6, "refused"),
        (client.RequestTimedOut("GET http://x: late", in_doubt=True), 6, "--producer"),
        (client.InvalidMessage("no text"), 1, "no text"),
        (client.BufferFull("full"), 1, "full"),
    ],
)
def test_failures_of_the_client(error: HeadwaterError, code: int, words: str) -> None:
    explained = explain(error, url="http://x", stream="s", group="g")
    assert explained.code == code
    assert words in explained.message
    assert "\n" not in explained.message


def test_a_producer_stops_for_a_reason() -> None:
    stopped = client.ProducerStopped("the producer has stopped", in_doubt=True)
    stopped.__cause__ = client.ConnectionFailed("POST http://x: lost")
    stopped.add_note("stored before that: 3 messages")
    explained = explain(stopped, url="http://x")
    assert explained.code is ExitCode.UNAVAILABLE
    assert "may be stored" in explained.message
    assert explained.__notes__ == ["stored before that: 3 messages"]


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ExitCode)


@pytest.mark.parametrize(
    "status, code", [(401, 5), (403, 5), (404, 3), (410, 3), (400, 1), (418, 1), (503, 6)]
)
def test_what_a_server_says_is_one_harmless_line(run: Run, status: int, code: int) -> None:
    with refusing_server(status) as (url, _):
        commands = (("info", "s"), ("append", "s", "1"), ("create", "s"))
        for arguments in commands if status < 500 else commands[:1]:
            ran = run(*arguments, STREAM_URL=url, code=code)
            assert "\x1b" not in ran.err


@pytest.mark.parametrize(
    "line",
    [
        *("info s", "append s 1", "append s 1 --producer p --epoch 0", "create s", "read s"),
        *("set s --keep 1d", "whoami", "presign s", "subscription keys", "pipeline ls"),
        *("cluster status", "ls", "close s", "fork s t", "group ls s", "group ls", "transaction"),
    ],
)
def test_a_web_server_is_no_stream_server(run: Run, line: str) -> None:
    """It answers everything with 200. Nothing was stored, and nothing is shown as a stream."""
    with refusing_server(200) as (url, _):
        stdin = '{"stream": "s", "value": 1}'
        ran = run(*line.split(), stdin=stdin, STREAM_URL=url, code=1)
        assert ran.out == ""
        assert len(ran.err.splitlines()) == 1
        assert "unexpected" not in ran.err
        assert url in ran.err


def test_a_server_that_is_not_there(run: Run) -> None:
    ran = run("info", "s", STREAM_URL="http://127.0.0.1:1", code=6)
    assert "connection refused" in ran.err
    assert "http://127.0.0.1:1" in ran.err


@pytest.mark.parametrize(
    "line", ["ls --url http://xn--", "health --url http://a..b", f"health --url http://{'a' * 300}"]
)
def test_a_host_that_cannot_be_one(run: Run, line: str) -> None:
    assert "is not the address of a host" in run(*line.split(), code=2).err


def test_one_line() -> None:
    assert one_line("a\n  b\tc\x1b[1m\x00") == "a b c [1m "


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("read",),
        ("read", "a", "b"),
        ("read", "a", "--nonsense"),
        ("read", "a", "-n", "0"),
        ("read", "a", "-n", "x"),
        ("top", "--sort", "colour"),
        ("top",),
        ("bench", "--seconds", "0"),
        ("bench", "--prefix", "/"),
        ("verify", "/nowhere/at/all"),
        ("ctx", "nonsense"),
        ("group", "nonsense"),
        ("group", "seek", "a", "b"),
        ("group", "seek", "a", "b", "@soon"),
        ("group", "seek", "a", "b", "--nonsense"),
        ("group", "create", "a", ""),
        ("group", "create", "a", "b", "--update", "--if-missing"),
        ("consume", "a"),
        ("consume", "a", "b", "--max", "0"),
        ("consume", "a", "b", "--concurrency", "2"),
        ("consume", "a", "b", "--reject-code", "2"),
        ("consume", "a", "b", "--start", "first"),
        ("consume", "a", "b", "--name", ""),
        ("consume", "a", "b", "--exec", "true", "--reject-code", "0"),
        ("consume", "a", "b", "--exec", "true", "--nack-delay", "soon"),
        ("consume", "a", "b", "--exec", "true", "--nack-delay", "2d"),
        ("serve", "--port", "99999"),
        ("serve", "--log-level", "loud"),
    ],
)
def test_a_command_line_without_sense(run: Run, arguments: tuple[str, ...]) -> None:
    run(*arguments, code=2)


def test_a_typo_gets_a_hint(run: Run) -> None:
    assert "'tail'" in run("tial", code=2).err


def test_the_unforeseen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("some\nthing")

    monkeypatch.setattr("headwater.cli.remote.list_streams", fail)
    ran = run("ls", code=1)
    assert "ZeroDivisionError: some thing" in ran.err
    assert "HEADWATER_DEBUG" in ran.err


def test_trouble_with_files(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/some/file")

    monkeypatch.setattr("headwater.cli.remote.list_streams", fail)
    assert run("ls", code=1).err == "headwater: /some/file: Permission denied\n"


def test_help_teaches(run: Run) -> None:
    for commands in COMMANDS.values():
        for name in commands:
            text = run(name, "--help").out
            assert "Examples:" in text, name
            assert f"headwater {name}" in text, name
            for full in below(name):
                text = run(*full.split(), "-h").out
                assert "Examples:" in text, full
                assert f"headwater {full}" in text, full
    assert "130 interrupted" in run("--help").out


@pytest.mark.parametrize("command", ["serve", "up"])
def test_the_help_of_a_server_begins_with_what_people_need(run: Run, command: str) -> None:
    flags = {"--" + name.replace("_", "-") for name in Settings.model_fields}
    shown = {flag for flag in flags if f" {flag} " in run(command, "--help").out}
    assert {"--host", "--port", "--data", "--engine", "--access"} <= shown
    assert len(shown) <= 12
    assert flags == {flag for flag in flags if f" {flag} " in run(command, "--help-all").out}


def test_no_arguments_show_the_help() -> None:
    for arguments in ([], ["ctx"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert "Usage" in result.output


def test_version(run: Run) -> None:
    assert run("--version").out == f"headwater {__version__}\n"


COMPLETING = {
    "_HEADWATER_COMPLETE": "complete_bash",
    "COMP_WORDS": "headwater s",
    "COMP_CWORD": "1",
}


@pytest.mark.parametrize(
    "line, variables",
    [
        ("--version", {}),
        (
            "",
            {
                "_HEADWATER_COMPLETE": "complete_bash",
                "COMP_WORDS": "headwater s",
                "COMP_CWORD": "1",
            },
        ),
    ],
)
def test_what_is_asked_at_every_prompt_loads_little(line: str, variables: dict[str, str]) -> None:
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from headwater.cli import main\n"
        f"sys.argv = ['headwater', *{line.split()!r}]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert __version__ in done.stdout or "serve" in done.stdout.split()
    heavy = {"apsw", "headwater.client", "headwater.settings", "httpx", "pyarrow"}
    assert heavy.isdisjoint(done.stderr.split())
