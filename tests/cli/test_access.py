"""keys and presign: made at a prompt, used over HTTP; and what is refused before a start."""

from __future__ import annotations

import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.access.authority import Authority
from tests.access.guests import secret
from tests.access.test_tls import SecureServer
from tests.cli.conftest import Run
from tests.http.client import eventually
from tests.support.server import ServerFailedError, ServerProcess


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def closed_server(run: Run, data: Path) -> Iterator[tuple[ServerProcess, str]]:
    """A server that asks for keys because there is one, and that key."""
    key = run("keys", "create", "--data", str(data), "--admin", "**").out.strip()
    with ServerProcess("--data", str(data)) as server:
        yield server, secret(key)


def test_a_key_from_its_making_to_its_end(
    run: Run, data: Path, closed_server: tuple[ServerProcess, str]
) -> None:
    server, admin = closed_server
    mine: dict[str, Any] = {"STREAM_URL": server.url, "HEADWATER_TOKEN": admin}
    run("create", "orders.eu", **mine)
    made = run(
        *("keys", "create", "--data", str(data), "--name", "shop"),
        *("--read", "orders.*", "--write", "orders.eu", "--expires", "1h", "--json"),
    )
    key = secret(made.record["key"])
    theirs: dict[str, Any] = {"STREAM_URL": server.url, "HEADWATER_TOKEN": key}
    eventually(lambda: httpx.get(f"{server.url}/v1/streams", headers=bearer(key)).is_success)
    run("append", "orders.eu", '{"id": 1}', **theirs)
    assert run("read", "orders.eu", **theirs).lines == ['{"id": 1}']
    assert "does not allow" in run("create", "other", code=5, **theirs).err

    listed = run("keys", "ls", "--data", str(data), "--json").records
    shop = next(record for record in listed if record["name"] == "shop")
    assert shop == {name: value for name, value in made.record.items() if name != "key"}
    assert "orders.*" in run("keys", "ls", "--data", str(data)).out

    run("keys", "revoke", shop["id"], "--data", str(data))
    eventually(
        lambda: httpx.get(f"{server.url}/v1/streams", headers=bearer(key)).status_code == 401
    )
    assert "credentials" in run("read", "orders.eu", code=5, **theirs).err
    assert stat.S_IMODE((data / "keys.json").stat().st_mode) == 0o600


def test_who_may_not_read_can_close_and_undelete(
    run: Run, data: Path, closed_server: tuple[ServerProcess, str]
) -> None:
    server, admin = closed_server
    mine: dict[str, Any] = {"STREAM_URL": server.url, "HEADWATER_TOKEN": admin}
    run("create", "orders", **mine)
    grants = ("--write", "orders", "--delete", "orders")
    key = secret(run("keys", "create", "--data", str(data), *grants).out.strip())
    theirs: dict[str, Any] = {"STREAM_URL": server.url, "HEADWATER_TOKEN": key}
    eventually(lambda: httpx.get(f"{server.url}/v1/streams", headers=bearer(key)).is_success)
    run("close", "orders", **theirs)
    run("rm", "-y", "orders", **theirs)
    run("undelete", "orders", **theirs)
    assert run("info", "orders", "--json", **mine).record["closed"]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_a_key_is_shown_once(run: Run, data: Path) -> None:
    made = run("keys", "create", "--data", str(data), "--read", "a")
    key = secret(made.out.strip())
    assert made.out == f"{key}\n"
    assert key not in made.err
    listed = run("keys", "ls", "--data", str(data))
    assert key.split("_")[1] in listed.out
    assert key.split("_", 2)[2] not in listed.out


def test_keys_that_cannot_be_made(run: Run, data: Path) -> None:
    where = ("--data", str(data))
    assert "nothing" in run("keys", "create", *where, code=2).err
    assert "whole word" in run("keys", "create", *where, "--read", "a*", code=2).err
    assert (
        "length of time"
        in run("keys", "create", *where, "--read", "a", "--expires", "x", code=2).err
    )
    assert "one line" in run("keys", "create", *where, "--read", "a", "--name", "a\nb", code=2).err
    assert not data.exists()
    assert "no key" in run("keys", "revoke", "0123456789ab", *where, code=3).err
    (data / "keys.json").write_text("broken")
    assert "not a file of keys" in run("keys", "ls", *where, code=1).err
    assert "not a file of keys" in run("keys", "create", *where, "--read", "a", code=1).err


def test_presign(run: Run, closed_server: tuple[ServerProcess, str]) -> None:
    server, key = closed_server
    mine: dict[str, Any] = {"STREAM_URL": server.url, "HEADWATER_TOKEN": key}
    run("create", "a/b", **mine)
    run("append", "a/b", "1", **mine)
    assert httpx.get(f"{server.url}/v1/stream/a/b").status_code == 401
    url = run("presign", "a/b", "--expires", "1h", **mine).out.strip()
    secret(url.rpartition("signature=")[2])
    assert url.startswith(f"{server.url}/v1/stream/a/b?")
    assert httpx.get(url).json() == [1]
    record = run("presign", "a/b", "--json", **mine).record
    assert httpx.get(record["url"]).json() == [1]
    assert "length of time" in run("presign", "a/b", "--expires", "soon", code=2, **mine).err
    assert "whole seconds" in run("presign", "a/b", "--expires", "5ms", code=2, **mine).err


