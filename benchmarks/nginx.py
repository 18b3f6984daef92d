"""nginx with a static file: how fast this machine sends bytes from a file.

Install it for the comparison: `apt-get install nginx-light`.
"""

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.errors import ServerFailed
from benchmarks.results import NGINX
from benchmarks.subjects import Subject

FILE_NAME = "history.json"

_TOOL_SECONDS_MAX = 20
# Administrators' programs are not on everybody's PATH.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
# One worker, as Headwater is one process. Everything else is what its manual advises for files.
_CONFIG = """\
daemon off;
{user}worker_processes 1;
pid {directory}/nginx.pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000;
  default_type application/json;
  client_body_temp_path {directory}/client;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  server {{
    listen 127.0.0.1:{port};
    root {directory};
    location = /healthz {{ return 200; }}
  }}
}}
"""


def nginx() -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        config = data_dir / "nginx.conf"
        config.write_text(_CONFIG.format(user=_user(), port=port, directory=data_dir))
        return [_installed(), "-e", "stderr", "-p", str(data_dir), "-c", str(config)]

    return Subject(NGINX, "nginx", True, "/healthz", command)


def label() -> str:
    try:
        command = [_installed(), "-v"]
    except ServerFailed:
        return "nginx, not installed"
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TOOL_SECONDS_MAX, check=False
    )
    found = re.search(r"nginx/(\d+(\.\d+)+)", done.stderr)
    return f"nginx {found[1]}" if found else "nginx"


def _installed() -> str:
    found = shutil.which("nginx", path=_PATH)
    if found is None:
        raise ServerFailed("nginx is not installed; apt-get install nginx-light")
    return found


def _user() -> str:
    """If root starts it, workers stay root: the default user could not read the files."""
    return f"user {pwd.getpwuid(0).pw_name};\n" if os.geteuid() == 0 else ""
