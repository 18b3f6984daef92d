"""S3 on this machine: `moto`, in its own process."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from tests.support.server import HOST, free_port

_PATIENCE_S = 60.0


class ObjectStorage:
    """A server with one empty bucket. `environment` tells clients how to find it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = "s3://history/of/tests"
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "--host", HOST, "--port", str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _PATIENCE_S
        while self._create_bucket() != 200:
            assert time.monotonic() < deadline, "moto did not start"
            time.sleep(0.05)

    def _create_bucket(self) -> int:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request("PUT", "/history")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
