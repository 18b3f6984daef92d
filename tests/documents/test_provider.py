"""The published provider, `@durable-streams/y-durable-streams`, works against Headwater alone."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.documents.loading import compacted
from tests.conformance.test_conformance import HARNESS, vitest
from tests.core.documents.test_compaction import edits, said
from tests.support.engines import serving
from tests.support.server import ServerProcess

__all__ = ["vitest"]
PATIENCE_S = 180
SETTINGS = ("--documents", "--documents-compact-bytes", "1500")
CASES = ["sync", "concurrent", "rapid", "awareness", "compaction", "missing", "reconnect"]

pytestmark = [pytest.mark.conformance, pytest.mark.usefixtures("vitest")]


@pytest.fixture(scope="module", params=["sqlite", "cluster"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    with serving(request.param, tmp_path_factory.mktemp("provider"), *SETTINGS) as server:
        yield server
        assert "Traceback" not in server.stderr


def node(case: str, url: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", "provider.mjs", case, url],
        cwd=HARNESS,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("case", CASES)
def test_the_provider(case: str, server: ServerProcess) -> None:
    done = node(case, server.url)
    assert done.returncode == 0, done.stderr


def test_yjs_takes_what_waited_in_a_snapshot() -> None:
    """A snapshot holds updates whose predecessors are missing; Yjs applies them when those come."""
    lines = []
    for seed in range(50):
        _, updates = edits(40, seed)
        rng = random.Random(seed)
        late = set(rng.sample(range(len(updates)), 8))
        early = [one for number, one in enumerate(updates) if number not in late]
        snapshot = compacted([compacted(early[:20]), *early[20:]])
        order = [snapshot, *(updates[number] for number in sorted(late))]
        sent = [base64.b64encode(update).decode() for update in order]
        lines.append(json.dumps({"updates": sent, "expected": said(updates)}))
    done = node("pending", "", "\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"count": 50}


@pytest.mark.crash
def test_editors_converge_though_the_server_is_killed(tmp_path: Path) -> None:
    with ServerProcess("--data", str(tmp_path / "data"), *SETTINGS) as server:
        editors = subprocess.Popen(
            ["node", "provider.mjs", "killed", server.url],
            cwd=HARNESS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert editors.stderr is not None
            while "ready" not in (line := editors.stderr.readline()):
                assert line, "node ended before it was ready"
            for _ in range(3):
                server.kill()
                server.start()
            out, said = editors.communicate("over\n", timeout=PATIENCE_S)
        finally:
            editors.kill()
            editors.wait()
        assert editors.returncode == 0, said
        assert json.loads(out)["edits"] >= 200
