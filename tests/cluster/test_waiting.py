"""Requests that wait for their turn when their stream goes to another node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.core.cluster import ClusterSeen
from headwater.core.content_types import JSON
from headwater.core.decisions import Append, Create
from headwater.core.errors import OwnedElsewhere
from headwater.core.limits import Limits
from headwater.core.producers import ProducerStamp
from headwater.http.messages import Answer, Deferred, Request, Response
from headwater.http.nodes.forwarding import Forwarding
from headwater.service.log import Log
from headwater.service.reordering import Waiting
from headwater.store.memory.engine import MemoryEngine

PATIENCE_S = 60
SHARD = 3


async def test_they_find_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine()
    log = await Log.start(engine, Limits(producer_wait_ms=3_600_000))
    await log.create(Create("s", JSON))
    entry = await log.entry("s")
    waiting = log.append_to(entry, Append(b"[1]", JSON, producer=ProducerStamp("p", 0, 1)))
    assert isinstance(waiting, Waiting)
    assert not waiting.done()

    def load(path: str) -> None:
        raise OwnedElsewhere(SHARD)

    monkeypatch.setattr(engine.streams, "load", load)
    await log.release({entry.shard})
    with pytest.raises(OwnedElsewhere):
        await asyncio.wait_for(waiting, PATIENCE_S)
    await log.stop()


class App:
    """Answers with what it was given, and remembers what it is told."""

    documents_root = b"/v1/yjs/"
    elsewhere: Any = None

    def __init__(self, reply: Deferred) -> None:
        self._reply = reply

    def answer(self, request: Request) -> Deferred:
        return self._reply


def forwarding_of(reply: Deferred) -> tuple[Forwarding, App]:
    app = App(reply)
    node = SimpleNamespace(id=1, lease_s=3.0, shards=frozenset(), seen=ClusterSeen())
    return Forwarding(cast("Any", app), cast("Any", node), b"secret", 1_000), app


async def test_they_are_sent_after_their_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting()
    forwarding, _ = forwarding_of(Deferred(waiting, lambda _: Response(204)))
    forwarded: list[int] = []

    async def forward(request: Request, shard: int) -> Answer:
        forwarded.append(shard)
        return Response(200)

    monkeypatch.setattr(forwarding, "forward", forward)
    reply = forwarding(Request("POST", b"/v1/stream/s", b"", {}))
    assert isinstance(reply, Awaitable)
    waiting.settle(OwnedElsewhere(SHARD))
    answer = await reply
    assert isinstance(answer, Response)
    assert answer.status == 200
    assert forwarded == [SHARD]


@pytest.mark.parametrize(
    "path, is_known",
    [
        (b"/v1/stream/a/b", True),
        (b"/v1/streams/a/b", True),
        (b"/v1/yjs/notes/docs/a", True),
        (b"/v1/proxy/abc", True),
        (b"/v1/stream/__ds/subscriptions/a", False),
        (b"/v1/transaction", False),
    ],
)
async def test_the_owner_of_what_was_passed_on_is_remembered(path: bytes, is_known: bool) -> None:
    """So that the next request for it needs no look into the database."""
    forwarding, app = forwarding_of(Deferred(Waiting(), lambda _: Response(204)))
    request = Request("POST", path, b"", {})
    assert app.elsewhere(request) is None
    forwarding._note(request, SHARD)
    reply = app.elsewhere(request)
    assert (reply is not None) is is_known
    if reply is not None:
        reply.close()
