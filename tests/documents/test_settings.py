"""Documents are served where the server is told to, and cost nothing elsewhere."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest
from pydantic import ValidationError

from headwater.cli.serving import server as serving
from headwater.cli.serving.access import CannotServe
from headwater.settings import load_settings
from tests.conftest import StartServer
from tests.support.server import ServerProcess


def test_off(server: ServerProcess) -> None:
    for method in ("PUT", "GET", "POST", "DELETE", "PATCH"):
        answer = httpx.request(method, f"{server.url}/v1/yjs/notes/docs/a")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "NOT_FOUND"


def test_off_loads_nothing() -> None:
    script = (
        "import sys, headwater.cli.serving.server, headwater.embedded\n"
        "print([name for name in sys.modules if name.startswith('pycrdt') or name in "
        "('headwater.documents.documents', 'headwater.http.resources.documents')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_another_prefix(start_server: StartServer) -> None:
    server = start_server("--memory", "--documents", "--documents-prefix", "/collab")
    assert httpx.put(f"{server.url}/collab/notes/docs/a").status_code == 201
    found = httpx.get(f"{server.url}/collab/notes/docs/a?offset=snapshot")
    assert found.headers["Location"] == "/collab/notes/docs/a?offset=-1"
    assert httpx.get(f"{server.url}/v1/yjs/notes/docs/a").status_code == 404
    assert httpx.get(f"{server.url}/v1/stream/yjs/notes/docs/a").status_code == 200


@pytest.mark.parametrize(
    "prefix", ["", "yjs", "/", "/a/", "/a//b", "/a b", "/v1/stream", "/v1/streams/x"]
)
def test_prefixes_that_cannot_be(prefix: str) -> None:
    with pytest.raises(ValidationError):
        load_settings(None, {"documents_prefix": prefix})


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "find_spec", lambda name: None)
    serving.check_packages(load_settings(None, {}))
    with pytest.raises(CannotServe, match=r"pip install 'headwater\[documents\]'"):
        serving.check_packages(load_settings(None, {"documents": True}))
