"""What engines keep of a group: whatever is committed together, and in however many batches."""

from __future__ import annotations

from random import Random

import pytest

from headwater.core.decisions import Create
from headwater.core.groups import decisions
from headwater.core.groups.commands import Ack, Command, Extend, Nack, Reject
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.decisions import Read
from headwater.core.groups.mutations import GroupCreated, GroupMutation, evolve, is_stored
from headwater.core.groups.state import GroupRecord, GroupState, MessageRef, format_receipt
from headwater.core.groups.turns import Taker
from headwater.store.engine import Engine
from tests.support import seeds
from tests.support.decided import CommittedStreams

BATCHES = 40
START = MessageRef(0, 0, 0)


class Life:
    """A group to which anything may happen, and what of that is not committed yet."""

    def __init__(self, choices: Random) -> None:
        self._choices = choices
        self._now_ms = 0
        record = GroupRecord(1, 1, "g", 0)
        config = GroupConfig(ack_timeout_ms=1_000, max_deliveries=3)
        self.state = GroupState(record, config, START)
        self.uncommitted: list[GroupMutation] = [GroupCreated(record, config, START)]

    def live(self) -> None:
        self._now_ms += self._choices.randrange(200)
        acts = (self._take, self._take, self._answer, self._answer, self._expire, self._seek)
        (act,) = self._choices.choices(acts, (4, 4, 4, 4, 2, 1))
        for mutation in act():
            evolve(self.state, mutation)
            if is_stored(mutation):
                self.uncommitted.append(mutation)

    def _take(self) -> list[GroupMutation]:
        number = self.state.cursor.number
        again = {m.ref.number: 1 for m in self.state.due(self._now_ms, 2)}
        # Fresh ones alone, or together with those that come back.
        fresh = [MessageRef(n, n, 0) for n in range(number, number + self._choices.randrange(4))]
        end = number + len(fresh)
        read = Read(again, fresh, [1] * len(fresh), [], MessageRef(end, end, 0))
        takers = [Taker(name, self._choices.randrange(3), 100) for name in ("ann", "ben")]
        token = self._choices.getrandbits(40)
        decided = decisions.decide_hand_out(self.state, takers, read, self._now_ms, token)
        return [*decided.mutations]

    def _answer(self) -> list[GroupMutation]:
        held = [*self.state.outstanding.values()]
        some = self._choices.sample(held, self._choices.randint(0, len(held)))
        receipts = [format_receipt(1, message) for message in some]
        commands: list[Command] = [Ack(receipts), Nack(receipts, 300), Extend(receipts, 900)]
        (command,) = self._choices.choices([*commands, Reject(receipts)], (6, 2, 2, 1))
        return [*decisions.decide(self.state, command, self._now_ms).mutations]

    def _expire(self) -> list[GroupMutation]:
        return [*decisions.decide_expire(self.state, self._now_ms)]

    def _seek(self) -> list[GroupMutation]:
        number = self._choices.randrange(self.state.cursor.number + 1)
        return [*decisions.decide_seek(self.state, MessageRef(number, number, 0))]


@pytest.mark.parametrize("seed", seeds.several(4))
def test_a_group_is_stored_as_it_is(engine: Engine, streams: CommittedStreams, seed: int) -> None:
    streams.create(Create("s", "application/json"), 0)
    choices = Random(seed)
    life = Life(choices)
    for _ in range(BATCHES):
        for _ in range(choices.randrange(1, 8)):
            life.live()
        engine.commit(life.uncommitted)
        life.uncommitted = []
        (stored,) = engine.groups.of_stream(1)
        assert (stored.cursor, stored.outstanding) == (life.state.cursor, life.state.outstanding)
    assert life.state.cursor.number or life.state.outstanding
