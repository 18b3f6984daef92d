"""Groups, messages and transactions, in both flavours, against a real server."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from headwater.client import (
    AsyncGroup,
    AsyncHeadwater,
    AsyncMessage,
    AsyncStream,
    BadRequest,
    Conflict,
    ConnectionFailed,
    DuplicateId,
    GroupNotFound,
    Headwater,
    InvalidMessage,
    Position,
    ResponseError,
    SequenceConflict,
    StaleEpoch,
    StaleReceipt,
    StreamClosed,
    StreamNotFound,
)
from headwater.client.protocol.streams import Request, Response
from headwater.embedded import EmbeddedLog
from tests.client.conftest import IMPATIENT, served
from tests.client.fake_transport import FakeTransport

GROUP_INFO = json.dumps(
    {
        "name": "g",
        "config": {
            "durable": True,
            "start": "first",
            "max_in_flight": 1000,
            "ack_timeout_ms": 30_000,
            "max_deliveries": 0,
            "dead_letter": None,
            "order_by": None,
        },
        "paused": False,
        "position": "0_0",
        "lag": 0,
        "lag_bytes": 0,
        "in_flight": 0,
        "members": {},
        "oldest_unacked_age_ms": 0,
    }
).encode()

SHORT_S = 0.3
"""An ack timeout that a test can wait for."""


@pytest.fixture
async def group(json_stream: AsyncStream) -> AsyncGroup:
    """A group on a stream with three messages."""
    await json_stream.append_all([{"n": 1}, {"n": 2}, {"n": 3}])
    group = json_stream.group("workers")
    await group.ensure()
    return group


@pytest.fixture
async def bystander(
    request: pytest.FixtureRequest, client: AsyncHeadwater
) -> AsyncIterator[AsyncHeadwater]:
    """A client of its own, to look at things from outside. Into a log in this process, none can."""
    if isinstance(client, EmbeddedLog):
        yield client
        return
    base_url = request.getfixturevalue("base_url")
    async with AsyncHeadwater(base_url, retry=IMPATIENT) as client:
        yield client


async def take(group: AsyncGroup, **options: Any) -> AsyncMessage:
    [message] = await group.fetch(wait_s=30, **options)
    return message


async def keep(group: AsyncGroup, count: int = 1, **options: Any) -> list[AsyncMessage]:
    """Fetch some and extend their leases. A slow machine lets some run out before that."""
    while True:
        messages = await group.fetch(max=count, wait_s=30, **options)
        with suppress(StaleReceipt):
            await group.extend(messages, 600)
            return messages


async def patiently(group: AsyncGroup, attempt: Callable[[float], Awaitable[None]]) -> None:
    """Show something with a short lease; a machine that stalled for longer is given a long one."""
    shown = False
    for lease_s in (0.5, 2.0, 15.0):
        await group.ensure(ack_timeout_s=lease_s)
        await group.seek("first")
        with suppress(AssertionError, StaleReceipt):
            await attempt(lease_s)
            shown = True
            break
    assert shown


def numbers(messages: list[AsyncMessage]) -> list[int]:
    return [message.value["n"] for message in messages]


async def eventually_in_flight(group: AsyncGroup, count: int) -> None:
    for _ in range(6_000):
        if (await group.info()).in_flight == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never {count} in flight")


# --- The group itself ----------------------------------------------------------------------------


async def test_settings(json_stream: AsyncStream) -> None:
    group = json_stream.group("workers")
    created = await group.ensure(
        start="latest",
        max_in_flight=7,
        ack_timeout_s=1.5,
        max_deliveries=3,
        dead_letter="dead/letters",
        order_by="/key",
    )
    assert created.settings == (await group.info()).settings
    assert created.name == group.name == "workers"
    assert created.settings.durable
    assert created.settings.start == "latest"
    assert created.settings.max_in_flight == 7
    assert created.settings.ack_timeout_s == 1.5
    assert created.settings.max_deliveries == 3
    assert created.settings.dead_letter == "dead/letters"
    assert created.settings.order_by == "/key"
    changed = await group.ensure(max_deliveries=4)
    assert changed.settings == replace(created.settings, max_deliveries=4)
    with pytest.raises(Conflict):
        await group.ensure(order_by="/other")
    with pytest.raises(BadRequest):
        await group.ensure(order_by="/key", max_in_flight=0)


async def test_settings_with_a_version(json_stream: AsyncStream) -> None:
    group = json_stream.group("workers")
    created = await group.ensure(version=2, max_in_flight=7)
    assert created.settings.version == 2
    assert (await group.ensure(version=1, max_in_flight=9)).settings == created.settings
    assert (await group.ensure(version=2, max_in_flight=7)).settings == created.settings
    with pytest.raises(Conflict, match="max_in_flight is 7, not 8"):
        await group.ensure(version=2, max_in_flight=8)
    newer = (await group.ensure(version=3)).settings
    assert (newer.version, newer.max_in_flight) == (3, 1000)


async def test_info(group: AsyncGroup) -> None:
    await group.fetch(consumer="ann", max=2)
    info = await group.info()
    assert info.lag == 3
    assert info.in_flight == 2
    assert info.members == {"ann": 2}
    assert info.oldest_unsettled_age_s >= 0
    assert not info.paused


async def test_a_list_of_groups(json_stream: AsyncStream) -> None:
    assert await json_stream.groups() == []
    await json_stream.group("one").ensure()
    await json_stream.group("two").ensure()
    assert sorted(info.name for info in await json_stream.groups()) == ["one", "two"]


async def test_delete(group: AsyncGroup) -> None:
    await group.delete()
    for attempt in (group.info(), group.delete(), group.fetch(), anext(group.consume())):
        with pytest.raises(GroupNotFound) as caught:
            await attempt
        assert caught.value.status == 404


async def test_a_group_of_no_stream(stream: AsyncStream) -> None:
    with pytest.raises(StreamNotFound):
        await stream.group("workers").ensure()


async def test_seek(group: AsyncGroup) -> None:
    for message in await group.fetch(max=3):
        await message.ack()
    await group.seek("first")
    assert numbers(await group.fetch(max=3)) == [1, 2, 3]
    await group.seek(Position("-1", skip=2))
    assert numbers(await group.fetch(max=3)) == [3]
    await group.seek("latest")
    assert await group.fetch(max=3) == []


async def test_fetch_acknowledges(group: AsyncGroup) -> None:
    done = await group.fetch(max=2)
    await done[0].nack(delay_s=30)
    assert numbers(await group.fetch(max=3, ack=done)) == [3]
    assert all(message.settled for message in done)
    assert (await group.info()).lag == 2


async def test_pause_and_resume(group: AsyncGroup) -> None:
    await group.pause()
    assert (await group.info()).paused
    assert await group.fetch(wait_s=0.05) == []
    await group.resume()
    assert numbers(await group.fetch(wait_s=5)) == [1]


async def test_names_that_are_not_allowed(json_stream: AsyncStream) -> None:
    with pytest.raises(ValueError, match="needs a name"):
        json_stream.group("")


async def test_arguments_that_are_not_allowed(group: AsyncGroup) -> None:
    with pytest.raises(ValueError, match="between 0 and 60"):
        await group.fetch(wait_s=61)
    for options in ({"concurrency": 0}, {"batch": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            group.consume(**options)  # type: ignore[arg-type]


# --- Messages ------------------------------------------------------------------------------------


async def test_what_a_message_knows(json_stream: AsyncStream) -> None:
    start = (await json_stream.head()).next_offset
    await json_stream.append(b'{"n":  1}')
    group = json_stream.group("workers")
    await group.ensure()
    message = await take(group)
    assert message.data == b'{"n":  1}'
    assert message.value == {"n": 1}
    assert message.id == "0"
    assert message.offset == start
    assert message.deliveries == 1
    assert message.receipt
    assert not message.settled


async def test_messages_of_bytes(text_stream: AsyncStream) -> None:
    await text_stream.append("not JSON")
    group = text_stream.group("workers")
    await group.ensure()
    message = await take(group)
    assert message.data == b"not JSON"
    with pytest.raises(InvalidMessage):
        _ = message.value


async def test_ack(group: AsyncGroup) -> None:
    message = await take(group)
    await message.ack()
    assert message.settled
    assert (await group.info()).lag == 2
    assert numbers(await group.fetch(max=3)) == [2, 3]


async def test_nack(group: AsyncGroup) -> None:
    first = await take(group)
    await first.nack()
    again = await take(group)
    assert again.value == {"n": 1}
    assert again.deliveries == 2
    assert again.receipt != first.receipt


async def test_nack_without_counting(group: AsyncGroup) -> None:
    await (await take(group)).nack(count=False)
    assert (await take(group)).deliveries == 1


async def test_nack_with_a_delay_holds_up_nobody_else(group: AsyncGroup) -> None:
    await (await take(group)).nack(600)
    second, third = await group.fetch(max=3)
    assert numbers([second, third]) == [2, 3]
    await third.nack(0.2)
    assert (await take(group)).value == {"n": 3}


async def test_reject(json_stream: AsyncStream, client: AsyncHeadwater, new_path: str) -> None:
    await json_stream.append({"n": 1})
    group = json_stream.group("workers")
    await group.ensure(dead_letter=f"{new_path}/dead")
    letters = client.stream(f"{new_path}/dead")
    await letters.ensure(content_type="application/json")
    await (await take(group)).reject()
    # The letter is written after the answer.
    letter = await anext(letters.follow().messages())
    assert letter["value"] == {"n": 1}
    assert letter["origin"]["reason"] == "rejected"
    assert (await group.info()).lag == 0


async def test_extend(group: AsyncGroup) -> None:
    await group.ensure(ack_timeout_s=SHORT_S)
    [message] = await keep(group)
    await asyncio.sleep(SHORT_S * 2)
    assert sorted(numbers([message, *await group.fetch(max=3)])) == [1, 2, 3]
    await message.extend(700)
    await message.ack()


async def test_stale_receipts(group: AsyncGroup) -> None:
    message = await take(group)
    await message.ack()
    for attempt in (message.ack(), message.nack(), message.extend(1), message.reject()):
        with pytest.raises(StaleReceipt) as caught:
            await attempt
        assert caught.value.code == "stale_receipt"
        assert not caught.value.in_doubt
    await message.ack(ignore_stale=True)
    await message.nack(ignore_stale=True)
    await message.extend(1, ignore_stale=True)
    await message.reject(ignore_stale=True)


async def test_a_late_ack_changes_nothing(group: AsyncGroup) -> None:
    for other in await group.fetch(max=2):
        await other.ack()
    await group.ensure(ack_timeout_s=SHORT_S)
    late = await take(group)
    [again] = await keep(group, consumer="someone else")
    with pytest.raises(StaleReceipt):
        await late.ack()
    await again.ack()


# --- Several messages at a time ------------------------------------------------------------------


async def test_ack_of_several(group: AsyncGroup) -> None:
    messages = await group.fetch(max=3)
    await group.ack(messages[:2])
    assert [message.settled for message in messages] == [True, True, False]
    assert (await group.info()).lag == 1
    await group.ack([])
    assert (await group.info()).lag == 1


async def test_nack_of_several(group: AsyncGroup) -> None:
    await group.nack(await group.fetch(max=3), count=False)
    again = await group.fetch(max=3)
    assert [message.deliveries for message in again] == [1, 1, 1]
    await group.nack(again, 60)
    assert await group.fetch(max=3) == []


async def test_reject_of_several(group: AsyncGroup) -> None:
    await group.reject(await group.fetch(max=2))
    assert numbers(await group.fetch(max=3)) == [3]


async def test_extend_of_several(group: AsyncGroup) -> None:
    await group.ensure(ack_timeout_s=SHORT_S)
    messages = await keep(group, 2)
    await asyncio.sleep(SHORT_S * 2)
    assert sorted(numbers([*messages, *await group.fetch(max=3)])) == [1, 2, 3]
    await group.ack(messages)


async def test_some_of_several_are_stale(group: AsyncGroup) -> None:
    """Those that are ours are settled all the same, and we learn which ones are not."""
    first, second, third = await group.fetch(max=3)
    await second.nack(60)
    with pytest.raises(StaleReceipt) as caught:
        await group.extend([first, second], 30)
    assert caught.value.receipts == (second.receipt,)
    with pytest.raises(StaleReceipt, match="1 of 3") as caught:
        await group.ack([first, second, third])
    assert caught.value.receipts == (second.receipt,)
    assert (await group.info()).lag == 1
    await group.ack([first, second, third], ignore_stale=True)


async def test_messages_of_another_group(json_stream: AsyncStream, group: AsyncGroup) -> None:
    other = json_stream.group("others")
    await other.ensure()
    foreign = await other.fetch(max=1)
    for attempt in (group.ack(foreign), group.extend(foreign, 1), group.nack(foreign)):
        with pytest.raises(ValueError, match="not from the group 'workers'"):
            await attempt
    with pytest.raises(ValueError, match="not from the group 'workers'"):
        group.transaction(foreign)
    assert (await other.info()).in_flight == 1


async def test_acks_gather_while_one_is_under_way() -> None:
    under_way, answered = asyncio.Event(), asyncio.Event()
    acked: list[list[str]] = []

    async def server(request: Request) -> Response:
        if request.url.endswith("/fetch"):
            each = '{"id":"%d","offset":"0_0","deliveries":1,"receipt":"r%d","value":1}'
            messages = ",".join(each % (number, number) for number in range(5))
            return Response(200, {}, f'{{"messages":[{messages}],"lag":5}}'.encode())
        acked.append(json.loads(request.body)["receipts"])
        under_way.set()
        await answered.wait()
        return Response(200, {}, b'{"acked":1,"stale":["r3"]}')

    transport = FakeTransport(server)
    async with AsyncHeadwater("http://server", transport=transport, retry=IMPATIENT) as client:
        messages = await client.stream("s").group("g").fetch(max=5)
        first = asyncio.create_task(messages[0].ack())
        await under_way.wait()
        others = [asyncio.create_task(message.ack()) for message in messages[1:]]
        await asyncio.sleep(0)
        others[0].cancel()
        answered.set()
        outcomes = await asyncio.gather(first, *others, return_exceptions=True)
    assert acked == [["r0"], ["r1", "r2", "r3", "r4"]]
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        asyncio.CancelledError,
        type(None),
        StaleReceipt,
        type(None),
    ]


async def test_more_than_a_request_takes() -> None:
    acked: list[int] = []

    async def server(request: Request) -> Response:
        if request.url.endswith("/fetch"):
            each = '{"id":"%d","offset":"0_0","deliveries":1,"receipt":"r%d","value":1}'
            messages = ",".join(each % (number, number) for number in range(10_001))
            return Response(200, {}, f'{{"messages":[{messages}],"lag":10001}}'.encode())
        receipts = json.loads(request.body)["receipts"]
        acked.append(len(receipts))
        return Response(200, {}, json.dumps({"acked": 0, "stale": receipts[:1]}).encode())

    transport = FakeTransport(server)
    async with AsyncHeadwater("http://server", transport=transport, retry=IMPATIENT) as client:
        group = client.stream("s").group("g")
        with pytest.raises(StaleReceipt) as caught:
            await group.ack(await group.fetch(max=1000))
    assert acked == [10_000, 1]
    assert caught.value.receipts == ("r0", "r10000")


async def test_acks_that_fail_together() -> None:
    async def server(request: Request) -> Response:
        if request.url.endswith("/fetch"):
            each = '{"id":"%d","offset":"0_0","deliveries":1,"receipt":"r%d","value":1}'
            return Response(
                200, {}, f'{{"messages":[{each % (0, 0)},{each % (1, 1)}],"lag":2}}'.encode()
            )
        body = b'{"error":{"code":"group_not_found","message":"gone"}}'
        return Response(404, {"content-type": "application/json"}, body)

    transport = FakeTransport(server)
    async with AsyncHeadwater("http://server", transport=transport, retry=IMPATIENT) as client:
        messages = await client.stream("s").group("g").fetch(max=2)
        outcomes = await asyncio.gather(
            *(message.ack() for message in messages), return_exceptions=True
        )
    assert [type(outcome) for outcome in outcomes] == [GroupNotFound, GroupNotFound]
    assert not any(message.settled for message in messages)


# --- A block for a message -----------------------------------------------------------------------


async def test_a_block_acknowledges(group: AsyncGroup) -> None:
    async with await take(group) as message:
        assert message.value == {"n": 1}
    assert message.settled
    assert (await group.info()).lag == 2


async def test_a_block_that_fails_gives_back(group: AsyncGroup) -> None:
    with pytest.raises(ZeroDivisionError):
        async with await take(group):
            raise ZeroDivisionError
    assert (await take(group)).deliveries == 2


async def test_a_block_leaves_alone_what_was_settled_in_it(group: AsyncGroup) -> None:
    async with await take(group) as message:
        await message.nack(count=False)
    again = await take(group)
    assert again.id == message.id
    async with again:
        await again.ack()
    other = await take(group)

    async def ack_and_fail() -> None:
        async with other:
            await other.ack()
            raise KeyError

    with pytest.raises(KeyError):
        await ack_and_fail()
    assert (await group.info()).lag == 1


async def test_a_block_extends_the_lease(group: AsyncGroup) -> None:
    async def work(lease_s: float) -> None:
        async with await take(group) as message:
            await asyncio.sleep(lease_s * 2.5)
            assert numbers(await group.fetch(max=3)) == [2, 3]
        assert message.settled
        assert message.deliveries == 1

    await patiently(group, work)


async def test_a_block_whose_message_was_lost(group: AsyncGroup) -> None:
    """The server forgets what it handed out; that the work was in vain must be known."""
    await group.ensure(ack_timeout_s=SHORT_S)

    async def work(*, fail: bool) -> None:
        async with await take(group):
            await group.seek("first")
            await asyncio.sleep(SHORT_S)
            if fail:
                raise ZeroDivisionError

    with pytest.raises(StaleReceipt):
        await work(fail=False)
    with pytest.raises(ZeroDivisionError):
        await work(fail=True)


async def test_a_cancelled_block_does_not_count(bystander: AsyncHeadwater, new_path: str) -> None:
    stream = bystander.stream(new_path)
    await stream.create(content_type="application/json", data={"n": 1})
    group = stream.group("workers")
    await group.ensure()

    async def work() -> None:
        async with await take(group):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await eventually_in_flight(group, 1)
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await take(group)).deliveries == 1


# --- Consuming -----------------------------------------------------------------------------------


async def test_consume(group: AsyncGroup) -> None:
    seen = []
    async for message in group.consume():
        async with message:
            seen.append(message.value["n"])
        if len(seen) == 3:
            break
    assert seen == [1, 2, 3]
    assert (await group.info()).lag == 0


async def test_consume_waits_for_what_comes(
    json_stream: AsyncStream, bystander: AsyncHeadwater
) -> None:
    group = json_stream.group("workers")
    await group.ensure()
    async with group.consume() as messages:
        coming = asyncio.create_task(anext(messages))
        await asyncio.sleep(0.1)
        await bystander.stream(json_stream.path).append({"n": 1})
        message = await coming
        assert message.value == {"n": 1}
        await message.ack()


class CountingServer:
    """A server with a message for each that is asked for. It writes down what it is asked."""

    def __init__(self) -> None:
        self.actions: list[str] = []
        self.fetches: list[dict[str, Any]] = []
        self.given = 0

    async def __call__(self, request: Request) -> Response:
        self.actions.append(request.url.rpartition("/")[2])
        if not request.url.endswith("/fetch"):
            return Response(200, {}, GROUP_INFO if request.method == "GET" else b'{"stale":[]}')
        body = json.loads(request.body)
        self.fetches.append(body)
        messages = [self.message() for _ in range(body["max"])]
        return Response(200, {}, json.dumps({"messages": messages, "stale": []}).encode())

    def message(self) -> dict[str, Any]:
        self.given += 1
        name = f"r{self.given}"
        return {"id": name, "offset": "0_0", "deliveries": 1, "receipt": name, "value": name}


async def test_an_ack_fetches_what_someone_waits_for() -> None:
    server = CountingServer()
    transport = FakeTransport(server)
    async with AsyncHeadwater("http://server", transport=transport, retry=IMPATIENT) as client:
        async with client.stream("s").group("g").consume(concurrency=2) as messages:
            first, second = await anext(messages), await anext(messages)
            waiting = asyncio.create_task(anext(messages))
            await asyncio.sleep(0)  # it waits now
            await first.ack()
            assert (await waiting).receipt == "r3"
            assert server.actions == ["g", "fetch", "fetch"]
            # It takes what is there: the acknowledgement must not wait for messages.
            assert (server.fetches[1]["ack"], server.fetches[1]["wait_ms"]) == (["r1"], 0)
            # Nobody waits for another one, so nothing is fetched.
            await second.ack()
            assert server.actions[3:] == ["ack"]
        # The one that came along and was not handed out goes back.
        assert server.actions[4:] == ["nack"]


async def test_who_stops_waiting_gives_back_what_an_ack_brings() -> None:
    server = CountingServer()
    asked, answering = asyncio.Event(), asyncio.Event()

    async def slowly(request: Request) -> Response:
        if b'"ack"' in request.body:
            asked.set()
            await answering.wait()
        return await server(request)

    transport = FakeTransport(slowly)
    async with AsyncHeadwater("http://server", transport=transport, retry=IMPATIENT) as client:
        messages = client.stream("s").group("g").consume()
        first = await anext(messages)
        waiting = asyncio.create_task(anext(messages))
        await asyncio.sleep(0)  # it waits now
        done = asyncio.create_task(first.ack())
        await asked.wait()
        waiting.cancel()
        answering.set()
        await done
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert server.actions == ["g", "fetch", "fetch", "nack"]


async def test_no_more_than_the_concurrency_at_a_time(group: AsyncGroup) -> None:
    async with group.consume(concurrency=2, batch=3) as messages:
        first, second = await anext(messages), await anext(messages)
        third = asyncio.create_task(anext(messages))
        await asyncio.sleep(0.1)
        assert not third.done()
        await second.ack()
        assert (await third).value == {"n": 3}
        await first.ack()


async def test_one_whose_time_is_over_does_not_count(group: AsyncGroup) -> None:
    await group.ensure(ack_timeout_s=SHORT_S)
    async with group.consume() as messages, asyncio.timeout(60):
        assert (await anext(messages)).deliveries == 1
        assert (await anext(messages)).value["n"] in (1, 2)


async def test_what_waits_is_kept(group: AsyncGroup) -> None:
    async def work(lease_s: float) -> None:
        async with group.consume(batch=3) as messages:
            async with await anext(messages) as first:
                await asyncio.sleep(lease_s * 3)
            assert first.deliveries == 1
            async with await anext(messages) as second:
                assert second.value == {"n": 2}
                assert second.deliveries == 1

    await patiently(group, work)


async def test_until_empty(group: AsyncGroup) -> None:
    seen = []
    async for message in group.consume(until_empty=True):
        async with message:
            seen.append(message.value["n"])
    assert seen == [1, 2, 3]
    assert [message async for message in group.consume(until_empty=True)] == []


async def test_empty_only_when_nothing_can_follow(json_stream: AsyncStream) -> None:
    """In a group that keeps order, what is unsettled holds up what is behind it."""
    await json_stream.append_all([{"n": 1, "k": 1}, {"n": 2, "k": 1}])
    group = json_stream.group("workers")
    await group.ensure(order_by="/k")
    async with group.consume(concurrency=5, until_empty=True) as messages:
        first = await anext(messages)
        following = asyncio.create_task(anext(messages))
        await asyncio.sleep(0.1)
        assert not following.done()
        await first.ack()
        second = await following
        await second.nack(60)
        with pytest.raises(StopAsyncIteration):
            await anext(messages)


async def assert_drained(group: AsyncGroup, *, kept: int) -> None:
    """All but those that were handed out are there for others, as if never fetched."""
    await eventually_in_flight(group, kept)
    others = await group.fetch(consumer="other", max=10)
    assert numbers(others) == list(range(kept + 1, 4))
    assert all(message.deliveries == 1 for message in others)


async def test_leaving_the_block_gives_back(group: AsyncGroup) -> None:
    async with group.consume(batch=3) as messages:
        first = await anext(messages)
    assert (await group.info()).in_flight == 1
    with pytest.raises(StopAsyncIteration):
        await anext(messages)
    await assert_drained(group, kept=1)
    await first.ack()


async def test_a_break_gives_back(group: AsyncGroup) -> None:
    async for message in group.consume(batch=3):
        assert message.value == {"n": 1}
        break
    gc.collect()
    await assert_drained(group, kept=1)


async def test_closing_gives_back(group: AsyncGroup) -> None:
    messages = group.consume(batch=3)
    await anext(messages)
    await messages.aclose()
    await messages.aclose()
    await assert_drained(group, kept=1)


async def test_closing_ends_a_wait(group: AsyncGroup) -> None:
    await group.seek("latest")
    messages = group.consume()
    coming = asyncio.create_task(anext(messages, None))
    await asyncio.sleep(0.1)
    await messages.aclose()
    async with asyncio.timeout(60):
        assert await coming is None


@pytest.mark.parametrize("client", ["async"], indirect=True)
async def test_a_cancelled_loop_gives_back(group: AsyncGroup) -> None:
    reached = asyncio.Event()

    async def work() -> None:
        async for _ in group.consume(batch=3):
            reached.set()  # and wait for the next one, as this one is never settled

    task = asyncio.create_task(work())
    await reached.wait()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await assert_drained(group, kept=1)


@pytest.mark.parametrize("client", ["async"], indirect=True)
async def test_a_cancelled_wait_gives_back_at_once(group: AsyncGroup) -> None:
    async with group.consume(batch=3) as messages:
        await anext(messages)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await anext(messages)
        await assert_drained(group, kept=1)


@pytest.mark.parametrize("client", ["async"], indirect=True)
async def test_a_timeout_ends_the_wait_not_the_iteration(
    group: AsyncGroup, json_stream: AsyncStream
) -> None:
    await group.seek("latest")
    async with group.consume() as messages:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await anext(messages)
        await json_stream.append({"n": 4})
        async with asyncio.timeout(60):
            assert (await anext(messages)).value == {"n": 4}


@served
async def test_closing_the_client_waits_for_what_is_given_back(
    base_url: str, group: AsyncGroup, json_stream: AsyncStream
) -> None:
    async with AsyncHeadwater(base_url) as client:
        async for _ in client.stream(json_stream.path).group("workers").consume(batch=3):
            break
    assert (await group.info()).in_flight == 1


def test_closing_the_blocking_client_waits_as_well(base_url: str, new_path: str) -> None:
    with Headwater(base_url) as outside:
        stream = outside.stream(new_path)
        stream.create(content_type="application/json")
        stream.append_all([1, 2, 3])
        stream.group("workers").ensure()
        with Headwater(base_url) as client:
            for _ in client.stream(new_path).group("workers").consume(batch=3):
                break
        assert stream.group("workers").info().in_flight == 1


INTERRUPTED = """
    import sys
    from headwater.client import Headwater
    with Headwater(sys.argv[1]) as client:
        try:
            for message in client.stream(sys.argv[2]).group("workers").consume(batch=2):
                with message:
                    print(message.value, flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


def test_an_interrupt_is_clean(base_url: str, new_path: str) -> None:
    with Headwater(base_url) as client:
        stream = client.stream(new_path)
        stream.create(content_type="application/json", data=1)
        stream.group("workers").ensure()
        command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), base_url, new_path]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "1\n"
            while stream.group("workers").info().lag:
                pass
            process.send_signal(signal.SIGINT)
            output, problems = process.communicate()
        assert (output, problems, process.returncode) == ("interrupted\n", "", 0)
        stream.append(2)
        [message] = stream.group("workers").fetch(wait_s=5)
        assert (message.value, message.deliveries) == (2, 1)


