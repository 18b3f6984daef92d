"""Lists of subscriptions in a cluster: each node has its own, and they are merged into one list.

A node that forwards such a request gets the part of the node it asks, and which shards that covers.
Shards change hands meanwhile, so a list is complete only if it covers every shard; until then the
nodes are asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Final

import msgspec

from headwater.cluster.node import Node
from headwater.core.cluster import NodeSeen
from headwater.core.errors import OwnedElsewhere, StorageUnavailable, StreamError
from headwater.http.answers import json_answer
from headwater.http.messages import Answer, Request, Response
from headwater.http.nodes.links import LinkBroken
from headwater.http.queries import page_of
from headwater.http.routes.route import Reply
from headwater.http.wire.outcomes import resolved
from headwater.http.wire.response_heads import parsed

_SHARDS: Final = "Headwater-Shards"
_LOOK_AGAIN_S: Final = 0.2


class _Named(msgspec.Struct):
    id: str


class _Part(msgspec.Struct):
    subscriptions: list[msgspec.Raw]
    next: str | None = None


class SubscriptionList:
    def __init__(
        self,
        node: Node,
        answer: Callable[[Request], Reply],
        ask: Callable[[Request, NodeSeen], Awaitable[Answer]],
        patience_s: float,
    ) -> None:
        self._node = node
        self._answer = answer
        self._ask = ask
        self._patience_s = patience_s

    async def answer(self, request: Request) -> Answer:
        deadline = monotonic() + self._patience_s
        while True:
            answers = [await self._own(request)]
            if request.hops or answers[0].status != 200:
                return answers[0]
            asked = (self._part_of(request, peer) for peer in self._node.others())
            answers += [part for part in await asyncio.gather(*asked) if part is not None]
            refused = next((one for one in answers if 400 <= one.status < 500), None)
            if refused is not None:
                return refused
            good = [one for one in answers if one.status == 200]
            missing = {shard.id for shard in self._node.seen.shards}
            missing.difference_update(*(_shards_in(one) for one in good))
            if not missing:
                return _merged(good, page_of(request)[2])
            if monotonic() >= deadline:
                raise OwnedElsewhere(min(missing))
            await self._node.change(_LOOK_AGAIN_S)
            with suppress(StorageUnavailable):
                await self._node.refresh()

    async def _own(self, request: Request) -> Response:
        await self._node.settled()
        before = self._node.shards
        answer = await resolved(self._answer(request))
        assert isinstance(answer, Response)
        # Shards that arrived meanwhile are not included.
        shards = ",".join(map(str, sorted(before & self._node.shards)))
        return msgspec.structs.replace(answer, headers=[*answer.headers, (_SHARDS, shards)])

    async def _part_of(self, request: Request, peer: NodeSeen) -> Response | None:
        if peer.address is None:
            return None
        try:
            answer = await self._ask(request, peer)
        except (LinkBroken, StreamError):
            return None
        if not isinstance(answer, Response) or (answer.status == 200 and not _is_part(answer)):
            return None
        return answer


def _shards_in(part: Response) -> set[int]:
    headers = {name.lower(): value for name, value in (*part.headers, *parsed(part.lines))}
    return {int(shard) for shard in headers.get(_SHARDS.lower(), "").split(",") if shard}


def _is_part(answer: Response) -> bool:
    try:
        _shards_in(answer)
        _subscriptions_in(answer)
    except ValueError:
        return False
    return True


def _merged(answers: list[Response], limit: int) -> Response:
    parts = [_subscriptions_in(answer) for answer in answers]
    # A subscription that changed hands meanwhile may be in two parts.
    found = sorted({name: one for part, _ in parts for name, one in part.items()}.items())
    is_more = len(found) > limit or any(is_more for _, is_more in parts)
    shown = found[:limit]
    body = {
        "subscriptions": [one for _, one in shown],
        "next": shown[-1][0] if is_more else None,
    }
    return json_answer(body)


def _subscriptions_in(answer: Response) -> tuple[dict[str, msgspec.Raw], bool]:
    """The subscriptions of a part, by name, and whether there are more."""
    assert isinstance(answer.body, bytes)
    part = msgspec.json.decode(answer.body, type=_Part)
    found = {msgspec.json.decode(one, type=_Named).id: one for one in part.subscriptions}
    return found, part.next is not None
