"""What a wait has to listen to, so that it cannot miss a change.

The requested keys are not enough: when precision is reduced, or a template retires, the fine keys
of its rows are no longer touched. So a wait on fine keys also listens

- to the key of each template it uses (`templateIdsUsed`) or that one of its keys is known to belong
  to: that key is touched instead of fine keys;
- to the table, if the template is not active, or no longer, or the key is a template's own;
- to every change of the stream, if the server cannot tell what a key belongs to.

A template knows nothing of changes before it was active, so a cursor from before that is checked
against the table. A wait that declares a template which is denied, or active with other encodings,
listens to the table: its fine keys are not the ones that changes touch. A coarse wait listens to
its keys as they are and to the tables of its templates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from headwater.core.live import touches
from headwater.core.live.guard import Mode
from headwater.core.live.journal import Journal, Waiter
from headwater.core.live.keys import key_id, parse_key, table_key
from headwater.core.live.templates import Template, TemplateBook, TemplateSpec

InterestMode = Literal["fine", "coarse"]
WaitKind = Literal["fineKey", "templateKey", "tableKey"]


class Interest(msgspec.Struct, frozen=True):
    """What a request asks to wait for."""

    keys: tuple[int, ...]
    ids: tuple[int, ...]
    templates: tuple[int, ...] = ()
    mode: InterestMode = "fine"

    @classmethod
    def of(
        cls,
        keys: Iterable[str],
        ids: Iterable[int],
        templates: Iterable[int] = (),
        mode: InterestMode = "fine",
    ) -> Interest:
        texts = [*keys]
        parsed = [(text, parse_key(text)) for text in texts]
        return cls(
            tuple([key for _, key in parsed if key is not None]),
            # A text that is not a key can only match by its id.
            (*ids, *[key_id(text) for text, key in parsed if key is None]),
            tuple(templates),
            mode,
        )

    def with_tables_of(self, specs: Iterable[TemplateSpec]) -> Interest:
        """The same, and the tables of these templates."""
        tables = [table_key(spec.entity) for spec in specs]
        return msgspec.structs.replace(self, keys=(*self.keys, *tables)) if tables else self

    def kind(self, mode: Mode) -> WaitKind:
        """What the client is told about how its wait is served."""
        if self.mode == "coarse" or (mode == "coarseOnly" and self.templates):
            return "tableKey"
        if mode == "restricted" and self.templates:
            return "templateKey"
        return "fineKey"


class Listening:
    """Builds a waiter: what it listens to from now on, and what it must not have missed."""

    def __init__(self, book: TemplateBook, journal: Journal, since: int) -> None:
        self._book = book
        self._journal = journal
        self._since = since
        self._keys: set[int] = set()
        self._templates: dict[int, Template] = {}
        self._everything = False
        self._tables_before: set[int] = set()

    def to(self, interest: Interest) -> Waiter:
        self._keys.update(interest.keys)
        for template in interest.templates:
            self._use(template, coarse=interest.mode == "coarse")
        if interest.mode == "fine":
            self._place({*interest.keys}, covered=bool(interest.templates))
            if interest.ids and not interest.templates:
                self._everything = True
        return Waiter(
            frozenset(self._keys),
            frozenset(interest.ids),
            everything=self._everything,
            templates=tuple(self._templates.values()),
        )

    def missed(self, waiter: Waiter) -> bool:
        """Whether something that the waiter listens to happened since its cursor."""
        journal = self._journal
        return journal.touched_since(self._since, waiter) or journal.history.touched_since(
            self._since, self._tables_before
        )

    def _use(self, template_id: int, *, coarse: bool = False) -> None:
        template = self._book.active.get(template_id)
        if template is not None:
            self._templates[template_id] = template
            self._keys.add(template.table_key if coarse else template.key)
            if self._since < template.active_from:
                self._tables_before.add(template.table_key)
            return
        table = self._book.retired_table(template_id)
        if table is None:
            self._everything = True
        else:
            self._keys.add(table)

    def _place(self, keys: set[int], *, covered: bool) -> None:
        """Find out what keys stand for. `covered` if the request named their templates."""
        by_key, tables = self._book.by_key, self._book.table_keys
        self._keys.update([by_key[key].table_key for key in keys if key in by_key])
        fine = {key for key in keys if key not in by_key and key not in tables}
        known = self._journal.history.templates_of(fine)
        if len(known) < len(fine) and not covered:
            self._everything = True
        for template_id in {*known.values()} - {touches.TABLE}:
            if template_id == touches.TEMPLATE:
                # It has retired: nothing touches its key any more.
                self._everything = True
            else:
                self._use(template_id)