def test_presign_where_there_is_nothing_to_sign(run: Run, json_stream: str) -> None:
    assert "no access control" in run("presign", json_stream, code=1).err


# ── Tokens, certificates ─────────────────────────────────────────────────────────────────────


def test_a_context_with_a_token_and_an_authority(
    run: Run, tmp_path: Path, config_file: Path
) -> None:
    authority = Authority(tmp_path)
    data = tmp_path / "data"
    key = secret(run("keys", "create", "--data", str(data), "--admin", "**").out.strip())
    keys = ("--keys-file", str(data / "keys.json"), "--access", "on")
    with SecureServer(authority, authority.issue(), *keys) as server:
        nowhere: dict[str, Any] = {"STREAM_URL": None}
        add = ("ctx", "add", "prod", server.url, "--token", "-", "--ca", str(authority.file))
        shown = run(*add, stdin=f"{key}\n")
        assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
        run("create", "a", **nowhere)
        assert run("ls", **nowhere).lines == ["a"]
        assert key not in shown.out + shown.err
        assert run("ls", "--ca", str(authority.file), "--token", key, STREAM_URL=server.url).lines
        environment: dict[str, Any] = {"HEADWATER_CA": str(authority.file), "HEADWATER_TOKEN": key}
        assert run("ls", STREAM_URL=server.url, **environment).lines == ["a"]
        untrusted = run("ls", "--token", key, STREAM_URL=server.url, code=6)
        assert "certificate" in untrusted.err.lower()
        assert key not in untrusted.err
        missing = run("ls", "--ca", "nowhere.pem", STREAM_URL=server.url, code=2)
        assert "nowhere.pem" in missing.err


# ── Where it listens ─────────────────────────────────────────────────────────────────────────


def test_an_open_address_needs_access_control(run: Run, data: Path, tmp_path: Path) -> None:
    everywhere = ("serve", "--host", "0.0.0.0", "--port", "0")
    assert "--keys-file" in run(*everywhere, "--memory", code=1).err
    refusal = run(*everywhere, "--data", str(data), code=1).err
    assert "headwater keys create --name admin" in refusal
    assert "--insecure" in refusal
    run("keys", "create", "--data", str(data), "--read", "a")
    assert "--insecure" in run(*everywhere, "--data", str(data), "--access", "off", code=1).err


def test_an_open_address_with_access_control(run: Run, data: Path) -> None:
    run("keys", "create", "--data", str(data), "--read", "a")
    with ServerProcess("--host", "0.0.0.0", "--data", str(data)) as server:
        assert httpx.get(f"{server.url}/v1/streams").status_code == 401
        assert "tokens_in_plain_text" in server.stderr


def test_revoking_the_last_key_does_not_open_the_server(run: Run, data: Path) -> None:
    key = secret(run("keys", "create", "--data", str(data), "--read", "a").out.strip())
    run("keys", "revoke", key.split("_")[1], "--data", str(data))
    with ServerProcess("--data", str(data)) as server:
        assert httpx.get(f"{server.url}/v1/streams").status_code == 401


@pytest.fixture
def terminal() -> Iterator[None]:
    """The process that runs the tests may ignore the end of its terminal; children inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("terminal")
def test_a_server_that_has_nothing_to_read_again_ends_with_its_terminal() -> None:
    with ServerProcess("--memory") as server:
        process = server._running()
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == -signal.SIGHUP
        server.kill()


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--jwt-jwks", "https://id.example.com/jwks"], "--jwt-audience"),
        (["--jwt-jwks", "http://id.example.com/jwks", "--jwt-audience", "a"], "https"),
        (["--jwt-jwks", "nowhere.json", "--jwt-audience", "a"], "nowhere.json"),
        (["--jwt-secret-file", "nowhere"], "nowhere"),
        (["--cors-origin", "app.example.com"], "origin"),
    ],
)
def test_settings_that_cannot_work(arguments: list[str], complaint: str) -> None:
    with pytest.raises(ServerFailedError) as failure:
        ServerProcess("--memory", *arguments).start()
    assert complaint in str(failure.value)
    assert "Traceback" not in str(failure.value)


def test_a_short_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secret("short-but-secret"))
    with pytest.raises(ServerFailedError) as failure:
        ServerProcess("--memory", "--jwt-secret-file", str(tmp_path / "secret")).start()
    assert "32 bytes" in str(failure.value)
    assert "short-but-secret" not in str(failure.value)
