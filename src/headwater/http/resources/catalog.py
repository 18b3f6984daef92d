"""The list of streams, and what the server knows about each: its details, and positions in it."""

from __future__ import annotations

from collections.abc import Callable

from headwater.core.access import Permission
from headwater.core.errors import InvalidQuery
from headwater.core.offsets import parse_offset
from headwater.http.access.listing import Listed, Pages, list_readable
from headwater.http.answers import json_answer
from headwater.http.messages import Request, Response
from headwater.http.queries import flag_in, number_in, page_of, query_of
from headwater.service.feeds import Feeds
from headwater.service.log import Log
from headwater.store.engine.streams import DeletedStream, StreamSummary


class Catalog:
    def __init__(self, log: Log, feeds: Feeds) -> None:
        self._log = log
        self._feeds = feeds

    async def index(self, request: Request) -> Response:
        if flag_in(query_of(request), "deleted"):
            return await self._page(request, self._log.list_deleted, _deleted_json)
        return await self._page(request, self._log.list_streams, _summary_json)

    async def _page(
        self, request: Request, pages: Pages[Listed], as_json: Callable[[Listed], dict[str, object]]
    ) -> Response:
        prefix, after, limit = page_of(request)
        if request.caller is None:
            page = await pages(prefix, after, limit + 1)
        else:
            page = await list_readable(pages, request.caller, prefix, after, limit + 1)
        more = len(page) > limit
        body = {
            "streams": [as_json(one) for one in page[:limit]],
            "next": page[limit - 1].path if more else None,
        }
        return json_answer(body)

    async def position(self, request: Request, path: str) -> Response:
        """Where the last messages begin, or those since a time, or how far a read gets."""
        query = query_of(request)
        if sum(name in query for name in ("last", "number", "at", "offset")) != 1:
            raise InvalidQuery(
                "send last=COUNT, number=NUMBER, at=MILLISECONDS since 1970 or offset=OFFSET: "
                "one of the four"
            )
        if "offset" in query:
            return await self._reach(path, query)
        skip = 0
        if "last" in query:
            until = parse_offset(query.get("until", "now"))
            offset, skip = await self._log.find_last(path, number_in(query, "last"), until)
        elif "number" in query:
            offset, skip = await self._log.find_number(path, number_in(query, "number"))
        else:
            offset = await self._log.find_time(path, number_in(query, "at"))
        return json_answer({"offset": str(offset), "skip": skip})

    async def _reach(self, path: str, query: dict[str, str]) -> Response:
        """How far a limited read gets, and what is left after it."""
        reach = await self._log.reach(
            path,
            parse_offset(query["offset"]),
            number_in(query, "messages") if "messages" in query else None,
            number_in(query, "bytes") if "bytes" in query else None,
        )
        body = {
            "offset": str(reach.end),
            "messages": reach.messages,
            "bytes": reach.size_bytes,
            "tail": str(reach.tail),
            "messages_behind": reach.messages_behind,
            "closed": reach.closed,
        }
        return json_answer(body)

    async def details(self, request: Request, path: str) -> Response:
        entry = await self._log.entry(path)
        view, state = self._log.view(entry), entry.state
        fork, retention = view.config.fork, view.config.retention
        details = {
            **_summary_json(StreamSummary.of(view)),
            "description": view.config.description,
            "version": view.config.version,
            "unique_ids": view.config.unique_ids.mode if view.config.unique_ids else None,
            "id_pointer": view.config.unique_ids.pointer if view.config.unique_ids else None,
            "retention_s": retention.age_s if retention else None,
            "retention_bytes": retention.size_bytes if retention else None,
            "earliest": view.config.lineage.token_at(view.config.kept_from),
            "forked_from": fork.source if fork and _may_see(request, fork.source) else None,
            "forks": state.forks if state else 0,
            "producers": state.producer_count if state else 0,
            "readers": self._feeds.readers_of(entry),
        }
        return json_answer(details)


def _may_see(request: Request, path: str) -> bool:
    caller = request.caller
    return caller is None or caller.grants.allow(Permission.READ, path)


def _deleted_json(deleted: DeletedStream) -> dict[str, object]:
    return {
        **_summary_json(deleted.summary),
        "deleted_at": deleted.deleted_at_ms,
        "kept_until": deleted.kept_until_ms,
    }


def _summary_json(summary: StreamSummary) -> dict[str, object]:
    return {
        "name": summary.path,
        "content_type": summary.content_type,
        "tail": summary.tail,
        "closed": summary.closed,
        "created": summary.created_at_ms,
        "size_bytes": summary.size_bytes,
        "messages": summary.messages,
        "ttl_s": summary.ttl_s,
        "expires_at": summary.expires_at_ms,
        "profile": summary.profile,
    }
