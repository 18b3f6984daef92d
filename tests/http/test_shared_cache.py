"""A cache in front of the server makes one request of many equal long-polls."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.conftest import StartServer
from tests.http.client import JSON, Client, eventually
from tests.observe.figures import Figures
from tests.support.server import ServerProcess, free_port

POLLS = 20
STREAM = "/v1/stream/{path}"

CONFIGURATION = """
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  proxy_cache_path {directory}/cache keys_zone=streams:1m;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {upstream};
      proxy_cache streams;
      proxy_cache_lock on;
      proxy_cache_lock_timeout 60s;
      proxy_cache_lock_age 60s;
    }}
  }}
}}
"""


@contextmanager
def nginx(directory: Path, upstream: str) -> Iterator[str]:
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    configuration = directory / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(directory=directory, port=port, upstream=upstream)
    )
    errors = directory / "error.log"
    process = subprocess.Popen([program, "-c", str(configuration), "-e", str(errors)])
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: process.poll() is not None or _answers(url))
        assert process.poll() is None, errors.read_text()
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_equal_long_polls_are_one_request_upstream(
    start_server: StartServer, tmp_path: Path
) -> None:
    server: ServerProcess = start_server("--memory")
    client = Client(server)
    path = client.create(JSON)
    target = f"/v1/stream/{path}?offset=-1&live=long-poll&cursor=7"
    with nginx(tmp_path, server.url) as url, ThreadPoolExecutor(POLLS) as pool:
        polls = [pool.submit(httpx.get, f"{url}{target}", timeout=60) for _ in range(POLLS)]
        eventually(lambda: Figures.of(server.url)("live_reads") == 1)
        client.post(path, b'{"n": 1}', JSON)
        answers = [poll.result() for poll in polls]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.content for answer in answers} == {b'[{"n": 1}]'}
    assert Figures.of(server.url)("requests_total", method="GET", route=STREAM, status="200") == 1
