"""The list of streams as one caller sees it: as if there were no others.

The next page begins after the last name shown, so no answer reveals the name, or the existence, of
a stream that the caller may not read. The engine is asked only for names that begin like one of the
caller's patterns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headwater.core.access import Caller, Permission
from headwater.core.limits import LIST_PAGE_MAX
from headwater.store.engine.streams import DeletedStream, StreamSummary

Listed = TypeVar("Listed", StreamSummary, DeletedStream)
Pages = Callable[[str, str, int], Awaitable[list[Listed]]]
"""Returns streams, given a prefix, the path they come after, and how many."""


async def list_readable(
    pages: Pages[Listed], caller: Caller, prefix: str, after: str, limit: int
) -> list[Listed]:
    found: list[Listed] = []
    for allowed in caller.grants.readable_prefixes():
        common = _both(allowed, prefix)
        if common is None:
            continue
        last = after
        while len(found) < limit:
            page = await pages(common, last, LIST_PAGE_MAX)
            found += [one for one in page if caller.grants.allow(Permission.READ, one.path)]
            if len(page) < LIST_PAGE_MAX:
                break
            last = page[-1].path
    return found[:limit]


def _both(one: str, other: str) -> str | None:
    """The prefix of names that begin with both; None if no name does."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return longer if longer.startswith(shorter) else None
