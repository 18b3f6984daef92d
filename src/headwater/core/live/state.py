"""One live stream: templates, journal and guard together, without a clock or a socket.

`derive` reads changes in stream order and adds the keys they touch to the open bucket. `flush`
closes it. `wait` says whether something happened since a cursor, and if not, what to listen to.
Times are monotonic milliseconds, except those of templates, which are wall-clock times because they
outlive the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headwater.core.errors import InvalidBody
from headwater.core.live.guard import Guard, Mode
from headwater.core.live.history import EXACT_KEYS_MAX
from headwater.core.live.interest import Interest, Listening
from headwater.core.live.journal import Journal, Waiter
from headwater.core.live.keys import table_key
from headwater.core.live.profile import TouchSettings
from headwater.core.live.templates import (
    Activation,
    Template,
    TemplateBook,
    TemplateRecord,
    TemplateSpec,
)
from headwater.core.live.touches import Change, touch_all_rows, touch_templates
from headwater.core.numbers import whole_number
from headwater.core.state_protocol import RESET, RawRecord

_TABLES_REMEMBERED_MAX: Final = 4096
NOW: Final = "now"


class Totals(msgspec.Struct):
    """Totals since the journal began."""

    records: int = 0
    changes: int = 0
    fine_touches: int = 0
    fallback_changes: int = 0
    flushes: int = 0
    waits: int = 0
    touched: int = 0
    timeouts: int = 0
    stale: int = 0
    activations: int = 0
    retirements: int = 0

    def grow(self, before: Totals, after: Totals) -> None:
        """Add the difference between two totals."""
        for name in self.__struct_fields__:
            grown = getattr(after, name) - getattr(before, name)
            setattr(self, name, getattr(self, name) + grown)


class LiveState:
    def __init__(
        self,
        epoch: str,
        settings: TouchSettings,
        templates: Iterable[TemplateRecord] = (),
        source_seq: int = 0,
        exact_keys_max: int = EXACT_KEYS_MAX,
    ) -> None:
        self._exact_keys_max = exact_keys_max
        self.settings = settings
        self.guard = Guard(settings)
        self.book = TemplateBook(settings.templates)
        for record in templates:
            self.book.add(Template(record, active_from=0))
        self.totals = Totals()
        self.journal = Journal(epoch, settings, exact_keys_max)
        self.journal.source_seq = self.journal.flushed_seq = source_seq
        self._table_keys: dict[str, int] = {}

    def restart(self, epoch: str) -> list[Waiter]:
        """Start over: every cursor and every waiter so far is stale."""
        before = self.journal
        self.journal = Journal(epoch, self.settings, self._exact_keys_max)
        self.journal.source_seq = self.journal.flushed_seq = before.source_seq
        for template in self.book:
            template.active_from = template.waiters = 0
        return before.waiters

    # ── Changes ──────────────────────────────────────────────────────────────────────────────

    def derive(
        self, records: Sequence[RawRecord | None], lag: int, now_ms: int, wall_ms: int
    ) -> bool:
        """Touch the keys of the next changes; True if one of them voids everything before it."""
        mode = self.guard.begin_batch(now_ms, lag, wanted=bool(self.book.active))
        reset = False
        self.totals.records += len(records)
        for record in records:
            if record is None:
                continue
            if record.headers.control is None:
                self._touch(record, mode, now_ms, wall_ms)
            elif record.headers.control == RESET:
                reset = True
        self.journal.source_seq += len(records)
        self.journal.check_overflow()
        return reset

    def _touch(self, record: RawRecord, mode: Mode, now_ms: int, wall_ms: int) -> None:
        self.totals.changes += 1
        self.journal.touch_table(self._table_key(record.type), now_ms)
        templates = self.book.of(record.type)
        if templates is None:
            return
        if mode == "coarseOnly" or self.guard.budget <= 0:
            self.totals.fallback_changes += 1
            touch_all_rows(templates.values(), self.journal.pending)
        elif mode == "restricted":
            self._touch_hot(record, templates.values(), wall_ms)
        else:
            self._touch_rows(record, templates.values())

    def _touch_rows(self, record: RawRecord, templates: Iterable[Template]) -> None:
        policy, guard = self.settings.on_missing_before, self.guard
        touched = touch_templates(
            Change(record), templates, policy, self.journal.pending, guard.budget
        )
        self.totals.fine_touches += touched
        guard.spend(touched)

    def _touch_hot(self, record: RawRecord, templates: Iterable[Template], wall_ms: int) -> None:
        """With a small budget: fine keys for templates in use, coarse ones for the others."""
        hot_ttl_ms = self.settings.memory.hot_template_ttl_ms
        hot = [template for template in templates if template.is_hot(wall_ms, hot_ttl_ms)]
        touch_all_rows((t for t in templates if t not in hot), self.journal.pending)
        self._touch_rows(record, hot)

    def _table_key(self, entity: str) -> int:
        key = self._table_keys.get(entity)
        if key is None:
            if len(self._table_keys) >= _TABLES_REMEMBERED_MAX:
                self._table_keys.clear()
            key = self._table_keys[entity] = table_key(entity)
        return key

    # ── Templates ────────────────────────────────────────────────────────────────────────────

    def activate(
        self, specs: Sequence[TemplateSpec | None], ttl_ms: int | None, wall_ms: int
    ) -> Activation:
        """Activate templates. Call `flush(everything=True)` first, so that no bucket is derived
        half with them and half without.
        """
        outcome = self.book.activate(specs, ttl_ms, wall_ms, self.journal.generation)
        self.totals.activations += len(outcome.created)
        self._touch_retired(outcome.evicted)
        return outcome

    def retire(self, templates: Iterable[Template]) -> None:
        for template in templates:
            self.book.retire(template)
            self._touch_retired([template])

    def retire_inactive(self, wall_ms: int) -> list[Template]:
        retired = self.book.retire_inactive(wall_ms)
        self._touch_retired(retired)
        return retired

    def _touch_retired(self, templates: Sequence[Template]) -> None:
        """Waiters that relied on its fine keys have to wait on something else."""
        self.totals.retirements += len(templates)
        touch_all_rows(templates, self.journal.pending)

    # ── Waiting ──────────────────────────────────────────────────────────────────────────────

    def flush(self, now_ms: int, *, everything: bool = False) -> list[Waiter]:
        before = self.journal.generation
        woken = self.journal.flush(now_ms, everything=everything)
        self.totals.flushes += self.journal.generation - before
        return woken

    def since(self, cursor: str) -> int | None:
        """The generation of a cursor; None if it is stale."""
        if cursor == NOW:
            return self.journal.generation
        epoch, generation = parse_cursor(cursor)
        if epoch != self.journal.epoch:
            return None
        if generation > self.journal.generation:
            raise InvalidBody("this cursor is ahead of the journal: it was never given out")
        return generation

    def wait(self, interest: Interest, since: int, wall_ms: int) -> Waiter | None:
        """What to listen to, or None if something relevant happened since."""
        self.totals.waits += 1
        self.book.seen(interest.templates, wall_ms)
        listening = Listening(self.book, self.journal, since)
        waiter = listening.to(interest)
        return None if listening.missed(waiter) else waiter

    @property
    def mode(self) -> Mode:
        """The mode, as shown to users."""
        nobody = not self.book.active and not self.journal.counts[0]
        return "idle" if nobody else "fine" if self.guard.mode == "idle" else self.guard.mode


def parse_cursor(text: str) -> tuple[str, int]:
    epoch, _, digits = text.partition(":")
    well_formed = len(epoch) == 16 and all(digit in "0123456789abcdef" for digit in epoch)
    number = whole_number(digits, digits_max=15)
    if not well_formed or number is None:
        raise InvalidBody('cursor must be "now" or a cursor that this server gave out')
    return epoch, number
