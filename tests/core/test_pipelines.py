"""What pipelines are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.core.pipelines import Standing, quarantine_of, standing_after


def told(*orders: Any, name: str = "a", before: Standing | None = None) -> tuple[bool, list[Any]]:
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in orders]
    after, resets = standing_after(texts, name, before or Standing("7"))
    assert after.obeyed == (before or Standing("7")).obeyed
    return after.paused, resets


def do(what: str, pipeline: str = "a", **more: object) -> dict[str, object]:
    return {"pipeline": pipeline, "do": what, **more}


def test_the_last_of_pause_and_resume_counts() -> None:
    assert told() == (False, [])
    assert told(do("pause")) == (True, [])
    assert told(do("pause"), do("resume")) == (False, [])
    assert told(do("resume"), do("pause"), do("resume", "b")) == (True, [])
    assert told(before=Standing("7", paused=True)) == (True, [])


def test_resets_are_kept_in_order() -> None:
    orders = [do("reset"), do("reset", "b", to="latest"), do("reset", to={"s": "0_1"})]
    assert told(do("pause"), *orders) == (True, ["earliest", {"s": "0_1"}])


@pytest.mark.parametrize(
    "nonsense",
    [
        "pause",
        7,
        None,
        [do("pause")],
        {"do": "pause"},
        do("explode"),
        do("reset", to="yesterday"),
        do("reset", to={"s": 1}),
        b"\xff",
        b"{",
        b"[" * 100_000,
    ],
)
def test_what_is_no_order_is_passed_over(nonsense: Any) -> None:
    assert told(nonsense, do("pause"), nonsense) == (True, [])


def test_each_has_a_quarantine_of_its_own() -> None:
    assert quarantine_of("materialize-users") == "quarantine/materialize-users"
