"""Nodes with their history in S3 are killed at every step of it, started again and taken over.

Every message that was acknowledged is read once and at its offset, whatever is named is in object
storage, and what nobody needs goes. The file that a node was killed over, its announcement, its
upload and what of it was recorded are found by whoever comes next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

import httpx
import pytest

from headwater.store.engine import Problem
from headwater.store.history.object_storage import Remote
from headwater.store.postgresql.inspection import verify_address
from tests.crash.conftest import USUAL_SEED
from tests.crash.history_node import VARIABLE
from tests.support.cluster import PATIENCE_S, SHORT_LEASE_MS, until
from tests.support.object_storage import ObjectStorage
from tests.support.postgresql import EngineDatabase
from tests.support.server import HOST, ServerProcess, free_port

PATHS: Final = tuple(f"s{number}" for number in range(6))
TEXT: Final = {"Content-Type": "text/plain"}
AGE: Final = "UPDATE segments SET unused_at = 1 WHERE unused_at IS NOT NULL"
"""As if what nobody needs had been there for long."""
KILLED: Final = -9

AGAIN: Final = (
    *("announced", "moved", "before commit", "committed"),
    *("created", "renamed", "verified", "upload begun", "uploaded", "upload verified"),
    *("before moving", "finished"),
)
"""Where a node is killed that is alone, and then is started again."""
TAKEN_OVER: Final = (
    ("committed", None),
    ("before commit", None),
    ("uploaded", "adopted"),
    ("upload verified", "removed"),
    ("verified", None),
    ("before announcing", None),
    ("announced", "before removing"),
    ("upload begun", None),
    ("finished", None),
    ("before moving", None),
    ("moved", "before moving"),
)
"""Where a node is killed, and where the one that takes over."""
USUAL: Final = 4
"""So many of them without a seed: every start of a node costs a second."""

R = TypeVar("R")


class Told(NamedTuple):
    """A message that was acknowledged, and between which offsets it lies."""

    message: bytes
    start: str
    end: str


class Node(ServerProcess):
    def __init__(self, directory: Path, *arguments: str, env: dict[str, str]) -> None:
        port = free_port()
        self._fatal = directory / "fatal"
        self.files = directory / "node" / "segments"
        super().__init__(
            *("--data", str(directory), "--hot-bytes-per-stream-max", "0"),
            *("--chunk-bytes-max", "1000", "--seal-after-bytes", "400", "--seal-after-ms", "1000"),
            *(one.replace("ADDRESS", f"http://{HOST}:{port}") for one in arguments),
            env={**env, VARIABLE: str(self._fatal)},
            port=port,
            module="tests.crash.history_node",
        )

    def kill_at(self, step: str, times: int) -> None:
        written = self._fatal.with_suffix(".new")
        written.write_text(f"{step} {times}")
        written.replace(self._fatal)

    def bury(self) -> None:
        """Wait for the end that was to come, and let the next life be a longer one."""
        self._fatal.unlink()
        status = self.kill()
        assert status == KILLED, self.stderr[-3000:]


class World:
    """Nodes, what was acknowledged, and where everything is."""

    def __init__(
        self,
        database: EngineDatabase,
        storage: ObjectStorage,
        nodes: list[Node],
        client: httpx.Client,
        rng: Random,
    ) -> None:
        self.database = database
        self.nodes = nodes
        self._rng = rng
        self._remote = Remote(storage.url)
        self._client = client
        self._told: dict[str, list[Told]] = {path: [] for path in PATHS}
        self._starts: dict[str, str] = {}

    def _ask(self, method: str, path: str, **request: Any) -> httpx.Response | None:
        """What any node answers; None if none does, or cannot at the moment."""
        running = [node for node in self.nodes if node.is_running]
        if not running:
            return None
        url = self._rng.choice(running).stream_url(path)
        try:
            answer = self._client.request(method, url, **request)
        except httpx.TransportError:
            return None
        return None if answer.status_code == 503 else answer

    def _insist(self, method: str, path: str, **request: Any) -> httpx.Response:
        answers: list[httpx.Response] = []

        def is_answered() -> bool:
            answer = self._ask(method, path, **request)
            answers.extend([answer] if answer else [])
            return answer is not None

        until(is_answered)
        assert answers[0].is_success, answers[0].text
        return answers[0]

    def owner(self) -> Node:
        """The node that has the first stream, and so something to seal."""
        sql = (
            "SELECT n.address FROM streams s JOIN shards h ON h.id = s.shard"
            f" JOIN nodes n ON n.id = h.node_id WHERE s.path = '{PATHS[0]}'"
        )
        found: list[str] = []

        def is_found() -> bool:
            found.extend(address for (address,) in self.database.query(sql))
            return bool(found)

        until(is_found)
        return next(node for node in self.nodes if node.url == found[0])

    # ── Writing ──────────────────────────────────────────────────────────────────────────────

    def create(self) -> None:
        for path in PATHS:
            answer = self._insist("PUT", path, headers=TEXT)
            self._starts[path] = answer.headers["Stream-Next-Offset"]

    def append(self, path: str) -> bool:
        """Say the next thing, or what was not acknowledged again."""
        told = self._told[path]
        message = b"%s says %d;" % (path.encode(), len(told)) * 3
        stamp = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(len(told))}
        answer = self._ask("POST", path, headers={**TEXT, **stamp}, content=message)
        if answer is None:
            return False
        assert answer.status_code in (200, 204), answer.text
        start = told[-1].end if told else self._starts[path]
        told.append(Told(message, start, answer.headers["Stream-Next-Offset"]))
        return True

    def append_until_killed(self, node: Node) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while node.is_running:
            assert time.monotonic() < deadline, f"never killed\n{node.stderr[-3000:]}"
            for path in PATHS:
                self.append(path)
        node.bury()

    # ── Checking ─────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Everything is readable, and what has to be in object storage is there."""
        for path in PATHS:
            until(lambda path=path: self.append(path))  # type: ignore[misc]
        self.check_objects()
        for path, told in self._told.items():
            assert self._read(path, self._starts[path]) == b"".join(one.message for one in told)
            for one in [*self._rng.sample(told, min(3, len(told))), *told[-3:]]:
                answer = self._insist("GET", path, params={"offset": one.start})
                assert answer.content.startswith(one.message)
        self.check_objects()

    def _read(self, path: str, offset: str) -> bytes:
        read = bytearray()
        while True:
            answer = self._insist("GET", path, params={"offset": offset})
            read += answer.content
            offset = answer.headers["Stream-Next-Offset"]
            if answer.headers.get("Stream-Up-To-Date") == "true":
                return bytes(read)

    def check_objects(self) -> None:
        named = self._names("WHERE EXISTS (SELECT 1 FROM extents WHERE segment_id = segments.id)")
        assert named <= set(self._remote.segments())

    def _names(self, condition: str = "") -> set[str]:
        return {name for (name,) in self.database.query(f"SELECT name FROM segments {condition}")}

    def check_swept(self) -> None:
        """In time everything is sealed, and nothing is left that nobody needs."""
        until(lambda: self.database.query("SELECT count(*) FROM ops") == [(0,)])
        making = "SELECT count(*) FROM segments WHERE maker IS NOT NULL"
        until(lambda: self.database.query(making) == [(0,)])

        def is_swept() -> bool:
            self.database.query(AGE)
            unused = self._names("WHERE unused_at IS NOT NULL")
            return not unused and self._names() == set(self._remote.segments())

        until(is_swept)
        assert [one for one in verify_address(self.database.url) if isinstance(one, Problem)] == []
        until(lambda: not any([*node.files.glob("*")] for node in self.nodes))


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with ObjectStorage() as storage, pytest.MonkeyPatch.context() as patch:
        for name, value in storage.environment.items():
            patch.setenv(name, value)
        yield storage


