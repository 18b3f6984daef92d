"""Attackers who want to stop the server for others: a coroutine for each way, forever.

Every attack was a way to stall the server, to fill its memory or to keep others out once. Some need
no key; most have one for `rogue/**`, as a tenant would; a few have that of an administrator, for
what only those can do. All of them are legal HTTP or nearly so. A round that the server cuts short
is a round: the attacker comes back.

`run` plays all of them at once until the time is over and returns what each of them saw.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import resource
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tests.attack import bodies, crowds, readers
from tests.attack.peer import Target

Attack = Callable[[Target, int], Awaitable[None]]
"""One round, and its number."""

ATTACKS: Final[tuple[Attack, ...]] = (
    bodies.hang_up_with_large_bodies,
    bodies.send_trailers,
    bodies.send_tiny_chunks,
    bodies.append_large_arrays,
    bodies.flood_with_pipelines,
    bodies.send_heads_slowly,
    bodies.ask_every_route,
    crowds.delete_fork_chains,
    crowds.leave_idle_streams,
    crowds.leave_idle_groups,
    crowds.invent_producers,
    crowds.hoard_connections,
    readers.read_nothing,
    readers.follow_for_ever,
    readers.work_longer_than_a_connection,
    readers.poison_ordered_groups,
    readers.ask_for_huge_counts,
)
BY_ADMINISTRATORS: Final[tuple[Attack, ...]] = (
    crowds.leave_idle_subscriptions,
    crowds.scrape_and_list,
)


async def _keep_at_it(attack: Attack, target: Target) -> None:
    for turn in itertools.count():
        try:
            await attack(target, turn)
            target.answers["rounds"] += 1
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            target.answers[type(error).__name__] += 1
            await asyncio.sleep(0.1)


async def run(port: int, rogue: str, admin: str, seconds: float) -> dict[str, Counter[str]]:
    """All attacks at once, each from an address of its own."""
    armed = [(attack, rogue) for attack in ATTACKS]
    armed += [(attack, admin) for attack in BY_ADMINISTRATORS]
    seen: dict[str, Counter[str]] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as crowd:
            for number, (attack, token) in enumerate(armed, 2):
                target = Target(port, token, f"127.0.0.{number}")
                seen[attack.__name__] = target.answers
                crowd.create_task(_keep_at_it(attack, target))
    return seen


def main() -> None:
    port, rogue, admin, seconds = sys.argv[1:]
    os.nice(10)
    # Writing to connections that the server has ended is what attackers do.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(json.dumps(asyncio.run(run(int(port), rogue, admin, float(seconds)))))


if __name__ == "__main__":
    main()
