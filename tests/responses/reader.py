"""The contract from the side of someone who uses it with nothing but HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass
class Ended:
    """A response that was read to its end."""

    body: bytes
    reason: str | None


@dataclass
class Proxy:
    http: httpx.Client
    key: str | None = None

    @property
    def _own(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def make(
        self, url: str | None, method: str | None = "POST", body: bytes = b"", **headers: str
    ) -> httpx.Response:
        sent = self._own | {name.replace("_", "-"): value for name, value in headers.items()}
        if url is not None:
            sent["Upstream-URL"] = url
        if method is not None:
            sent["Upstream-Method"] = method
        return self.http.post("/v1/proxy", headers=sent, content=body)

    def open(self, url: str, method: str = "POST", body: bytes = b"", **headers: str) -> str:
        """Make a request that succeeds; returns the signed address."""
        answer = self.make(url, method, body, **headers)
        assert answer.status_code == 201, answer.text
        return answer.headers["Location"]

    def follow(self, location: str, offset: str = "-1") -> Ended:
        """Read to the end, one long-poll after the other."""
        body = b""
        while True:
            answer = self.http.get(f"{location}&offset={offset}&live=long-poll")
            assert answer.status_code in (200, 204), answer.text
            body += answer.content
            offset = answer.headers["Stream-Next-Offset"]
            if answer.headers.get("Stream-Closed") == "true":
                return Ended(body, answer.headers.get("Stream-Close-Reason"))

    def events(self, location: str, offset: str = "-1") -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Bytes and the control event after them, from one connection."""
        data = b""
        with self.http.stream("GET", f"{location}&offset={offset}&live=sse") as answer:
            assert answer.status_code == 200
            assert answer.headers["Stream-SSE-Data-Encoding"] == "base64"
            kind = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(":")
                if name == "event":
                    kind = value.strip()
                elif name == "data" and kind == "data":
                    data += base64.b64decode(value)
                elif name == "data" and kind == "control":
                    yield data, json.loads(value)
                    data = b""


def code(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) >= {"code", "message"}
    return answer.status_code, body["error"]["code"]


def bare(location: str) -> str:
    """The address without its signature."""
    return location.partition("?")[0]
