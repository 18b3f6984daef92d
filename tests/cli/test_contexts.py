"""Which server a command talks to, and what becomes of tokens."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from headwater import contexts
from headwater.cli.target import Target, find_target
from headwater.client import AsyncHeadwater, Headwater
from headwater.client.protocol.streams import Request, Response
from headwater.contexts import DEFAULT_URL, ContextError, authorization, check_url
from tests.cli.conftest import Run
from tests.cli.plain_server import refusing_server
from tests.client.fake_transport import FakeTransport

NOWHERE = "http://127.0.0.1:1"


def test_contexts_come_and_go(run: Run, config_file: Path) -> None:
    assert run("ctx", "ls").out == ""
    assert str(config_file) in run("ctx", "add", "local", "http://127.0.0.1:4437/").err
    run("ctx", "add", "prod", "https://streams.example.com", "--token", "s3cret")
    assert run("ctx", "ls").lines == [
        "* local  http://127.0.0.1:4437",
        "  prod   https://streams.example.com  (token)",
    ]
    run("ctx", "use", "prod")
    assert [record["current"] for record in run("ctx", "ls", "--json").records] == [False, True]
    run("ctx", "rm", "prod")
    assert run("ctx", "ls", "--json").record == {
        "name": "local",
        "url": "http://127.0.0.1:4437",
        "has_token": False,
        "current": False,
    }


def test_only_the_owner_can_read_the_file(run: Run, config_file: Path) -> None:
    run("ctx", "add", "prod", "https://streams.example.com", "--token", "s3cret")
    assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(config_file.parent.stat().st_mode) == 0o700
    assert [file.name for file in config_file.parent.iterdir()] == [config_file.name]
    config_file.chmod(0o644)
    assert "chmod 600" in run("ctx", "ls").err
    run("ctx", "use", "prod")
    assert stat.S_IMODE(config_file.stat().st_mode) == 0o600


def test_tokens_are_never_shown(run: Run, path: str) -> None:
    token = "s3cret-t0ken"
    with refusing_server(401) as (url, seen):
        shown = [
            run("ctx", "add", "prod", url, "--token", "-", "--use", stdin=f"{token}\n"),
            run("ctx", "ls"),
            run("ctx", "ls", "--json"),
            run("info", path, STREAM_URL=None, code=5),
            run("ls", "--token", token, STREAM_URL=None, code=5),
            run("read", path, STREAM_AUTH=token, STREAM_URL=url, code=5),
        ]
    assert set(seen) == {f"Bearer {token}"}
    assert not any(token in ran.out + ran.err for ran in shown)
    assert token not in repr(Target("http://x", f"Bearer {token}"))


@pytest.mark.parametrize(
    "content",
    [
        "contexts = 3",
        "[contexts.a]",
        "not toml",
        "[contexts.a]\nurl = 1",
        '[contexts."a b"]\nurl = "http://x"',
    ],
)
def test_a_broken_file_is_named(run: Run, config_file: Path, content: str) -> None:
    config_file.parent.mkdir()
    config_file.write_text(content)
    assert str(config_file) in run("ls", STREAM_URL=None, code=2).err
    assert str(config_file) in run("ctx", "ls", code=2).err
    # With an address given, contexts are not needed.
    run("ls")


def test_strange_tokens_survive_the_file(run: Run, config_file: Path) -> None:
    token = "Basic \"q\\uote' #="
    with refusing_server(401) as (url, seen):
        run("ctx", "add", "a", url, "--token", token)
        run("ls", STREAM_URL=None, code=5)
    assert seen == [token]


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 65, "ü"])
def test_names_of_contexts(run: Run, name: str) -> None:
    run("ctx", "add", name, "http://x", code=2)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:4437",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://u:p@x",
        "http://x?a=1",
        "http://x#a",
        "http://[::1",
    ],
)
def test_addresses_that_are_none(run: Run, url: str) -> None:
    error = run("ctx", "add", "a", url, code=2).err
    assert ":p@" not in error
    with pytest.raises(ContextError):
        check_url(url)


def test_contexts_that_are_not_there(run: Run) -> None:
    for arguments in (("ctx", "use", "x"), ("ctx", "rm", "x"), ("ls", "--context", "x")):
        assert "no context 'x'" in run(*arguments, code=2).err
    assert "not both" in run("ls", "--context", "x", "--url", NOWHERE, code=2).err
    run("ctx", "add", "a", NOWHERE, "--token", "-", stdin="", code=2)


# --- Precedence ----------------------------------------------------------------------------------


@pytest.fixture
def two_contexts(run: Run, config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("ctx", "add", "current", "http://current", "--token", "of-current")
    run("ctx", "add", "other", "http://other", "--token", "of-other")
    monkeypatch.setenv("HEADWATER_CONFIG", str(config_file))
    monkeypatch.delenv("STREAM_URL", raising=False)
    monkeypatch.delenv("STREAM_AUTH", raising=False)


@pytest.mark.usefixtures("two_contexts")
@pytest.mark.parametrize(
    "flags, variables, url, token",
    [
        ((None, None, None), (None, None), "http://current", "of-current"),
        ((None, None, "other"), (None, None), "http://other", "of-other"),
        ((None, "flag", None), (None, None), "http://current", "flag"),
        ((None, "flag", "other"), (None, None), "http://other", "flag"),
        (("http://flag", None, None), (None, None), "http://flag", None),
        (("http://flag", "flag", None), (None, "env"), "http://flag", "flag"),
        (("http://flag", None, None), ("http://env", "env"), "http://flag", "env"),
        ((None, None, None), ("http://env", None), "http://env", None),
        ((None, None, None), ("http://env", "env"), "http://env", "env"),
        ((None, None, None), (None, "env"), "http://current", "env"),
        ((None, None, "other"), ("http://env", "env"), "http://other", "of-other"),
    ],
)
def test_who_wins(
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str | None, str | None, str | None],
    variables: tuple[str | None, str | None],
    url: str,
    token: str | None,
) -> None:
    for name, value in zip(("STREAM_URL", "STREAM_AUTH"), variables, strict=True):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert find_target(*flags) == Target(url, f"Bearer {token}" if token else None)


def test_without_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STREAM_URL", "STREAM_AUTH", "HEADWATER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_target(None, None, None) == Target(DEFAULT_URL)


@pytest.mark.parametrize(
    "token, header",
    [
        (None, None),
        ("", None),
        ("  ", None),
        ("abc", "Bearer abc"),
        (" abc\n", "Bearer abc"),
        ("Bearer abc", "Bearer abc"),
        ("Basic dTpw", "Basic dTpw"),
    ],
)
def test_the_header_of_a_token(token: str | None, header: str | None) -> None:
    assert authorization(token) == header


@pytest.mark.parametrize("token", ["a\nb", "tökén", "a\x00b"])
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(ContextError) as caught:
        authorization(token)
    assert token not in str(caught.value)


def test_the_client_finds_its_server_as_the_command_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWATER_CONFIG", str(tmp_path / "config.toml"))
    for name in ("STREAM_URL", "STREAM_AUTH", "HEADWATER_TOKEN", "HEADWATER_CA"):
        monkeypatch.delenv(name, raising=False)
    with Headwater() as client:
        assert client.url == f"{DEFAULT_URL}/v1/stream"
    contexts.save(contexts.Contexts("prod", {"prod": contexts.Context("http://prod:1", "t")}))
    with Headwater() as client:
        assert client.url == "http://prod:1/v1/stream"
    monkeypatch.setenv("STREAM_URL", "http://other:2")
    with Headwater() as client, Headwater(context="prod") as named:
        assert client.url == "http://other:2/v1/stream"
        assert named.url == "http://prod:1/v1/stream"
    with pytest.raises(ContextError, match="not both"):
        Headwater("http://a", context="prod")
    with pytest.raises(ContextError, match="no context 'nowhere'"):
        Headwater(context="nowhere")


async def test_the_client_sends_the_token_of_a_context_to_its_server_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWATER_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv("STREAM_URL", raising=False)
    contexts.save(contexts.Contexts("prod", {"prod": contexts.Context("http://prod:1", "t")}))

    async def answer(request: Request) -> Response:
        return Response(200, {"content-type": "text/plain", "stream-next-offset": "0"})

    transport = FakeTransport(answer)
    async with AsyncHeadwater(transport=transport) as client:
        await client.stream("s").head()
        await client.stream("http://other:2/s").head()
    async with AsyncHeadwater("http://given:3", transport=transport) as client:
        await client.stream("s").head()
    sent = [dict(request.headers).get("Authorization") for request in transport.requests]
    assert sent == ["Bearer t", None, None]
