"""Producers, in both flavours against a real server, and alone with a transport under control."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.client import (
    AsyncHeadwater,
    AsyncStream,
    BufferFull,
    ConfigConflict,
    ConnectionFailed,
    ProducerOptions,
    ProducerStopped,
    Receipt,
    RetryPolicy,
    StaleEpoch,
    StreamClosed,
    StreamNotFound,
    TooLarge,
)
from headwater.client.protocol.streams import Request, Response
from tests.client.fake_transport import FakeTransport, granted, lost, refused

SMALL = ProducerOptions(linger_s=0.0, max_batch_messages=3)
QUICK = RetryPolicy(base_delay_s=0.0, max_delay_s=0.0)


# --- Against a server ----------------------------------------------------------------------------


async def test_messages_are_stored_in_order(json_stream: AsyncStream) -> None:
    async with json_stream.producer("p", options=SMALL) as producer:
        deliveries = [await producer.append({"n": n}) for n in range(500)]
    assert await json_stream.read_json() == [{"n": n} for n in range(500)]
    last = await deliveries[-1]
    assert last.next_offset == (await json_stream.head()).next_offset
    assert not last.duplicate


async def test_text(text_stream: AsyncStream) -> None:
    async with text_stream.producer() as producer:
        await producer.append("grün ")
        producer.append_nowait(b"und blau")
        with pytest.raises(TypeError):
            await producer.append(5)
        with pytest.raises(ValueError, match="nothing to append"):
            await producer.append("")
    assert await text_stream.read_text() == "grün und blau"


async def test_a_delivery_can_be_awaited(json_stream: AsyncStream) -> None:
    async with json_stream.producer() as producer:
        delivery = await producer.append([1, [2]])
        receipt = await delivery
        assert delivery.done()
        assert receipt.next_offset == (await json_stream.head()).next_offset
    assert await json_stream.read_json() == [1, [2]]


async def test_flush(json_stream: AsyncStream) -> None:
    options = ProducerOptions(linger_s=3600.0)
    async with json_stream.producer(options=options) as producer:
        await producer.append(1)
        await producer.flush()
        assert await json_stream.read_json() == [1]
        await producer.flush()


async def test_a_closed_producer(json_stream: AsyncStream) -> None:
    producer = json_stream.producer()
    await producer.append(1)
    await producer.close()
    await producer.close()
    with pytest.raises(ProducerStopped):
        await producer.append(2)
    with pytest.raises(ProducerStopped):
        producer.append_nowait(2)
    assert not (await json_stream.head()).closed


async def test_an_unused_producer_needs_no_server(client: AsyncHeadwater) -> None:
    producer = client.stream("nowhere").producer()
    with pytest.raises(RuntimeError, match="enter the producer"):
        producer.append_nowait(1)
    await producer.flush()
    await producer.close()


@pytest.mark.parametrize("final", [(), ("bye",), (None,)])
async def test_close_the_stream(json_stream: AsyncStream, final: tuple[Any, ...]) -> None:
    producer = json_stream.producer(options=SMALL)
    for number in range(10):
        await producer.append(number)
    receipt = await producer.close_stream(*final)
    assert receipt.closed
    assert await json_stream.read_json() == [*range(10), *final]
    with pytest.raises(ProducerStopped):
        await producer.append("more")
    with pytest.raises(ProducerStopped):
        await producer.close_stream()
    with pytest.raises(StreamClosed):
        await json_stream.append("more")


async def test_a_replay_is_recognised(json_stream: AsyncStream) -> None:
    one_by_one = ProducerOptions(max_batch_messages=1, linger_s=0.0)
    for attempt in range(2):
        async with json_stream.producer("replay", epoch=0, options=one_by_one) as producer:
            deliveries = [await producer.append(n) for n in range(20)]
        receipts = [await delivery for delivery in deliveries]
        assert all(receipt.duplicate is (attempt == 1) for receipt in receipts)
    assert await json_stream.read_json() == list(range(20))


async def test_a_producer_that_starts_again_loses_nothing(json_stream: AsyncStream) -> None:
    for run in range(3):
        async with json_stream.producer("p") as producer:
            delivery = await producer.append(run)
        assert not (await delivery).duplicate
    assert await json_stream.read_json() == [0, 1, 2]


async def test_the_epoch_that_is_claimed_is_above_all_before(json_stream: AsyncStream) -> None:
    far_ahead = 2**52
    async with json_stream.producer("p", epoch=far_ahead) as earlier:
        await earlier.append("earlier")
        await earlier.flush()
        async with json_stream.producer("p") as later:
            await later.append("later")
            await later.flush()
        assert later.epoch > far_ahead
        with pytest.raises(StaleEpoch):
            await (await earlier.append("too late"))
        with pytest.raises(StaleEpoch):
            await earlier.flush()
    assert await json_stream.read_json() == ["earlier", "later"]


async def test_a_newer_epoch_fences_an_older_one(json_stream: AsyncStream) -> None:
    old = json_stream.producer("p", epoch=0)
    await old.append("old")
    await old.flush()
    async with json_stream.producer("p", epoch=1) as new:
        await new.append("new")
    delivery = await old.append("too late")
    with pytest.raises(StaleEpoch) as caught:
        await delivery
    assert caught.value.current_epoch == 1
    assert not caught.value.in_doubt
    with pytest.raises(StaleEpoch):
        await old.close()
    assert await json_stream.read_json() == ["old", "new"]


async def test_auto_claim(json_stream: AsyncStream) -> None:
    async with json_stream.producer("p", epoch=5) as other:
        await other.append("other")
    async with json_stream.producer("p", auto_claim=True, options=SMALL) as producer:
        for number in range(100):
            await producer.append(number)
    assert producer.epoch > 5
    assert await json_stream.read_json() == ["other", *range(100)]


async def test_a_refusal_stops_the_producer(
    json_stream: AsyncStream, client: AsyncHeadwater
) -> None:
    wrong = client.stream(json_stream.path, content_type="text/plain")
    producer = wrong.producer()
    delivery = await producer.append("x")
    with pytest.raises(ConfigConflict):
        await producer.flush()
    with pytest.raises(ConfigConflict):
        await delivery
    with pytest.raises(ProducerStopped) as caught:
        await producer.append("y")
    assert isinstance(caught.value.__cause__, ConfigConflict)
    await producer.close()


async def test_leaving_with_an_error_keeps_the_error(json_stream: AsyncStream) -> None:
    async def fail() -> None:
        async with json_stream.producer() as producer:
            await producer.append("appended before")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await json_stream.read_json() == ["appended before"]


async def test_a_stream_that_is_not_there(stream: AsyncStream) -> None:
    with pytest.raises(StreamNotFound):
        await stream.producer().append(1)


# --- Alone ---------------------------------------------------------------------------------------


class Server:
    """Answers appends when a test lets it, and keeps what it was sent."""

    def __init__(self) -> None:
        self.transport = FakeTransport(self._handle)
        self.answers: asyncio.Queue[Response | Exception] = asyncio.Queue()
        self._received = asyncio.Condition()
        client = AsyncHeadwater("http://server", transport=self.transport)
        self.stream = client.stream("s", content_type="application/json")

    async def _handle(self, request: Request) -> Response:
        async with self._received:
            self._received.notify_all()
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def accept(self, count: int = 1) -> None:
        for _ in range(count):
            self.answers.put_nowait(granted("0_1"))

    @property
    def sent(self) -> list[tuple[str, bytes]]:
        return [(r.headers["Producer-Seq"], r.body) for r in self.transport.requests]

    async def has_been_sent(self, count: int) -> None:
        async with self._received:
            await self._received.wait_for(lambda: len(self.transport.requests) >= count)


def options(**changes: Any) -> ProducerOptions:
    return ProducerOptions(**{"linger_s": 0.0, "retry": QUICK, **changes})


async def test_a_batch_grows_while_it_has_to_wait() -> None:
    server = Server()
    producer = server.stream.producer("p", epoch=0, options=options())
    await producer.append(0)
    for number in range(1, 5):
        await producer.append(number)
    await server.has_been_sent(1)
    server.accept(2)
    await producer.close()
    assert server.sent == [("0", b"[0]"), ("1", b"[1,2,3,4]")]


async def test_five_requests_are_under_way_at_most() -> None:
    server = Server()
    producer = server.stream.producer("p", epoch=0, options=options(max_batch_messages=1))
    server.accept()
    for number in range(20):
        await producer.append(number)
    await server.has_been_sent(6)
    assert [seq for seq, _ in server.sent] == ["0", "1", "2", "3", "4", "5"]
    server.accept(19)
    await producer.close()
    assert [seq for seq, _ in server.sent] == [str(number) for number in range(20)]


async def test_append_waits_while_the_buffer_is_full() -> None:
    server = Server()
    producer = server.stream.producer("p", epoch=0, options=options(max_buffer_bytes=10))
    await producer.append("1234")
    await server.has_been_sent(1)
    await producer.append("2")
    with pytest.raises(BufferFull):
        producer.append_nowait("5678")
    waiting = asyncio.ensure_future(producer.append("5678"))
    cancelled = asyncio.ensure_future(producer.append("never"))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert not waiting.done()
    server.accept()
    await waiting
    server.accept(2)
    await producer.close()
    assert [body for _, body in server.sent] == [b'["1234"]', b'["2"]', b'["5678"]']


async def test_a_message_larger_than_the_buffer_goes_alone() -> None:
    server = Server()
    producer = server.stream.producer("p", epoch=0, options=options(max_buffer_bytes=10))
    server.accept(2)
    await producer.append("x" * 100)
    await producer.append("y" * 100)
    await producer.close()
    assert len(server.sent) == 2


async def test_lost_answers_are_asked_for_again_with_the_same_number() -> None:
    server = Server()
    producer = server.stream.producer("p", epoch=0, options=options())
    for failure in (lost(), refused(500), refused(429), lost(), refused(503, "busy")):
        server.answers.put_nowait(failure)
    server.answers.put_nowait(granted("0_1", status=204, producer_epoch="0", producer_seq="0"))
    receipt = await (await producer.append("once"))
    assert receipt == Receipt("0_1", duplicate=True)
    assert server.sent == [("0", b'["once"]')] * 6
    await producer.close()


async def test_an_answer_to_another_request_is_not_believed() -> None:
    server = Server()
    producer = server.stream.producer("p", epoch=0, options=options())
    server.accept()
    await producer.append("a")
    await producer.flush()
    server.answers.put_nowait(granted("0_1", producer_epoch="0", producer_seq="0"))
    server.answers.put_nowait(granted("0_2", producer_epoch="0", producer_seq="1"))
    await producer.append("b")
    await producer.close()
    assert server.sent == [("0", b'["a"]'), ("1", b'["b"]'), ("1", b'["b"]')]


async def test_everything_behind_a_failure_fails() -> None:
    server = Server()
    producer = server.stream.producer("p", epoch=0, options=options(max_batch_messages=1))
    deliveries = [await producer.append(number) for number in range(9)]
    server.accept()
    server.answers.put_nowait(refused(413, "body_too_large"))
    with pytest.raises(TooLarge):
        await deliveries[1]
    for _ in range(4):
        server.answers.put_nowait(
            refused(409, producer_expected_seq="1", producer_received_seq="5")
        )
    assert (await deliveries[0]).next_offset == "0_1"
    with pytest.raises(ProducerStopped) as caught:
        await deliveries[8]
    assert isinstance(caught.value.__cause__, TooLarge)
    for delivery in deliveries[2:]:
        with pytest.raises(ProducerStopped):
            await delivery
    with pytest.raises(TooLarge):
        await producer.close()


async def test_a_failure_is_reported_by_flush_once() -> None:
    server = Server()
    producer = server.stream.producer("p", epoch=0, options=options())
    server.answers.put_nowait(refused(400, "invalid_json"))
    await producer.append("ignored delivery")
    with pytest.raises(Exception, match="invalid_json"):
        await producer.flush()
    await producer.close()


async def test_a_producer_that_gives_up_tells_that_it_does_not_know() -> None:
    server = Server()
    impatient = RetryPolicy(base_delay_s=0.0001, max_delay_s=0.0001, give_up_after_s=0.0)
    producer = server.stream.producer("p", epoch=0, options=options(retry=impatient))
    server.answers.put_nowait(lost())
    delivery = await producer.append("who knows")
    with pytest.raises(ConnectionFailed) as caught:
        await delivery
    assert caught.value.in_doubt
    with pytest.raises(ConnectionFailed):
        await producer.close()


async def test_an_interrupted_block_waits_for_nothing() -> None:
    server = Server()
    delivery: asyncio.Future[Receipt] = asyncio.Future()

    async def work() -> None:
        nonlocal delivery
        async with server.stream.producer("p", epoch=0, options=options()) as producer:
            delivery = await producer.append("never answered")
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await server.has_been_sent(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProducerStopped) as caught:
        await delivery
    assert caught.value.in_doubt


async def test_a_delivery_that_is_cancelled_does_not_take_the_message_back() -> None:
    server = Server()
    producer = server.stream.producer("p", epoch=0, options=options())
    delivery = await producer.append("sent anyway")
    delivery.cancel()
    server.accept()
    await producer.close()
    assert server.sent == [("0", b'["sent anyway"]')]


async def test_a_token_function_that_fails_is_reported() -> None:
    def broken() -> str:
        raise ZeroDivisionError

    transport = FakeTransport(Server()._handle)
    client = AsyncHeadwater("http://server", token=broken, transport=transport)
    producer = client.stream("s", content_type="text/plain").producer()
    delivery = await producer.append("x")
    with pytest.raises(ProducerStopped) as caught:
        await delivery
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(ProducerStopped):
        await producer.close()
