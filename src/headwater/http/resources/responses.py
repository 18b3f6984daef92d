"""Durable responses over HTTP: /v1/proxy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from headwater.core.responses.about import path_of
from headwater.core.responses.errors import InvalidAction
from headwater.core.responses.upstream import Opened, Refused, parse_request
from headwater.http.answers import NO_STORE, done, stored
from headwater.http.messages import Answer, Request, Response
from headwater.http.paths import PROXY_ROOT
from headwater.http.queries import parse_query
from headwater.http.resources.streams import StreamResource

if TYPE_CHECKING:
    from headwater.responses.responses import Responses

A = TypeVar("A", bound=Answer)


class ResponseResource:
    def __init__(self, responses: Responses, streams: StreamResource) -> None:
        self._responses = responses
        self._streams = streams

    async def post(self, request: Request) -> Response:
        asked = parse_request(request.headers, request.body)
        opening = asyncio.ensure_future(self._responses.open(asked, request.holder))
        # A client that hangs up before the head never learns the address: nobody would read it.
        request.on_disconnect = lambda: _cancel(opening)
        outcome = await opening
        return _created(request, outcome) if isinstance(outcome, Opened) else _refused(outcome)

    async def get(self, request: Request, response_id: str) -> Answer:
        if b"signature=" in request.query:
            self._verify(request, response_id)
        known = await self._responses.find(response_id)
        answer = self._streams.get(request, path_of(response_id))
        if not isinstance(answer, Answer):
            answer = await answer
        return _with_type(answer, known.type)

    async def head(self, request: Request, response_id: str) -> Response:
        known = await self._responses.find(response_id)
        answer = await self._streams.head(request, path_of(response_id))
        return _with_type(answer, known.type)

    async def patch(self, request: Request, response_id: str) -> Response:
        query = self._verify(request, response_id)
        if query.get("action") != ["abort"]:
            raise InvalidAction
        await self._responses.abort(response_id)
        return done()

    async def delete(self, request: Request, response_id: str) -> Response:
        await self._responses.delete(response_id)
        return done()

    def _verify(self, request: Request, response_id: str) -> dict[str, list[str]]:
        query = parse_query(request.query)
        expires, signature = query.get("expires", []), query.get("signature", [])
        self._responses.verify(response_id, expires, signature)
        return query


def _cancel(opening: asyncio.Future[Opened | Refused]) -> None:
    opening.cancel()


def _created(request: Request, opened: Opened) -> Response:
    target = f"{PROXY_ROOT.decode()}{opened.id}"
    host = request.headers.get(b"host")
    origin = f"{request.peer.scheme}://{host.decode('latin-1')}" if host else ""
    location = f"{origin}{target}?expires={opened.expires_s}&signature={opened.signature}"
    headers = [("Location", location), ("Upstream-Content-Type", opened.content_type), NO_STORE]
    return Response(201, headers)


def _refused(answer: Refused) -> Response:
    headers = [*stored(answer.content_type), ("Upstream-Status", str(answer.status)), NO_STORE]
    return Response(502, headers, answer.body, code="UPSTREAM_ERROR")


def _with_type(answer: A, content_type: str) -> A:
    # A new list: identical long-polls share one answer.
    headers = [*answer.headers, ("Upstream-Content-Type", content_type)]
    return msgspec.structs.replace(answer, headers=headers)
