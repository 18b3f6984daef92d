"""The calls that tests of subscriptions make over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import quote

import httpx

from tests.subscriptions.receiver import PATIENCE_S, Received

JSON = {"Content-Type": "application/json"}
_numbers = count(1)


def fresh(prefix: str = "n") -> str:
    return f"{prefix}{next(_numbers)}"


class Api:
    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=f"{url}/v1/stream", timeout=60, trust_env=False)

    # ── Streams ──────────────────────────────────────────────────────────────────────────────

    def create(self, path: str, *messages: Any) -> None:
        content = json.dumps(list(messages)) if messages else ""
        answer = self.http.put(f"/{path}", headers=JSON, content=content)
        assert answer.status_code == 201, answer.text

    def append(self, path: str, *messages: Any) -> str:
        answer = self.http.post(f"/{path}", headers=JSON, content=json.dumps(list(messages)))
        assert answer.status_code == 204, answer.text
        return answer.headers["Stream-Next-Offset"]

    def read(self, path: str) -> list[Any]:
        values: list[Any] = self.http.get(f"/{path}").json()
        return values

    # ── Subscriptions ────────────────────────────────────────────────────────────────────────

    def put(self, name: str, **config: Any) -> httpx.Response:
        return self.http.put(f"/__ds/subscriptions/{quote(name, safe='')}", json=config)

    def webhook(self, url: str, pattern: str | None = None, **config: Any) -> str:
        name = fresh("sub")
        config |= {"pattern": pattern} if pattern else {}
        answer = self.put(name, type="webhook", webhook={"url": url}, **config)
        assert answer.status_code == 201, answer.text
        return name

    def pull(self, pattern: str, **config: Any) -> tuple[str, str]:
        """A pull-wake subscription and its wake stream."""
        name, wakes = fresh("sub"), fresh("wakes")
        answer = self.put(name, type="pull-wake", pattern=pattern, wake_stream=wakes, **config)
        assert answer.status_code == 201, answer.text
        return name, wakes

    def get(self, name: str) -> dict[str, Any]:
        answer = self.http.get(f"/__ds/subscriptions/{name}")
        assert answer.status_code == 200, answer.text
        fields: dict[str, Any] = answer.json()
        return fields

    def links(self, name: str) -> dict[str, dict[str, Any]]:
        return {stream["path"]: stream for stream in self.get(name)["streams"]}

    def call(self, name: str, action: str, token: str | None = None, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return self.http.post(f"/__ds/subscriptions/{name}/{action}", json=body, headers=headers)

    def callback(self, received: Received, **changes: Any) -> httpx.Response:
        """Report on a wake, with whatever the test wants to be different."""
        body = received.body
        fields = {"wake_id": body["wake_id"], "generation": body["generation"]}
        token = changes.pop("token", body["callback_token"])
        return self.call(body["subscription_id"], "callback", token, **(fields | changes))

    def claim(self, name: str, worker: str = "me") -> dict[str, Any]:
        answer = self.call(name, "claim", worker=worker)
        assert answer.status_code == 200, answer.text
        fields: dict[str, Any] = answer.json()
        return fields

    def proven(
        self, name: str, action: str, claimed: dict[str, Any], **body: Any
    ) -> httpx.Response:
        fields = {"wake_id": claimed["wake_id"], "generation": claimed["generation"]}
        return self.call(name, action, claimed["token"], **(fields | body))


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
