"""No missed wake, whatever happens: hypothesis looks for a way, and a long seeded run too."""

from __future__ import annotations

import argparse
import random
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headwater.core.live.profile import MemorySettings, TemplateSettings, TouchSettings
from tests.live.world import COLUMNS, IDS, SHAPES, TABLES, VALUES, Kind, Query, Row, World
from tests.support import seeds

KINDS: tuple[Kind, ...] = ("table", "template", "watch", "membership", "projected")
BEFORE = ("with", "with", "with", "without", "partial", "upsert", "null")


def profile(rng: random.Random) -> tuple[TouchSettings, int]:
    """Settings that force overflows, evictions, filters and every mode now and then."""
    memory = MemorySettings(
        filter_pow2=rng.choice([4, 8, 22]),
        k=rng.choice([1, 4]),
        pending_max_keys=rng.choice([2, 5, 100_000, 100_000]),
        key_index_max_keys=rng.choice([1, 2, 32]),
        hot_template_ttl_ms=rng.choice([1, 10_000]),
    )
    templates = TemplateSettings(
        max_active_templates_per_entity=rng.choice([1, 2, 256]),
        max_active_templates_per_stream=rng.choice([1, 3, 2048]),
        activation_rate_limit_per_minute=rng.choice([2, 100, 100_000]),
    )
    touch = TouchSettings(
        enabled=True,
        coarse_interval_ms=rng.choice([1, 100]),
        lag_degrade_fine_touches_at_source_offsets=rng.choice([3, 5_000]),
        lag_recover_fine_touches_at_source_offsets=rng.choice([0, 2]),
        fine_touch_budget_per_batch=rng.choice([0, 1, 4, 2_000, 2_000]),
        fine_tokens_per_second=rng.choice([10, 200_000]),
        fine_burst_tokens=rng.choice([5, 400_000]),
        lag_reserved_fine_touch_budget_per_batch=rng.choice([0, 2, 200]),
        memory=memory,
        templates=templates,
    )
    return touch, rng.choice([1, 8, 65_536])


rows = st.fixed_dictionaries({name: st.sampled_from(VALUES[name]) for name in COLUMNS})
queries = st.sampled_from(SHAPES).flatmap(
    lambda shape: st.builds(
        Query,
        st.sampled_from(TABLES),
        st.sampled_from(KINDS),
        st.just(shape),
        st.tuples(*[st.sampled_from(VALUES[name]) for name in shape]),
        names_template=st.booleans(),
        by_id=st.booleans(),
        coarse=st.booleans(),
    )
)
index = st.integers(0, 100)


class LiveMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.world = World(*profile(random.Random(seed)))

    @rule(table=st.sampled_from(TABLES), key=st.sampled_from(IDS), row=rows | st.none())
    def change(self, table: str, key: str, row: Row | None) -> None:
        self.world.change(table, key, row, "with")

    @rule(
        table=st.sampled_from(TABLES),
        key=st.sampled_from(IDS),
        row=rows | st.none(),
        before=st.sampled_from(BEFORE),
    )
    def change_carelessly(self, table: str, key: str, row: Row | None, before: str) -> None:
        if before == "null" and (table, key) in self.world.rows:
            before = "without"
        self.world.change(table, key, row, before)

    @rule(query=queries)
    def hold(self, query: Query) -> None:
        if query.by_id and query.keys() is None:
            return
        self.world.hold(query)

    @precondition(lambda self: self.world.holders)
    @rule(at=index)
    def wait(self, at: int) -> None:
        self.world.wait(at)

    @precondition(lambda self: self.world.holders)
    @rule(at=index)
    def time_out(self, at: int) -> None:
        # Only what is flushed is behind the cursor that a time-out gives.
        self.world.time_out(at)

    @rule(table=st.sampled_from(TABLES), shapes=st.lists(st.sampled_from(SHAPES), min_size=1))
    def activate(self, table: str, shapes: list[tuple[str, ...]]) -> None:
        self.world.activate(table, shapes, ttl_ms=1_000)

    @rule(at_most=st.integers(1, 8), lag=st.sampled_from([0, 0, 3, 60_000]))
    def derive(self, at_most: int, lag: int) -> None:
        self.world.derive(at_most, lag)

    @rule(everything=st.booleans())
    def flush(self, everything: bool) -> None:
        self.world.flush(everything=everything)

    @rule(ms=st.sampled_from([1, 50, 150, 2_000]))
    def pass_time(self, ms: int) -> None:
        self.world.now_ms += ms

    @rule()
    def collect(self) -> None:
        self.world.collect()

    @rule()
    def reset(self) -> None:
        self.world.reset()

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @rule()
    def check(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.check()
            self.world.database.close()


TestLiveMachine = pytest.mark.slow(LiveMachine.TestCase)
TestLiveMachine.settings = hypothesis_settings(
    max_examples=150, stateful_step_count=60, deadline=None
)


def long_run(seed: int, steps: int) -> World:
    """As above for many steps in one world, most of them as an application would take them."""
    rng = random.Random(seed)
    world = World(*profile(rng))

    def draw_row() -> Row:
        return {name: rng.choice(VALUES[name]) for name in COLUMNS}

    def draw_query() -> Query:
        shape = rng.choice(SHAPES)
        values: tuple[Any, ...] = tuple(rng.choice(VALUES[name]) for name in shape)
        return Query(
            rng.choice(TABLES),
            rng.choice(KINDS),
            shape,
            values,
            names_template=rng.random() < 0.8,
            coarse=rng.random() < 0.1,
        )

    for step in range(steps):
        world.now_ms += rng.choice([0, 1, 5, 40])
        match rng.randrange(16):
            case 0 | 1 | 2:
                row = draw_row() if rng.random() < 0.8 else None
                known = (table := rng.choice(TABLES), key := rng.choice(IDS)) in world.rows
                before = rng.choice(BEFORE) if rng.random() < 0.2 else "with"
                world.change(table, key, row, "without" if before == "null" and known else before)
            case 3 | 4 | 5 | 6:
                if len(world.holders) < 40:
                    world.hold(draw_query())
            case 7 | 8 | 9 | 10 | 11:
                if world.holders:
                    world.wait(rng.randrange(len(world.holders)))
            case 12:
                world.activate(rng.choice(TABLES), rng.sample(SHAPES, 2), ttl_ms=60_000)
            case 13:
                world.derive(rng.choice([3, 1_000]), rng.choice([0] * 8 + [3, 60_000]))
            case 14:
                world.flush(everything=rng.random() < 0.3)
            case 15:
                _rarely(world, rng, step)
    world.check()
    world.database.close()
    return world


def _rarely(world: World, rng: random.Random, step: int) -> None:
    if world.holders:
        world.time_out(rng.randrange(len(world.holders)))
    if step % 3 == 0:
        world.check()
    match rng.randrange(20):
        case 0:
            world.crash()
        case 1:
            world.reset()
        case 2:
            world.now_ms += 70_000
            world.collect()


@pytest.mark.parametrize("seed", seeds.several(12))
def test_a_long_run_misses_nothing(seed: int) -> None:
    world = long_run(seed, steps=4_000)
    assert world.counts["changes"] > 500
    assert world.counts["right wakes"] > 30


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A long run, and how many wakes were false.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--steps", type=int, default=100_000)
    chosen = parser.parse_args()
    for name, number in sorted(long_run(chosen.seed, chosen.steps).counts.items()):
        print(f"{number:8}  {name}")