def world_of(
    nodes: int,
    database: EngineDatabase,
    storage: ObjectStorage,
    directory: Path,
    rng: Random,
    stack: ExitStack,
) -> World:
    # One prefix belongs to one database.
    storage.url = f"s3://history/of/{database.name}-{os.urandom(4).hex()}"
    shared = ("--engine", database.url, "--history-store", storage.url, "--log-level", "warning")
    lease_ms, together = (1_000, ()) if nodes == 1 else (SHORT_LEASE_MS, ("--advertise", "ADDRESS"))
    place = ("--engine-lease-ms", str(lease_ms), *together)
    world = World(
        database,
        storage,
        [
            Node(directory / str(number), *shared, *place, env=storage.environment)
            for number in range(nodes)
        ],
        stack.enter_context(httpx.Client(timeout=PATIENCE_S)),
        rng,
    )
    for node in world.nodes:
        stack.enter_context(node)
    world.create()
    return world


def chosen(steps: Sequence[R], seed: int) -> Sequence[R]:
    """In another order with every seed, and some of them if none is named."""
    return steps[:USUAL] if seed == USUAL_SEED else Random(seed).sample(steps, len(steps))


@pytest.mark.crash
@pytest.mark.slow
def test_a_node_that_is_killed_and_started_again(
    database: EngineDatabase, storage: ObjectStorage, tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    with ExitStack() as stack:
        world = world_of(1, database, storage, tmp_path, rng, stack)
        (node,) = world.nodes
        for step in chosen(AGAIN, seed):
            times = rng.randint(1, 3)
            print(f"killed at {step}, {times}")
            node.kill_at(step, times)
            world.append_until_killed(node)
            world.check_objects()
            node.start()
            world.check()
        world.check_swept()
        world.check()


@pytest.mark.crash
@pytest.mark.slow
def test_a_node_that_is_killed_and_taken_over(
    database: EngineDatabase, storage: ObjectStorage, tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    with ExitStack() as stack:
        world = world_of(2, database, storage, tmp_path, rng, stack)
        for step, then in chosen(TAKEN_OVER, seed):
            times = rng.randint(1, 3)
            print(f"killed at {step}, {times}; the other at {then}")
            victim = world.owner()
            (other,) = (node for node in world.nodes if node is not victim)
            if then is not None:
                other.kill_at(then, 1)
            victim.kill_at(step, times)
            world.append_until_killed(victim)
            world.check_objects()
            if then is not None:
                until(lambda other=other: _is_gone(world, other))  # type: ignore[misc]
                other.bury()
                world.check_objects()
                other.start()
            world.check()
            victim.start()
            world.check()
        world.check_swept()
        world.check()


def _is_gone(world: World, node: Node) -> bool:
    world.database.query(AGE)
    return not node.is_running
