"""The list of all groups: pages that are bounded in groups, not only in streams."""

from __future__ import annotations

import json
from typing import Any

from headwater.core.limits import LIST_PAGE_MAX
from headwater.http.messages import Request, Response
from headwater.http.resources.groups import GroupResource


class Crowd:
    """Streams with so many groups each."""

    def __init__(self, *counts: int) -> None:
        self._counts = counts

    async def streams(self, after: int, limit: int) -> list[tuple[int, str]]:
        return [(n, str(n)) for n in range(after + 1, len(self._counts) + 1)][:limit]

    async def infos(self, path: str) -> list[object]:
        return [{"name": f"g{number}"} for number in range(self._counts[int(path) - 1])]


async def test_a_page_ends_with_the_stream_that_makes_it_large() -> None:
    groups: Any = Crowd(10, LIST_PAGE_MAX, 3, 0, LIST_PAGE_MAX, 1)
    resource = GroupResource(groups, heartbeat=None)  # type: ignore[arg-type]
    pages, after = [], 0
    while after is not None:
        answer = await resource.everywhere(Request("GET", b"/v1/groups", b"after=%d" % after, {}))
        assert isinstance(answer, Response)
        assert isinstance(answer.body, bytes)
        page = json.loads(answer.body)
        pages.append({one["stream"]: len(one["groups"]) for one in page["streams"]})
        after = page["next"]
    assert pages == [{"1": 10, "2": LIST_PAGE_MAX}, {"3": 3, "5": LIST_PAGE_MAX}, {"6": 1}]
