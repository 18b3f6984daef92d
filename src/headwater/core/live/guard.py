"""How precise the server can afford to be.

- `idle`: nobody waits and no template is active; only tables are touched.
- `fine`: every change touches the keys of its rows.
- `restricted`: changes arrive faster than they can be examined (the backlog passed the mark and has
  not yet fallen below the lower one), or the budget of fine keys is spent. A few changes still get
  fine keys, for templates in use; the others touch their template's key.
- `coarseOnly`: the backlog is ten times the mark, or fine keys are switched off. Rows are not
  examined; every change touches its table and all templates of it.

So less precision wakes more waiters, never fewer.
"""

from __future__ import annotations

from typing import Final, Literal

from headwater.core.live.profile import TouchSettings

Mode = Literal["idle", "fine", "restricted", "coarseOnly"]
_COARSE_AT_TIMES: Final = 10


class Guard:
    def __init__(self, settings: TouchSettings) -> None:
        self._settings = settings
        self._lagging = False
        self._tokens = float(settings.fine_burst_tokens)
        self._tokens_at_ms = 0
        self.mode: Mode = "idle"
        self.budget = 0
        """Fine keys that this batch may still touch."""

    def begin_batch(self, now_ms: int, lag: int, *, wanted: bool) -> Mode:
        """Choose the mode for the next batch of changes, with `lag` more waiting after it."""
        settings = self._settings
        degrade = settings.lag_degrade_fine_touches_at_source_offsets
        if lag >= degrade:
            self._lagging = True
        elif lag <= settings.lag_recover_fine_touches_at_source_offsets:
            self._lagging = False
        self._refill(now_ms)
        if not wanted:
            self.mode, self.budget = "idle", 0
        elif lag >= degrade * _COARSE_AT_TIMES or not self._fine_is_on:
            self.mode, self.budget = "coarseOnly", 0
        else:
            per_batch = settings.fine_touch_budget_per_batch
            if self._lagging:
                per_batch = min(per_batch, settings.lag_reserved_fine_touch_budget_per_batch)
            self.budget = min(per_batch, int(self._tokens))
            self.mode = "restricted" if self._lagging or not self.budget else "fine"
        return self.mode

    @property
    def _fine_is_on(self) -> bool:
        settings = self._settings
        return bool(settings.fine_touch_budget_per_batch and settings.fine_burst_tokens)

    def _refill(self, now_ms: int) -> None:
        settings = self._settings
        elapsed_ms = max(0, now_ms - self._tokens_at_ms) if self._tokens_at_ms else 0
        self._tokens_at_ms = now_ms
        gained = elapsed_ms * settings.fine_tokens_per_second / 1000
        self._tokens = min(float(settings.fine_burst_tokens), self._tokens + gained)

    def spend(self, keys: int) -> None:
        self.budget -= keys
        self._tokens -= keys
        if self.budget <= 0:
            # The rest of the batch is coarser.
            self.mode = "restricted"
