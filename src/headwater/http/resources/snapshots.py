"""…/_snapshots: the state at an offset, for readers to start from."""

from __future__ import annotations

from typing import Final

from headwater.core.content_types import check_content_type
from headwater.core.errors import EmptyBody, InvalidOffset, MissingContentType
from headwater.core.offsets import Offset, parse_offset
from headwater.http.answers import NO_STORE, done, json_answer, stored
from headwater.http.messages import Headers, Request, Response
from headwater.service.log import Log
from headwater.service.snapshots import Snapshots

LATEST: Final = "latest"


class SnapshotResource:
    def __init__(self, log: Log) -> None:
        self._snapshots = Snapshots(log)

    async def index(self, request: Request, path: str) -> Response:
        kept = await self._snapshots.kept(path)
        body = {
            "snapshots": [
                {
                    "offset": str(offset),
                    "content_type": one.content_type,
                    "size_bytes": one.size_bytes,
                    "created": one.at_ms,
                }
                for offset, one in kept
            ]
        }
        return json_answer(body)

    async def delete(self, request: Request, path: str, name: str) -> Response:
        await self._snapshots.drop(path, _offset(name))
        return done()

    async def get(self, request: Request, path: str, name: str) -> Response:
        offset, found = await self._snapshots.load(path, None if name == LATEST else _offset(name))
        headers: Headers = [
            *stored(found.content_type),
            ("Stream-Next-Offset", str(offset)),
            # Another snapshot may replace it, especially the latest one.
            NO_STORE,
        ]
        return Response(200, headers, found.body)

    async def put(self, request: Request, path: str, name: str) -> Response:
        offset = _offset(name)
        if not request.body:
            raise EmptyBody("a snapshot has a body; send the state")
        content_type = request.header(b"content-type")
        if content_type is None:
            raise MissingContentType
        is_new = await self._snapshots.take(
            path, offset, check_content_type(content_type), request.body
        )
        headers = [("Stream-Next-Offset", str(offset)), NO_STORE]
        return Response(201 if is_new else 200, headers)


def _offset(name: str) -> Offset:
    offset = parse_offset(name)
    if not isinstance(offset, Offset):
        raise InvalidOffset("name a snapshot by an offset, as in Stream-Next-Offset")
    return offset
