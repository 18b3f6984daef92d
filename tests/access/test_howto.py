"""The guide does what it says: every snippet is run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.settings import load_settings
from tests.docs.markdown import DOCS, Block, Page
from tests.support.server import free_port

GUIDE = Page(DOCS / "howto" / "access.md")
TIMEOUT_S = 300

needs_shell = pytest.mark.skipif(
    shutil.which("bash") is None or shutil.which("curl") is None, reason="needs bash and curl"
)

# What a person does without being told: wait for the server, and a moment for new keys.
PRELUDE = """
set -e -o pipefail
headwater() { PYTHON -m headwater "$@"; }
awaited() { for _ in $(seq 200); do "$@" && return; read -rt 0.05 <> <(:) || true; done; false; }
known() { curl -sf -o key-check http://127.0.0.1:4437/v1/streams -H "Authorization: Bearer $1"; }
trap 'kill $(jobs -p)' EXIT
"""
AFTER_SERVER = "awaited curl -sf -o health http://127.0.0.1:4437/healthz\n"
AFTER_KEYS = 'awaited known "$(cat acme-key)"\n'


def step(block: Block) -> str:
    if block.language == "python":
        return f"PYTHON - <<'END'\n{block.text}END\n"
    if block.text.rstrip().endswith("&"):
        return block.text + AFTER_SERVER
    return block.text + (AFTER_KEYS if "> acme-key" in block.text else "")


@needs_shell
@pytest.mark.slow
def test_the_commands_and_programs(tmp_path: Path) -> None:
    blocks = [block for block in GUIDE.blocks if block.language in ("sh", "python")]
    assert len(blocks) >= 9
    script = PRELUDE + "".join(map(step, blocks))
    # The server has to be a process that the shell can end, and not a function's subshell.
    script = script.replace("headwater serve", "PYTHON -m headwater serve")
    script = script.replace("PYTHON", sys.executable).replace("4437", str(free_port()))
    inherited = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}
    environment = inherited | {
        "HEADWATER_CONFIG": str(tmp_path / "config.toml"),
        "STREAM_URL": re.findall(r"http://127\.0\.0\.1:\d+", script)[0],
        "HOME": str(tmp_path),
    }
    ran = subprocess.run(
        ["bash", "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert "tenants/acme/audit" in lines
    assert "orders.eu" not in lines
    assert "[{'id': 1}, {'id': 2}]" in lines
    assert any("signature=" in line for line in lines)
    for name in ("my-key", "shop-key", "kitchen-key", "acme-key"):
        assert (tmp_path / name).read_text().strip() not in ran.stdout + ran.stderr


@pytest.mark.parametrize("number", range(sum(b.language == "toml" for b in GUIDE.blocks)))
def test_the_settings(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = [block for block in GUIDE.blocks if block.language == "toml"][number]
    path = tmp_path / "headwater.toml"
    path.write_text(block.text)
    load_settings(path, {}).limits()