# --- Transactions --------------------------------------------------------------------------------


@pytest.fixture
async def out(client: AsyncHeadwater, new_path: str) -> AsyncStream:
    out = client.stream(f"{new_path}/out")
    await out.create(content_type="application/json")
    return out


async def test_ack_and_publish(group: AsyncGroup, out: AsyncStream) -> None:
    message = await take(group)
    transaction = message.transaction()
    transaction.publish(out.path, {"done": 1})
    transaction.publish(f"/{out.path}/", ["an array is one message"])
    outcome = await transaction.commit()
    assert outcome.acked == 1
    assert [published.stream for published in outcome.published] == [out.path, out.path]
    assert outcome.published[1].offset == (await out.head()).next_offset
    assert message.settled
    assert await out.read_json() == [{"done": 1}, ["an array is one message"]]
    assert (await group.info()).lag == 2
    with pytest.raises(RuntimeError, match="is committed"):
        await transaction.commit()
    with pytest.raises(RuntimeError, match="is committed"):
        transaction.publish(out.path, 1)


async def test_an_ack_alone(group: AsyncGroup) -> None:
    assert (await (await take(group)).transaction().commit()).acked == 1


async def test_a_commit_settles_the_block(group: AsyncGroup, out: AsyncStream) -> None:
    async with await take(group) as message, message.transaction() as transaction:
        transaction.publish(out.path, message.value)
    assert await out.read_json() == [{"n": 1}]
    assert (await group.info()).lag == 2


