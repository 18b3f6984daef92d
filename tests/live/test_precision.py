"""Where rows are known before and after, only those wake whose rows changed."""

from __future__ import annotations

import random

import pytest

from headwater.core.live.profile import TouchSettings
from tests.live.world import COLUMNS, IDS, SHAPES, TABLES, VALUES, Kind, Query, Row, World
from tests.support import seeds

FINE: tuple[Kind, ...] = ("watch", "membership", "projected")


def calm_run(seed: int, steps: int) -> World:
    """Every change comes with the row as it was, and every template is active from the start."""
    rng = random.Random(seed)
    world = World(TouchSettings(enabled=True))
    for table in TABLES:
        world.activate(table, SHAPES, ttl_ms=3_600_000)

    def draw(name: str) -> object:
        return rng.choice([value for value in VALUES[name] if value is not None])

    for _ in range(steps):
        world.now_ms += 10
        table, key = rng.choice(TABLES), rng.choice(IDS)
        row: Row | None = {name: draw(name) for name in COLUMNS}
        if rng.random() < 0.2:
            row = None
        if row != world.rows.get((table, key)):
            world.change(table, key, row, "with")
        world.derive(1)
        world.flush()
        while len(world.holders) < 30:
            shape = rng.choice(SHAPES)
            values = tuple(draw(name) for name in shape)
            named = rng.random() < 0.9
            world.hold(Query(table, rng.choice(FINE), shape, values, names_template=named))
            world.wait(len(world.holders) - 1)
    world.check()
    world.database.close()
    return world


@pytest.mark.parametrize("seed", seeds.several(4))
def test_no_wake_is_false_when_rows_are_known(seed: int) -> None:
    world = calm_run(seed, steps=400)
    named = [f"false wakes, {kind}, named=True" for kind in FINE]
    assert world.counts["right wakes"] > 100
    assert [world.counts[name] for name in named] == [0, 0, 0]
