"""serve: a flag per setting, and a start that fails in one line."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from headwater.cli.exits import CliError
from headwater.cli.serving import command
from headwater.cli.serving.command import serve
from headwater.settings import Settings, load_settings
from tests.cli.conftest import Run, Spawn


def test_every_setting_is_a_flag(run: Run) -> None:
    words = run("serve", "--help-all", COLUMNS="200").out.split()
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in words


def test_it_greets_and_ends_well(spawn: Spawn) -> None:
    process = spawn("serve", "--memory", "--port", "0")
    assert process.stdout is not None
    assert b"listens on http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    "keys, words",
    [
        ([], ["Access control is off", "--admin '**'"]),
        (["--admin", "**"], ["Access control is on: 1 key", "Bearer", ": admin **\n"]),
        (["--read", "a"], ["Access control is on: 1 key", "none of them may do everything"]),
        (["--admin", "**", "--expires", "1ms"], ["Access control is on: 0 keys", "none of them"]),
    ],
)
def test_the_greeting_says_who_may_do_what(
    run: Run, spawn: Spawn, tmp_path: Path, keys: list[str], words: list[str]
) -> None:
    if keys:
        run("keys", "create", "--data", str(tmp_path), *keys)
    process = spawn("serve", "--data", str(tmp_path), "--port", "0")
    assert process.stdout is not None
    greeting = ""
    while "in a browser" not in greeting:
        greeting += process.stdout.readline().decode()
    for word in words:
        assert word in greeting
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_an_open_server_that_finds_keys_says_what_will_happen(
    run: Run, spawn: Spawn, tmp_path: Path
) -> None:
    process = spawn("serve", "--data", str(tmp_path), "--port", "0")
    assert process.stdout is not None
    assert b"listens on" in process.stdout.readline()
    made = run("keys", "create", "--data", str(tmp_path), "--read", "a")
    assert "stays so until it is started again" in made.err
    assert "headwater keys create --name admin --admin '**'" in made.err
    assert process.stderr is not None
    while b"keys_found" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_starts_that_fail(run: Run, tmp_path: Path) -> None:
    assert "port" in run("serve", "--port", "-1", code=2).err
    assert "--insecure" in run("serve", "--host", "0.0.0.0", "--memory", code=1).err
    (tmp_path / "bad.toml").write_text("colour = 3")
    assert "colour" in run("serve", "--config", str(tmp_path / "bad.toml"), code=2).err
    assert "queue_bytes_max" in run("serve", "--queue-bytes-max", "1", "--memory", code=2).err


NONSENSE = [
    ("host", ""),
    ("host", "a..b"),
    ("host", f"{'x' * 70}.example"),
    ("data", ""),
    ("public_url", "abc"),
    ("public_url", "http://[::1"),
    ("public_url", "http://example.com:99999"),
    ("memory", "maybe"),
    ("engine", "oracle://db"),
    ("log_level", "loud"),
    ("quotas", "a: streams=-1"),
    ("allowed_host", "http://x"),
    ("cors_origin", "abc"),
]


@pytest.mark.parametrize("name, value", NONSENSE)
def test_values_that_make_no_sense(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, because there are many."""
    monkeypatch.setenv(f"HEADWATER_{name.upper()}", value)
    with pytest.raises(CliError) as raised:
        serve()
    assert raised.value.code == 2
    assert name in str(raised.value)
    _is_plain(str(raised.value))


WRONG: Final[dict[Any, tuple[str, ...]]] = {
    bool: ("maybe", "2", ""),
    int: ("-1", "", "1.5", "nan", "9" * 5000),
}
WRONG_IN_FILES: Final[dict[Any, tuple[str, ...]]] = {
    bool: ("2", "nan", "[]", "'maybe'"),
    int: ("-1", "1.5", "nan", str(2**53), "true", "[1]"),
}
NO_TEXT: Final = ("1", "true", "{a = 1}", "2020-01-01", r'"\u202e"', r'"a\nb"')