async def test_an_aborted_transaction_does_nothing(group: AsyncGroup, out: AsyncStream) -> None:
    message = await take(group)
    transaction = message.transaction()
    transaction.publish(out.path, {"done": 1})
    transaction.publish(f"{out.path}/missing", {"done": 1})
    with pytest.raises(Conflict) as caught:
        await transaction.commit()
    assert caught.value.code == "stream_not_found"
    assert caught.value.index == 1
    assert "publish 1" in caught.value.message
    assert not message.settled
    assert await out.read_json() == []
    await message.ack()


async def test_an_exception_discards_the_transaction(group: AsyncGroup, out: AsyncStream) -> None:
    async def work() -> None:
        async with await take(group) as message, message.transaction() as transaction:
            transaction.publish(out.path, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert await out.read_json() == []
    assert (await take(group)).deliveries == 2


async def test_a_stale_receipt_aborts(group: AsyncGroup, out: AsyncStream) -> None:
    message = await take(group)
    await message.nack()
    transaction = message.transaction()
    transaction.publish(out.path, 1)
    with pytest.raises(StaleReceipt) as caught:
        await transaction.commit()
    assert caught.value.status == 409
    assert await out.read_json() == []


async def test_publishing_without_an_ack(client: AsyncHeadwater, out: AsyncStream) -> None:
    log = client.stream(f"{out.path}/log")
    await log.create(content_type="text/plain")
    async with client.transaction() as transaction:
        transaction.publish(out.path, {"n": 1})
        transaction.publish(log.path, b"one\n")
    assert await out.read_json() == [{"n": 1}]
    assert await log.read_text() == "one\n"


async def test_a_closed_stream_aborts(client: AsyncHeadwater, out: AsyncStream) -> None:
    await out.close()
    transaction = client.transaction()
    transaction.publish(out.path, 1)
    with pytest.raises(StreamClosed) as caught:
        await transaction.commit()
    assert caught.value.index == 0


async def test_known_ids(client: AsyncHeadwater, stream: AsyncStream) -> None:
    headers = {"Stream-Unique-Ids": "fail"}
    await stream.create(content_type="application/json", headers=headers)
    for expected in (False, True):
        transaction = client.transaction()
        transaction.publish(stream.path, {"n": 1}, id="a", on_duplicate="succeed")
        [published] = (await transaction.commit()).published
        assert published.duplicate is expected
    transaction = client.transaction()
    transaction.publish(stream.path, {"n": 2}, id="b")
    transaction.publish(stream.path, {"n": 1}, id="a")
    with pytest.raises(DuplicateId):
        await transaction.commit()
    with pytest.raises(DuplicateId):
        await stream.append({"n": 1}, headers={"Message-Id": "a"})
    assert await stream.read_json() == [{"n": 1}]


async def test_producers_in_a_transaction(client: AsyncHeadwater, out: AsyncStream) -> None:
    for duplicate in (False, True):
        transaction = client.transaction()
        for seq in range(2):
            transaction.publish(out.path, seq, producer=("p", 1, seq))
        published = (await transaction.commit()).published
        assert [each.duplicate for each in published] == [duplicate, duplicate]
    assert await out.read_json() == [0, 1]


async def test_the_error_names_the_publish(client: AsyncHeadwater, out: AsyncStream) -> None:
    async with client.transaction() as transaction:
        transaction.publish(out.path, 0, producer=("p", 1, 0))

    async def refused(*producer: Any) -> Any:
        transaction = client.transaction()
        transaction.publish(out.path, "fine")
        transaction.publish(out.path, "refused", producer=producer)
        with pytest.raises(ResponseError) as caught:
            await transaction.commit()
        assert caught.value.index == 1
        return caught.value

    gap = await refused("p", 1, 5)
    assert isinstance(gap, SequenceConflict)
    assert (gap.expected_seq, gap.received_seq) == (1, 5)
    fenced = await refused("p", 0, 0)
    assert isinstance(fenced, StaleEpoch)
    assert fenced.current_epoch == 1
    assert isinstance(await refused("p", 2, 7), BadRequest)
    assert await out.read_json() == [0]


async def test_publishes_that_cannot_be(client: AsyncHeadwater, out: AsyncStream) -> None:
    transaction = client.transaction()
    with pytest.raises(TypeError):
        transaction.publish(out.path, object())
    for wrong in ({"id": 7}, {"on_duplicate": "maybe"}, {"producer": ("", 0, 0)}):
        transaction = client.transaction()
        transaction.publish(out.path, 1, **wrong)
        with pytest.raises(BadRequest, match="is invalid"):
            await transaction.commit()
    transaction = client.transaction()
    transaction.publish(out.path, b"bytes to a stream of JSON are its text")
    with pytest.raises(BadRequest) as caught:
        await transaction.commit()
    assert caught.value.index == 0
    with pytest.raises(BadRequest, match="acknowledges or publishes"):
        await client.transaction().commit()
    assert await out.read_json() == []


async def test_several_messages_in_a_transaction(group: AsyncGroup, out: AsyncStream) -> None:
    messages = await group.fetch(max=3)
    async with group.transaction(messages[:2]) as transaction:
        transaction.publish(out.path, "two")
    assert [message.settled for message in messages] == [True, True, False]
    assert (await group.info()).lag == 1
    stale = group.transaction(messages)
    stale.publish(out.path, "three")
    with pytest.raises(StaleReceipt):
        await stale.commit()
    assert not messages[2].settled
    assert await out.read_json() == ["two"]
    with pytest.raises(BadRequest, match="acknowledges or publishes"):
        await group.transaction([]).commit()


# --- Lost answers --------------------------------------------------------------------------------


class LosesTheFirstAnswer:
    """A server that does what it is asked, whose first answer to some request is lost."""

    def __init__(self, ending: str, then: Response) -> None:
        self.ending = ending
        self.then = then
        self.attempts = 0

    async def __call__(self, request: Request) -> Response:
        if request.url.endswith("/fetch"):
            message = b'{"id":"0","offset":"0_0","deliveries":1,"receipt":"r","value":1}'
            return Response(200, {}, b'{"messages":[%b],"lag":1}' % message)
        assert request.url.endswith(self.ending)
        self.attempts += 1
        if self.attempts == 1:
            raise ConnectionFailed("lost", in_doubt=True)
        return self.then


async def test_an_ack_whose_answer_was_lost_may_have_been_the_one() -> None:
    server = LosesTheFirstAnswer("/ack", Response(200, {}, b'{"acked":0,"stale":["r"]}'))
    transport = FakeTransport(server)
    async with AsyncHeadwater("http://server", transport=transport, retry=IMPATIENT) as client:
        message = await take(client.stream("s").group("g"))
        with pytest.raises(StaleReceipt) as caught:
            await message.ack()
    assert caught.value.in_doubt
    assert server.attempts == 2


async def test_a_transaction_is_repeated_only_with_a_receipt_or_producers() -> None:
    headers = {"content-type": "application/json"}
    error = b'{"error":{"code":"stale_receipt","message":"stale"}}'
    server = LosesTheFirstAnswer("/v1/transaction", Response(409, headers, error))
    transport = FakeTransport(server)
    async with AsyncHeadwater("http://server", transport=transport, retry=IMPATIENT) as client:
        with pytest.raises(StaleReceipt) as caught:
            await (await take(client.stream("s").group("g"))).transaction().commit()
        assert caught.value.in_doubt
        assert server.attempts == 2
        server.attempts = 0
        transaction = client.transaction()
        transaction.publish("s", 1)
        with pytest.raises(ConnectionFailed) as lost:
            await transaction.commit()
        assert lost.value.in_doubt
        assert server.attempts == 1
        server.attempts, server.then = 0, Response(200, {}, b'{"acked":0,"published":[]}')
        transaction = client.transaction()
        transaction.publish("s", 1, producer=("p", 0, 0))
        await transaction.commit()
        assert server.attempts == 2
