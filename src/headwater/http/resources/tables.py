"""`/v1/tables` and `/v1/sql`: the tables that pipelines keep next to this server, and queries.

The server itself knows nothing about tables: it is given a function that answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Annotated, Final

import msgspec

from headwater.core.json_bodies import decode_body
from headwater.http.answers import JSON_HEADERS
from headwater.http.errors import plain_error
from headwater.http.messages import Request, Response

Ask = Callable[[str | None], Awaitable[bytes]]
"""Takes an SQL query, or None for the list of tables; returns JSON."""

_SQL_CHARS_MAX: Final = 20_000
_LIST_KEPT_S: Final = 5.0


class SqlBody(msgspec.Struct, forbid_unknown_fields=True):
    sql: Annotated[str, msgspec.Meta(min_length=1, max_length=_SQL_CHARS_MAX)]


class TableResource:
    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._listed: tuple[float, bytes] | None = None

    async def index(self, request: Request) -> Response:
        """The list, cached for a moment: many may look at it."""
        if self._ask is None:
            return _no_lake()
        if self._listed is None or monotonic() - self._listed[0] > _LIST_KEPT_S:
            self._listed = (monotonic(), await self._ask(None))
        return Response(200, list(JSON_HEADERS), self._listed[1])

    async def sql(self, request: Request) -> Response:
        question = decode_body(request.body, SqlBody).sql
        if self._ask is None:
            return _no_lake()
        return Response(200, list(JSON_HEADERS), await self._ask(question))


def _no_lake() -> Response:
    return plain_error(
        404, "not_found", "this server has no tables; run `headwater up` to keep some"
    )
