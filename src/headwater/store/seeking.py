"""Finding an append by a property that grows with its position: a message number, a time.

Bisecting a run takes a few look-ups, and no separate index.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.store.engine.appends import Outline, SeekBy


def last_before(
    outline_at: Callable[[int, int], Outline | None],
    run: int,
    interval: tuple[int, int],
    by: SeekBy,
    value: int,
) -> Outline | None:
    """The last append in an interval that starts at or before a value."""
    found: Outline | None = None
    low, high = interval
    while low < high:
        outline = outline_at(run, (low + high) // 2)
        if outline is None:
            break
        if getattr(outline, by) <= value:
            found, low = outline, outline.end
        else:
            high = outline.start
    return found
