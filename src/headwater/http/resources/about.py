"""The server as a whole: what it is, whether it is healthy, and its API description."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from headwater import __version__
from headwater.core.errors import StorageUnavailable
from headwater.http.answers import JSON_HEADERS, NO_STORE, json_answer
from headwater.http.console.resource import CONSOLE
from headwater.http.messages import Request, Response
from headwater.http.routes import openapi
from headwater.service.log import Log

PATIENCE_S: Final = 2.0
"""How long a probe waits for the engine: no longer than its sender waits for us."""
_INDEX: Final = f"""Headwater {__version__}

GET  /v1/streams        the streams of this server
PUT  /v1/stream/{{path}}  create one
POST /v1/transaction    acknowledge and publish, all or nothing
GET  /v1/stream/__ds/subscriptions  who is woken when streams have something new
GET  /v1/groups         the consumer groups of all streams
GET  /v1/pipelines      how far pipelines are
GET  /healthz           is the process alive
GET  /readyz            does its storage answer
GET  /metrics           figures for Prometheus
GET  /errors/           what errors mean, and what to do
GET  /openapi.json      all of this for machines
GET  /console/          all of this for people, in a browser
""".encode()


class About:
    def __init__(self, log: Log, *, console: bool) -> None:
        self._log = log
        self._console = console
        self._document: bytes | None = None
        self._probe: asyncio.Future[int] | None = None
        self._asked_s = 0.0

    def index(self, request: Request) -> Response:
        if self._console and "text/html" in (request.header(b"accept") or ""):
            return Response(303, [("Location", CONSOLE), NO_STORE])
        return Response(200, [("Content-Type", "text/plain; charset=utf-8")], _INDEX)

    def health(self, request: Request) -> Response:
        return json_answer({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Ready means: the engine answers. A probe reads, so that it costs no commit. No second one
        is sent while the engine has not answered the first.
        """
        probe = self._probe
        if probe is None or probe.done():
            self._asked_s = monotonic()
            question = self._log.in_thread(self._log.engine.streams.next_id)
            probe = self._probe = asyncio.ensure_future(question)
            # When it fails, the client may be gone.
            probe.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        done, _ = await asyncio.wait([probe], timeout=PATIENCE_S)
        if not done:
            waited_s = monotonic() - self._asked_s
            raise StorageUnavailable(
                f"the storage engine has not answered for {waited_s:.0f} s; waiting for it"
            )
        probe.result()
        problems = self._log.problems()
        if problems:
            return json_answer({"status": "degraded", "problems": problems})
        return json_answer({"status": "ready"})

    async def openapi(self, request: Request) -> Response:
        if self._document is None:
            # It takes a while to build, once.
            self._document = await self._log.in_thread(openapi.document)
        return Response(200, list(JSON_HEADERS), self._document)
