"""The server and the fixtures for other people's tests."""

from __future__ import annotations

import subprocess
import sys
import threading
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import httpx
import pytest

from headwater.client import AsyncHeadwater, Headwater
from headwater.testing import RunningServer, running_server

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent.parent
INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""


def plugin_arguments() -> list[str]:
    """How to load the plugin: not at all, if the installed package says that it has one."""
    installed = any(entry.name == "headwater" for entry in entry_points(group="pytest11"))
    return [] if installed else ["-p", "headwater.testing"]


def test_the_package_says_that_it_has_a_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"headwater": "headwater.testing"}


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(
        """
        from headwater.client import Headwater
        from headwater.testing import RunningServer

        def test_client(headwater_client, headwater_url, headwater_server):
            assert isinstance(headwater_client, Headwater)
            assert isinstance(headwater_server, RunningServer)
            assert headwater_server.url == headwater_url
            assert headwater_client.url.startswith(headwater_url)
            orders = headwater_client.stream("orders")
            orders.create(content_type="application/json")
            orders.append({"id": 1})
            assert orders.read_json() == [{"id": 1}]

        def test_each_test_has_a_server_of_its_own(headwater_client):
            headwater_client.stream("orders").create(content_type="text/plain")

        def test_a_reader_may_be_left_behind(headwater_client):
            orders = headwater_client.stream("orders")
            orders.create(content_type="text/plain")
            reader = orders.follow(live="sse")
            assert not next(reader)
        """
    )
    result = pytester.runpytest_subprocess(*plugin_arguments(), "-q")
    result.assert_outcomes(passed=3)


def test_a_run_that_does_not_use_it_does_not_load_it() -> None:
    code = (
        "import sys, headwater.testing\n"
        "loaded = {'headwater.cli', 'headwater.client', 'uvloop', 'httpx'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_server_as_a_context_manager() -> None:
    # Other tests may have servers of their own.
    before = {*threading.enumerate()}
    with running_server() as server, running_server() as other:
        assert server.port != other.port
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert httpx.put(server.stream_url("a")).status_code == 201
        assert httpx.get(other.stream_url("a")).status_code == 404
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz")
    started = {*threading.enumerate()} - before
    assert "headwater-server" not in {thread.name for thread in started}


async def test_from_an_event_loop() -> None:
    with running_server(long_poll_timeout_ms=50) as server:
        async with AsyncHeadwater(server.url) as client:
            stream = client.stream("a")
            await stream.create(content_type="application/json")
            await stream.append({"n": 1})
            assert await stream.read_json() == [{"n": 1}]


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_HOST", "192.0.2.1")
    with running_server(memory=False, data=tmp_path / "data") as server:
        assert server.host == "127.0.0.1"
        with Headwater(server.url) as client:
            client.stream("kept").create(content_type="text/plain")
    with (
        running_server(memory=False, data=tmp_path / "data") as server,
        Headwater(server.url) as client,
    ):
        assert client.stream("kept").head().content_type == "text/plain"


def test_a_server_that_cannot_start() -> None:
    with running_server() as server:
        with pytest.raises(Exception, match="cannot listen"), running_server(port=server.port):
            pass
        with pytest.raises(ValueError, match="no_such_setting"), running_server(no_such_setting=1):
            pass


def test_where_it_is() -> None:
    assert RunningServer("127.0.0.1", 80).stream_url("a/b") == "http://127.0.0.1:80/v1/stream/a/b"
