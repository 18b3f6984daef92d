"""What engines keep of subscriptions: both the same, and across a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.core.lineage import Inherited, Lineage
from headwater.core.stream import Appended, Created, Deleted, SoftDeleted, StreamConfig
from headwater.core.subscriptions.state import (
    NO_WAKE,
    LinksMarked,
    LinksRemoved,
    Mark,
    Phase,
    SecretStored,
    StreamTail,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionRecord,
    Wake,
    WakeChanged,
)
from headwater.store.engine import Engine
from headwater.store.sqlite.engine import SqliteEngine
from tests.subscriptions.model import pull_config, webhook_config
from tests.support.engines import running

NOW = 1_700_000_000_000


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with running(request.param, tmp_path / "data") as engine:
        yield engine
        engine.close()


def created(number: int, name: str, *marks: Mark) -> SubscriptionCreated:
    config = webhook_config(streams=("named",), description="what for")
    return SubscriptionCreated(SubscriptionRecord(number, name, NOW, "http://h"), config, marks)


def test_a_subscription_comes_back_as_it_was(engine: Engine) -> None:
    first = created(1, "b", Mark("z", True, 0, -1), Mark("a", False, 7, 10))
    pull = SubscriptionRecord(2, "a", NOW, "http://h")
    engine.commit([first, SubscriptionCreated(pull, pull_config(), ())])
    found = engine.subscriptions.load()
    assert [each.record for each in found] == [pull, first.record]
    assert [each.config for each in found] == [pull_config(), first.config]
    assert [each.wake for each in found] == [NO_WAKE, NO_WAKE]
    assert found[1].marks == [Mark("a", False, 7, 10), Mark("z", True, 0, -1)]
    assert engine.subscriptions.load(1) == [found[1]]
    assert engine.subscriptions.load(3) == []


def test_wakes_and_marks_are_replaced(engine: Engine) -> None:
    wake = Wake(9, Phase.LEASED, "w_1", NOW + 5, 3, "ann")
    engine.commit([created(1, "s", Mark("a", False, 7, 10))])
    engine.commit(
        [
            WakeChanged(1, Wake(8, Phase.DUE, "w_0", NOW)),
            WakeChanged(1, wake),
            LinksMarked(1, (Mark("a", True, 8, 20), Mark("b", True, 0, -1))),
            LinksMarked(1, (Mark("a", True, 8, 30),)),
            LinksRemoved(1, ("b", "unknown")),
        ]
    )
    (found,) = engine.subscriptions.load()
    assert found.wake == wake
    assert found.marks == [Mark("a", True, 8, 30)]


def test_what_is_deleted_is_gone_and_its_number_is_not_given_again(engine: Engine) -> None:
    assert engine.subscriptions.next_id() == 1
    engine.commit([created(1, "s", Mark("a", True, 0, -1))])
    engine.commit([SubscriptionDeleted(1), WakeChanged(1, NO_WAKE), LinksRemoved(1, ("a",))])
    assert engine.subscriptions.load() == []
    assert engine.subscriptions.next_id() == 2
    engine.commit([created(2, "s")])
    assert [each.marks for each in engine.subscriptions.load()] == [[]]


def test_secrets_are_kept_in_order(engine: Engine) -> None:
    secrets = [SecretStored(kind, bytes([n]) * 32, NOW) for n, kind in enumerate("baa")]
    engine.commit(secrets[:1])
    engine.commit(secrets[1:])
    assert engine.subscriptions.secrets() == secrets


def stream(number: int, path: str, *inherited: Inherited) -> Created:
    return Created(
        StreamConfig(number, path, "text/plain", NOW, lineage=Lineage(number, inherited))
    )


def test_tails_of_the_streams_that_are_there(engine: Engine) -> None:
    engine.commit(
        [
            stream(1, "in/a"),
            Appended(1, 0, b"hello", 0, 1, NOW),
            Appended(1, 5, b"again", 1, 1, NOW),
            stream(2, "in/empty"),
            stream(3, "in/fork", Inherited(1, 5)),
            stream(4, "in/gone"),
            Deleted(4, NOW),
            stream(5, "in/soft"),
            SoftDeleted(5, NOW),
            stream(6, "inn"),
        ]
    )
    fork = Lineage(3, (Inherited(1, 5),))
    expected = [
        StreamTail("in/a", Lineage(1), 10),
        StreamTail("in/empty", Lineage(2), 0),
        StreamTail("in/fork", fork, 5),
    ]
    assert engine.streams.tails("in/", "", 10) == expected
    assert engine.streams.tails("in/", "", 2) == expected[:2]
    assert engine.streams.tails("in/", "in/empty", 2) == expected[2:]
    assert [tail.path for tail in engine.streams.tails("in", "", 10)][-1] == "inn"
    assert engine.streams.tails("x", "", 10) == []


def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path / "data")
    wake = Wake(4, Phase.DUE, "w_9", NOW + 60_000, 7)
    engine.commit([created(1, "s", Mark("a", True, 7, 10)), SecretStored("k", b"v" * 32, NOW)])
    engine.commit([WakeChanged(1, wake), created(2, "t"), SubscriptionDeleted(2)])
    before = (
        engine.subscriptions.load(),
        engine.subscriptions.secrets(),
        engine.subscriptions.next_id(),
    )
    engine.close()
    engine = SqliteEngine(tmp_path / "data")
    assert (
        engine.subscriptions.load(),
        engine.subscriptions.secrets(),
        engine.subscriptions.next_id(),
    ) == before
    engine.close()
