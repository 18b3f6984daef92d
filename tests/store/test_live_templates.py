"""Profiles and templates, over every engine."""

from __future__ import annotations

from headwater.core.decisions import Create, decide_profile
from headwater.core.live.profile import StateProtocol, TouchSettings
from headwater.core.live.templates import (
    TemplateRecord,
    TemplateSpec,
    TemplatesRetired,
    TemplatesSaved,
)
from headwater.core.stream import Deleted
from headwater.store.engine import Engine
from tests.support.decided import CommittedStreams

NARROW = TemplateSpec("todos", ("tenant",), ("string",))
WIDE = TemplateSpec("todos", ("a", "b", "\u00fcber"), ("int64", "bool", "datetime"))


def by_id(*records: TemplateRecord) -> list[TemplateRecord]:
    return sorted(records, key=lambda record: record.spec.id)


def test_templates_are_saved_seen_again_and_retired(
    engine: Engine, streams: CommittedStreams
) -> None:
    streams.create(Create("s"), 0)
    narrow, wide = TemplateRecord(NARROW, 5, 60_000), TemplateRecord(WIDE, 6, 1)
    engine.commit([TemplatesSaved(1, (narrow,)), TemplatesSaved(1, (wide,))])
    assert engine.templates.of_stream(1) == by_id(narrow, wide)
    seen = TemplateRecord(NARROW, 50, 70_000)
    engine.commit([TemplatesSaved(1, (seen,)), TemplatesRetired(1, (WIDE, WIDE))])
    assert engine.templates.of_stream(1) == [seen]
    assert engine.templates.of_stream(2) == []


def test_templates_go_with_their_stream(engine: Engine, streams: CommittedStreams) -> None:
    streams.create(Create("s"), 0)
    engine.commit([TemplatesSaved(1, (TemplateRecord(NARROW, 5, 6),))])
    engine.commit([Deleted(1, 7), TemplatesSaved(1, (TemplateRecord(WIDE, 5, 6),))])
    while engine.reap(10):
        pass
    assert engine.templates.of_stream(1) == []


def test_a_profile_is_kept(engine: Engine, streams: CommittedStreams) -> None:
    streams.create(Create("s", "application/json"), 0)
    found = engine.streams.load("s")
    assert found is not None
    profile = StateProtocol(TouchSettings(enabled=True, coarse_interval_ms=7))
    engine.commit(decide_profile(found.state, profile, 9).mutations)
    found = engine.streams.load("s")
    assert found is not None
    assert found.state.config.profile == profile
    assert decide_profile(found.state, profile, 10).mutations == ()
