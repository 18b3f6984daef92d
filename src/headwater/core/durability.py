"""Durability: when an append is acknowledged.

`synced`, the default: when the commit that holds it is on disk. `relaxed`: when it is decided,
before that commit, which follows at once. Either way nobody reads what is not committed, appends
are committed in the order in which they were acknowledged, and each of them as a whole. So a crash
may take the last moments of a relaxed stream, and never leaves a gap or half a message.

If a commit fails, what was acknowledged on it is void like everything else in it: the state is
loaded again, and a producer that continues is told which sequence is expected.

Closing is final, and always synced.
"""

from __future__ import annotations

from headwater.core.errors import InvalidHeader

SYNCED = "synced"
RELAXED = "relaxed"


def parse_relaxed(text: str | None) -> bool:
    """Whether a PUT asks for relaxed durability."""
    known = {SYNCED: False, RELAXED: True}.get((text or SYNCED).strip().lower())
    if known is None:
        raise InvalidHeader("Stream-Durability", "must be synced or relaxed")
    return known
