"""The messages of a stream as a whole: POST …/_clear drops them."""

from __future__ import annotations

from headwater.http.answers import NO_STORE
from headwater.http.messages import Request, Response
from headwater.service.clearing import clear
from headwater.service.groups.operations import Groups
from headwater.service.log import Log


class ClearResource:
    def __init__(self, log: Log, groups: Groups) -> None:
        self._log = log
        self._groups = groups

    async def clear(self, request: Request, path: str) -> Response:
        offset = await clear(self._log, self._groups, path)
        return Response(204, [("Stream-Next-Offset", str(offset)), NO_STORE])
