"""What the shell is offered when a person presses Tab."""

from __future__ import annotations

import socket
import time

import msgspec
import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from tests.cli.conftest import Complete, Run
from tests.cli.plain_server import answering_server, trickling_server
from tests.support.server import free_port


def test_commands_and_options(complete: Complete) -> None:
    assert complete("headwater re") == ["read", "response", "restore"]
    assert "--follow" in complete("headwater read --f")


def test_streams_of_the_server(complete: Complete, run: Run, path: str) -> None:
    for name in ("one", "other"):
        run("create", f"{path}/{name}")
    assert complete(f"headwater read {path}/o") == [f"{path}/one", f"{path}/other"]
    assert complete(f"headwater rm {path}/one {path}/ot") == [f"{path}/other"]
    assert complete("headwater tail nothing/like/it") == []


def test_undelete_offers_what_was_deleted(complete: Complete, run: Run, path: str) -> None:
    for name in ("gone", "kept"):
        run("create", f"{path}/{name}")
    run("rm", "-y", f"{path}/gone")
    assert complete(f"headwater undelete {path}/") == [f"{path}/gone"]


def test_the_server_of_the_line(complete: Complete, run: Run, base_url: str, path: str) -> None:
    run("create", path)
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert complete(f"headwater info {path[:-2]}", STREAM_URL=nowhere) == []
    line = f"headwater info --url {base_url} {path[:-2]}"
    assert complete(line, STREAM_URL=nowhere) == [path]


def test_a_server_that_does_not_answer_is_not_waited_for(complete: Complete) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert complete("headwater read a", STREAM_URL=url) == []
        # Other commands wait for 30 s, and then try again.
        assert time.monotonic() - begun < 25


def test_a_server_that_trickles_is_not_waited_for(complete: Complete) -> None:
    with trickling_server() as url:
        assert complete("headwater read a", STREAM_URL=url) == []


def test_names_that_a_shell_would_take_apart_are_not_offered(complete: Complete) -> None:
    """zsh evaluates what it is offered, and bash puts it on the line as it is."""
    fine = ["a/fine-1", "a/x:y", "é"]
    odd = [
        "a$(touch${IFS}x)",
        "a\\$(x)",
        "`x`",
        "a b",
        "*",
        "x;y",
        "\x1b[31m",
        "a'b",
        "--url=x",
        "",
    ]
    page = {"streams": [{"name": name} for name in (*fine, *odd)]}
    with answering_server(msgspec.json.encode(page)) as url:
        assert complete("headwater read ", STREAM_URL=url) == fine


def test_contexts(complete: Complete, run: Run) -> None:
    run("ctx", "add", "prod", "http://x")
    assert complete("headwater ctx use p") == ["prod"]


def test_a_script_for_the_shell(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Which shell this runs in is nobody's concern here, and there may be none.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "_HEADWATER_COMPLETE" in run("--show-completion", "bash").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_any_shell(run: Run, shell: str) -> None:
    assert "_HEADWATER_COMPLETE" in run("completion", shell).out
    assert "is not one of" in run("completion", "csh", code=2).err


def test_shells_that_show_descriptions_get_them(environment: dict[str, str | None]) -> None:
    asked = {"_HEADWATER_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "headwater rea"}
    shown = CliRunner().invoke(app, [], prog_name="headwater", env={**environment, **asked})
    assert '"read":"Write a stream to stdout."' in shown.stdout
