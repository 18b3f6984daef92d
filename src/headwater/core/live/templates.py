"""Templates: the query shapes that a stream currently follows.

A template is a table and one to three fields that its queries compare for equality. Activating it
is idempotent and renews it. It is not retroactive, so each template knows the generation from which
its keys are reliable (`active_from`). It retires when nobody named it for its time to live, or to
make room: at a cap, the least recently seen one goes, but never one that somebody waits on or that
the same call added. If none can go, the new one is denied.

New templates are limited per minute. The same template with other encodings is a conflict, because
one key would mean two things.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from headwater.core.live.encodings import ENCODINGS, Encoder, Encoding, encoder
from headwater.core.live.keys import (
    membership_prefix,
    projected_prefix,
    sorted_fields,
    table_key,
    template_id,
    template_key,
    to_hex,
    watch_prefix,
)
from headwater.core.live.profile import TemplateSettings

TEMPLATES_PER_CALL_MAX: Final = 256
FIELDS_MAX: Final = 3
NAME_CHARS_MAX: Final = 256
_RETIRED_MAX: Final = 4096
_MINUTE_MS: Final = 60_000

Column = tuple[str, str, Encoder]
"""A field of a template: field and encoding in one string, the field, its encoder."""
Denial = Literal["invalid", "encoding_conflict", "rate_limited", "cap"]


class TemplateSpec(msgspec.Struct, frozen=True):
    """A template as requested and stored: fields sorted, each with its encoding."""

    entity: str
    fields: tuple[str, ...]
    encodings: tuple[Encoding, ...]

    @property
    def id(self) -> int:
        return template_id(self.entity, self.fields)


class TemplateRecord(msgspec.Struct, frozen=True):
    """A template as it is stored."""

    spec: TemplateSpec
    last_seen_ms: int
    ttl_ms: int


class TemplatesSaved(msgspec.Struct, frozen=True):
    """Templates became active, or were seen again."""

    stream_id: int
    templates: tuple[TemplateRecord, ...]


class TemplatesRetired(msgspec.Struct, frozen=True):
    stream_id: int
    specs: tuple[TemplateSpec, ...]


LiveMutation = TemplatesSaved | TemplatesRetired


class Template:
    """An active template, with everything precomputed that deriving its keys needs."""

    __slots__ = (
        "active_from",
        "columns",
        "id",
        "key",
        "last_seen_ms",
        "membership_prefix",
        "names",
        "projected_prefix",
        "spec",
        "stored_seen_ms",
        "table_key",
        "ttl_ms",
        "waiters",
        "watch_prefix",
    )

    def __init__(self, record: TemplateRecord, active_from: int) -> None:
        self.spec = record.spec
        self.id = record.spec.id
        self.key = template_key(self.id)
        self.table_key = table_key(self.spec.entity)
        self.names = frozenset(self.spec.fields)
        self.columns: tuple[Column, ...] = tuple(
            (f"{encoding} {name}", name, encoder(encoding))
            for name, encoding in zip(self.spec.fields, self.spec.encodings, strict=True)
        )
        # What precedes the first value, or, in a projected key, the field.
        self.watch_prefix = watch_prefix(self.id) + b"\0"
        self.membership_prefix = membership_prefix(self.id) + b"\0"
        self.projected_prefix = projected_prefix(self.id)
        self.active_from = active_from
        self.last_seen_ms = record.last_seen_ms
        self.stored_seen_ms = record.last_seen_ms
        self.ttl_ms = record.ttl_ms
        self.waiters = 0

    def record(self) -> TemplateRecord:
        return TemplateRecord(self.spec, self.last_seen_ms, self.ttl_ms)

    def is_over(self, now_ms: int) -> bool:
        return now_ms > self.last_seen_ms + self.ttl_ms

    def is_hot(self, now_ms: int, hot_ttl_ms: int) -> bool:
        return self.waiters > 0 or now_ms <= self.last_seen_ms + hot_ttl_ms


class Activation(msgspec.Struct):
    """The outcome of activating templates."""

    activated: list[Template] = []
    created: list[Template] = []
    denied: list[tuple[int, Denial]] = []
    evicted: list[Template] = []


def parse_spec(entity: object, fields: object) -> TemplateSpec | None:
    """A requested template, or None if it is invalid."""
    if not isinstance(entity, str) or not 1 <= len(entity) <= NAME_CHARS_MAX:
        return None
    if not isinstance(fields, list) or not 1 <= len(fields) <= FIELDS_MAX:
        return None
    encodings: dict[str, Encoding] = {}
    for field in fields:
        if not isinstance(field, dict) or not set(field) <= {"name", "encoding"}:
            return None
        name, encoding = field.get("name"), field.get("encoding", "string")
        if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS_MAX or name in encodings:
            return None
        if encoding not in ENCODINGS:
            return None
        encodings[name] = encoding
    names = sorted_fields(encodings)
    return TemplateSpec(entity, tuple(names), tuple(encodings[name] for name in names))


class TemplateBook:
    """The templates of one stream."""

    def __init__(self, settings: TemplateSettings) -> None:
        self.settings = settings
        self.active: dict[int, Template] = {}
        self.by_entity: dict[str, dict[int, Template]] = {}
        self.by_key: dict[int, Template] = {}
        self.table_keys: dict[int, str] = {}
        # Retired templates are remembered for a while: their waiters can wait on the table instead.
        self._retired: OrderedDict[int, int] = OrderedDict()
        self._tokens = float(settings.activation_rate_limit_per_minute)
        self._tokens_at_ms = 0

    def __iter__(self) -> Iterator[Template]:
        return iter(self.active.values())

    def of(self, entity: str) -> dict[int, Template] | None:
        return self.by_entity.get(entity)

    def retired_table(self, template: int) -> int | None:
        """The table key of a retired template, if it is remembered."""
        return self._retired.get(template)

    def not_followed(self, specs: Iterable[TemplateSpec | None]) -> list[TemplateSpec]:
        """Those that are not active in exactly this form."""
        return [
            spec
            for spec in specs
            if spec is not None
            and ((known := self.active.get(spec.id)) is None or known.spec != spec)
        ]

    # ── Activation ───────────────────────────────────────────────────────────────────────────

    def activate(
        self,
        specs: Sequence[TemplateSpec | None],
        ttl_ms: int | None,
        now_ms: int,
        active_from: int,
    ) -> Activation:
        outcome = Activation([], [], [], [])
        fresh: set[int] = set()
        ttl_ms = ttl_ms or self.settings.default_inactivity_ttl_ms
        for index, spec in enumerate(specs):
            denial = self._activate(spec, ttl_ms, now_ms, active_from, outcome, fresh)
            if denial is not None:
                outcome.denied.append((index, denial))
        return outcome

    def _activate(
        self,
        spec: TemplateSpec | None,
        ttl_ms: int,
        now_ms: int,
        active_from: int,
        outcome: Activation,
        fresh: set[int],
    ) -> Denial | None:
        if spec is None:
            return "invalid"
        known = self.active.get(spec.id)
        if known is not None:
            if known.spec != spec:
                return "encoding_conflict"
            known.last_seen_ms, known.ttl_ms = now_ms, ttl_ms
        else:
            if not self._take_token(now_ms):
                return self._deny(spec, "rate_limited")
            if not self._make_room(spec.entity, fresh, outcome):
                self._tokens += 1
                return self._deny(spec, "cap")
            known = Template(TemplateRecord(spec, now_ms, ttl_ms), active_from)
            self.add(known)
            outcome.created.append(known)
        if known.id not in fresh:
            fresh.add(known.id)
            outcome.activated.append(known)
        return None

    def _deny(self, spec: TemplateSpec, reason: Denial) -> Denial:
        # A client that waits with it anyway waits on the table.
        self._remember(spec.id, table_key(spec.entity))
        return reason

    def _take_token(self, now_ms: int) -> bool:
        rate = self.settings.activation_rate_limit_per_minute
        elapsed_ms = max(0, now_ms - self._tokens_at_ms)
        self._tokens = min(float(rate), self._tokens + elapsed_ms * rate / _MINUTE_MS)
        self._tokens_at_ms = now_ms
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _make_room(self, entity: str, fresh: set[int], outcome: Activation) -> bool:
        settings = self.settings
        siblings = self.by_entity.get(entity, {})
        crowds = (
            (siblings, settings.max_active_templates_per_entity),
            (self.active, settings.max_active_templates_per_stream),
        )
        for crowd, cap in crowds:
            if len(crowd) < cap:
                continue
            spare = [t for t in crowd.values() if not t.waiters and t.id not in fresh]
            if not spare:
                return False
            oldest = min(spare, key=lambda template: template.last_seen_ms)
            self.retire(oldest)
            outcome.evicted.append(oldest)
        return True

    # ── Joining and leaving ──────────────────────────────────────────────────────────────────

    def add(self, template: Template) -> None:
        self.active[template.id] = template
        self.by_entity.setdefault(template.spec.entity, {})[template.id] = template
        self.by_key[template.key] = template
        self.table_keys[template.table_key] = template.spec.entity
        self._retired.pop(template.id, None)

    def retire(self, template: Template) -> None:
        del self.active[template.id], self.by_key[template.key]
        siblings = self.by_entity[template.spec.entity]
        del siblings[template.id]
        if not siblings:
            del self.by_entity[template.spec.entity]
            del self.table_keys[template.table_key]
        self._remember(template.id, template.table_key)

    def _remember(self, template: int, table: int) -> None:
        self._retired[template] = table
        if len(self._retired) > _RETIRED_MAX:
            self._retired.popitem(last=False)

    def retire_inactive(self, now_ms: int) -> list[Template]:
        over = [template for template in self if template.is_over(now_ms)]
        for template in over:
            self.retire(template)
        return over

    def unsaved_sightings(self, now_ms: int) -> list[Template]:
        """Templates whose stored last sighting is too old to keep."""
        interval_ms = self.settings.last_seen_persist_interval_ms
        return [
            template
            for template in self
            if template.last_seen_ms > template.stored_seen_ms
            and now_ms - template.stored_seen_ms >= interval_ms
        ]

    def seen(self, templates: Iterable[int], now_ms: int) -> None:
        for template in templates:
            known = self.active.get(template)
            if known is not None:
                known.last_seen_ms = max(known.last_seen_ms, now_ms)


def template_json(template: Template, cursor: str) -> dict[str, object]:
    """An activated template as returned to clients."""
    return {
        "templateId": to_hex(template.id),
        "state": "active",
        "activeFromTouchOffset": cursor,
    }