@pytest.mark.parametrize("name", Settings.model_fields)
def test_nonsense_is_refused_with_its_origin(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For every setting there is, and in every way to set it."""
    monkeypatch.setattr(command, "_run", lambda settings: pytest.fail("it would start"))
    kind = Settings.model_fields[name].annotation
    path = tmp_path / "headwater.toml"
    for text in WRONG_IN_FILES.get(kind, NO_TEXT):
        path.write_text(f"{name} = {text}")
        _is_refused(f"{name}: ", f"(set by {path})", config=path)
    for text in WRONG.get(kind, ("a\nb", "\u202e", "\udcff")):
        if kind is not bool:
            _is_refused(f"{name}: ", f"(set by --{name.replace('_', '-')})", **{name: text})
        monkeypatch.setenv(f"HEADWATER_{name.upper()}", text)
        # What the environment says wins over the file.
        path.write_text("")
        _is_refused(f"{name}: ", f"(set by HEADWATER_{name.upper()})", config=path)


def _is_refused(*words: str, **given: Any) -> None:
    with pytest.raises(CliError) as raised:
        serve(**given)
    said = str(raised.value)
    assert raised.value.code == 2, said
    assert all(word in said for word in words), said
    _is_plain(said)


def test_settings_that_contradict_each_other_are_named_with_their_origins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "headwater.toml"
    path.write_text("body_bytes_max = 2000")
    monkeypatch.setenv("HEADWATER_QUEUE_BYTES_MAX", "1999")
    queue = "queue_bytes_max by HEADWATER_QUEUE_BYTES_MAX"
    _is_refused(f"(set: {queue}, body_bytes_max by {path})", config=path)
    _is_refused(f"(set: {queue}, body_bytes_max by --body-bytes-max)", body_bytes_max="2001")


def test_the_port_that_kubernetes_sets_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_PORT", "tcp://10.0.0.17:4437")
    _is_refused("port: ", "enableServiceLinks: false", "(set by HEADWATER_PORT)")


def test_a_variable_that_is_no_setting_is_named(
    spawn: Spawn, process_environment: dict[str, str]
) -> None:
    variables = {
        "HEADWATER_PROT": "1",
        "HEADWATER_SERVICE_HOST": "10.0.0.17",
        "HEADWATER_PORT_4437_TCP": "tcp://10.0.0.17:4437",
    }
    process_environment.update(variables)
    process = spawn("serve", "--memory", "--port", "0")
    assert process.stdout is not None
    assert b"listens on" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert b"HEADWATER_PROT" in err
    assert b"did you mean 'HEADWATER_PORT'?" in err
    assert err.count(b"no_such_setting") == 1


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "headwater.toml"
    path.write_bytes(b"\xef\xbb\xbfport = 8080\r\n")
    assert load_settings(path, {}).port == 8080


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The option checks what it can; a file can also go between that and this."""
    _is_refused("--config: cannot read", "Is a directory", config=tmp_path)


def test_endless_nonsense_is_not_repeated_in_full(run: Run) -> None:
    said = run("serve", "--cors-origin", "x" * 50_000, code=2).err
    assert said.startswith("headwater: cors_origin: ")
    assert said.endswith("(set by --cors-origin)\n")
    assert len(said) < 3_000


def _is_plain(said: str) -> None:
    """A sentence of ours, not one of the library that checks settings."""
    assert "\n" not in said
    assert "Value error" not in said
    assert "Input " not in said


@pytest.mark.parametrize(
    "content, what",
    [
        (b'data = "a\\u0000b"', "data"),
        (b'keys_file = "a\\u0000b"', "keys_file"),
        (b"port = [1]", "port"),
        (b"[port]\nx = 1", "port"),
        (b"port = 1\nport = 2", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        (b"colour = 3", "colour: no such setting"),
        (b"prot = 3", "prot: no such setting; did you mean 'port'?"),
        (b"[server]\nport = 1", "server: no such setting"),
        # Words of the library that reads settings.
        (b'_env_file = "x"', "_env_file: no such setting"),
        (b"_cli_parse_args = true", "_cli_parse_args: no such setting"),
        ("port = 1".encode("utf-16"), "is not TOML"),
    ],
)
def test_files_that_make_no_sense(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "headwater.toml"
    path.write_bytes(content)
    with pytest.raises(CliError, match=what) as raised:
        serve(config=path)
    assert raised.value.code == 2
    _is_plain(str(raised.value))


def test_a_port_that_is_taken(spawn: Spawn) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = spawn("serve", "--memory", "--port", str(taken.getsockname()[1]))
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.decode().startswith("headwater: cannot listen on 127.0.0.1:")
    assert err.count(b"\n") == 1


@pytest.mark.parametrize(
    "flags, why",
    [
        ("--long-poll-timeout-ms 0", "long_poll_timeout_ms"),
        ("--long-poll-timeout-ms -5", "long_poll_timeout_ms"),
        ("--sse-lifetime-ms 0", "sse_lifetime_ms"),
        ("--linger-ms -1", "linger_ms"),
        ("--port 65536", "port: must be at most 65535"),
        ("--port http", "port: must be a whole number"),
        ("--engine oracle://db", "headwater: engine must be sqlite, memory or the address"),
        ("--advertise http://me:4437", "set engine to its address"),
        ("--advertise me", "advertise: must be an address such as"),
        ("--label region=eu", "label is for nodes of a cluster"),
        ("--log-level loud", "log_level: must be 'debug', 'info'"),
        ("--body-bytes-max 0", "body_bytes_max"),
        ("--body-bytes-max 1000000 --queue-bytes-max 999999", "queue_bytes_max"),
        ("--body-bytes-max 1000000 --bodies-bytes-max 1999999", "bodies_bytes_max"),
        ("--hot-bytes-per-stream-max 2000 --hot-bytes-max 1999", "hot_bytes_max"),
        ("--reader-buffer-bytes-max 4096 --buffers-bytes-max 4095", "buffers_bytes_max"),
        ("--connections-per-address-max 11 --connections-max 10", "connections_per_address_max"),
        ("--memory --engine postgresql://localhost/x", "choose one"),
        ("--memory --history-store file:///tmp/history", "history_store"),
        ("--no-seal --history-store file:///tmp/history", "seal"),
        ("--jwt-issuer me", "jwt_secret_file"),
        ("--jwt-audience me", "jwt_secret_file"),
        ("--proxy-networks 10.0.0.0/8", "proxy_allow"),
        ("--quotas nonsense", "quotas"),
        ("--producer-expiry-s 1", "producer_expiry_s"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(
    run: Run, flags: str, why: str
) -> None:
    said = run("serve", *flags.split(), code=2).err
    assert why in said
    _is_plain(said.strip())


def test_a_server_without_tokens_does_not_load_what_they_need() -> None:
    program = (
        "import sys, headwater.cli.serving.server, headwater.cli.serving.access\n"
        "print(*{'cryptography', 'httpx', 'jwt'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ran.stdout.split() == []


def test_every_number_has_a_least_value() -> None:
    """So no setting can be negative by mistake."""
    for name, field in Settings.model_fields.items():
        if field.annotation is int:
            assert any(hasattr(rule, "ge") and rule.ge >= 0 for rule in field.metadata), name


def test_every_time_has_a_greatest_value() -> None:
    """So a moment that is computed from it can be stored."""
    for name, field in Settings.model_fields.items():
        if name.endswith(("_ms", "_s")):
            assert any(hasattr(rule, "le") for rule in field.metadata), name
