"""Durability: when an append is acknowledged.

`synced`, the default: when the commit that holds it is on disk. `relaxed`: when it is decided,
before that commit, which follows at once. Either way, only committed data can be read, and appends
are committed whole and in the order they were acknowledged. So a crash may lose the last moments of
a relaxed stream, but never leaves a gap or half a message.

If a commit fails, the appends acknowledged with it are void like everything else in it: the state
is loaded again, and a producer that continues learns which sequence is expected.

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
