"""The files for deployment name commands, options and files that exist."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.core import errors
from headwater.settings import Settings
from headwater.store.key_file import load_secret
from tests.access.authority import Authority
from tests.access.test_tls import SecureServer
from tests.docs.commands import check as check_command
from tests.docs.markdown import DOCS, ROOT, Page
from tests.support.server import ServerProcess

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
UNIT = (ROOT / "deploy" / "systemd" / "headwater.service").read_text(encoding="utf-8")


def exec_form(instruction: str) -> list[str]:
    found = re.search(rf"^{instruction}.*?(\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


def test_the_image_runs_a_command_that_exists() -> None:
    assert exec_form("ENTRYPOINT") == ["headwater"]
    words = exec_form("CMD")
    check_command(words)
    assert f"EXPOSE {Settings.model_fields['port'].default}" in DOCKERFILE
    assert f"VOLUME {words[words.index('--data') + 1]}" in DOCKERFILE


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each on one line and without comments."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


def test_the_dockerfile_is_well_formed() -> None:
    """What a linter looks at first: known instructions, pinned bases, a user, no shell forms."""
    known = {"FROM", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    known |= {"ENTRYPOINT", "CMD"}
    found = instructions()
    assert {name for name, _ in found} <= known
    assert found[0][0] == "FROM"
    bases = [rest.split()[0] for name, rest in found if name == "FROM"]
    assert len(set(bases)) == 1
    assert ":" in bases[0]
    assert not bases[0].endswith(":latest")
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    assert set(re.findall(r"--from=(\S+)", DOCKERFILE)) == stages
    last = found[max(i for i, (name, _) in enumerate(found) if name == "FROM") :]
    assert [rest for name, rest in last if name == "USER"] == ["headwater"]
    for name in ("ENTRYPOINT", "CMD"):
        assert sum(one == name for one, _ in last) == 1
        assert exec_form(name)


def test_the_image_builds_from_wheels_without_a_network() -> None:
    copied = [rest for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    assert copied == ["dist/wheels /wheels"]
    ran = " ".join(rest for name, rest in instructions() if name == "RUN")
    assert re.findall(r"pip install (.*?) '", ran) == [
        "--no-cache-dir --no-index --find-links /wheels"
    ]
    for tool in ("apt", "curl", "wget", "git "):
        assert tool not in ran
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "docker build --network none --file deploy/Dockerfile" in makefile
    (base,) = set(re.findall(r"^FROM python:([0-9.]+)-slim", DOCKERFILE, re.MULTILINE))
    assert f"IMAGE_PYTHON = {base}\n" in makefile
    # What is sent to the builder is what is copied.
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert [line for line in ignored if not line.startswith("#")] == ["*", "!dist/wheels"]


def health_check(port: int) -> int:
    program, *words = exec_form("HEALTHCHECK")
    assert program == "headwater"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADWATER_", "STREAM_"))}
    ran = subprocess.run(
        [sys.executable, "-m", "headwater", *words],
        env=kept | {"HEADWATER_PORT": str(port)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in ran.stderr
    return ran.returncode


def test_the_health_check_tells_whether_a_server_is_there(server: ServerProcess) -> None:
    assert health_check(server.port) == 0
    assert health_check(9) == 6


def test_the_health_check_needs_no_word_about_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with SecureServer(authority, authority.issue()) as server:
        assert health_check(server.port) == 0


def unit_lines(name: str) -> list[str]:
    return re.findall(rf"^{name}=-?(.+)$", UNIT, re.MULTILINE)


def test_the_unit_runs_commands_that_exist() -> None:
    commands = [*unit_lines("ExecStart"), *unit_lines("ExecStartPre")]
    assert len(commands) == 2
    for line in commands:
        program, *words = shlex.split(line)
        assert program.endswith("/bin/headwater")
        check_command(words)
        assert "/var/lib/headwater" in words


def test_the_unit_gives_the_server_what_it_needs() -> None:
    (files,) = unit_lines("LimitNOFILE")
    assert int(files) > Settings.model_fields["connections_max"].default
    (stop_s,) = unit_lines("TimeoutStopSec")
    assert int(stop_s) * 1000 > Settings.model_fields["shutdown_grace_ms"].default
    (directory,) = unit_lines("StateDirectory")
    assert f"--data /var/lib/{directory}" in UNIT
    # Raising the limit of open files is one of @resources.
    assert "@resources" not in "".join(unit_lines("SystemCallFilter"))


def test_settings_that_the_guide_names_exist() -> None:
    text = Page(DOCS / "howto" / "production.md").text
    named = set(re.findall(r"`([a-z_]+)(?: = [^`]+)?`", text))
    settings = {name for name in named if re.fullmatch(r"[a-z]+(_[a-z]+)*", name)}
    codes = {getattr(error, "code", "") for error in vars(errors).values()}
    others = {"fsync", "backup", "restore", "traceparent", "request_id", "localhost"}
    others |= {"commit_failed", "archiving_failed", "degraded", "page", "ticket"}
    metrics = {name for name in settings if name.startswith("headwater_")}
    assert settings - codes - others - metrics <= set(Settings.model_fields)


# ── Kubernetes ───────────────────────────────────────────────────────────────────────────────


def manifests() -> dict[str, Any]:
    yaml: Any = importlib.import_module("yaml")
    text = (ROOT / "deploy" / "kubernetes" / "headwater.yaml").read_text(encoding="utf-8")
    return {found["kind"]: found for found in yaml.safe_load_all(text)}


def test_the_nodes_run_a_command_that_exists() -> None:
    spec = manifests()["Deployment"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    check_command(container["args"])
    named = {one["name"] for one in container["env"]} - {"POD_IP"}
    named |= {"HEADWATER_ENGINE"}
    assert {name.removeprefix("HEADWATER_").lower() for name in named} <= {*Settings.model_fields}
    port = Settings.model_fields["port"].default
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    assert f"$(POD_IP):{port}" in str(container["env"])
    grace_s = spec["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s * 1000 > Settings.model_fields["shutdown_grace_ms"].default


def test_the_manifests_select_the_nodes() -> None:
    found = manifests()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe"])
def test_the_probes_are_answered(server: ServerProcess, probe: str) -> None:
    (container,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    path = container[probe]["httpGet"]["path"]
    assert httpx.get(f"{server.url}{path}").status_code == 200


def test_keys_and_the_signing_secret_may_be_where_nobody_can_write(
    tmp_path: Path,
) -> None:
    """As in a pod, which has them from a secret."""
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "signing.secret").write_text("5" * 64)
    secret = load_secret(keys / "signing.secret")
    assert secret == b"5" * 64
    # Nothing was made beside it.
    assert [entry.name for entry in keys.iterdir()] == ["signing.secret"]
