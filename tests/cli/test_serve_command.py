"""serve: a flag per setting, and a start that fails in one line."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from headwater.settings import Settings
from tests.cli.conftest import Run, Spawn


def test_every_setting_is_a_flag(run: Run) -> None:
    words = run("serve", "--help", COLUMNS="200").out.split()
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in words


def test_it_greets_and_ends_well(spawn: Spawn) -> None:
    process = spawn("serve", "--memory", "--port", "0")
    assert process.stdout is not None
    assert b"listens on http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=25)
    assert process.returncode == 0
    assert b"Traceback" not in err


def test_starts_that_fail(run: Run, tmp_path: Path) -> None:
    assert "port" in run("serve", "--port", "-1", code=2).err
    assert "--insecure" in run("serve", "--host", "0.0.0.0", "--memory", code=1).err
    (tmp_path / "bad.toml").write_text("colour = 3")
    assert "colour" in run("serve", "--config", str(tmp_path / "bad.toml"), code=2).err
    assert "queue_bytes_max" in run("serve", "--queue-bytes-max", "1", "--memory", code=2).err


def test_a_port_that_is_taken(spawn: Spawn) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = spawn("serve", "--memory", "--port", str(taken.getsockname()[1]))
        _, err = process.communicate(timeout=25)
    assert process.returncode == 1
    assert err.decode().startswith("headwater: cannot listen on 127.0.0.1:")
    assert err.count(b"\n") == 1
