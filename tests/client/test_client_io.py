"""Retries, cancellation and credentials, with a transport that a test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.client import (
    AsyncHeadwater,
    AsyncStream,
    BadRequest,
    ConnectionFailed,
    InvalidMessage,
    Position,
    ProducerOptions,
    ProducerTag,
    RateLimited,
    RetryPolicy,
    ServerUnavailable,
    ServerUnreachable,
    StreamExists,
    StreamNotFound,
    Timeouts,
    Unauthorized,
    UnexpectedAnswer,
)
from headwater.client.protocol.streams import Response
from tests.client.fake_transport import (
    EventStream,
    FakeTransport,
    control,
    data,
    granted,
    lost,
    not_connected,
    refused,
    script,
)

QUICK = RetryPolicy(base_delay_s=0.0, max_delay_s=0.0)
END = granted("0_9", b"[]", stream_up_to_date="true", stream_closed="true")


def tail(next_offset: str, body: bytes) -> Response:
    """An answer that reaches the end of the stream."""
    return granted(next_offset, body, stream_up_to_date="true")


def client_of(*answers: Any, **options: Any) -> tuple[AsyncHeadwater, FakeTransport]:
    transport = FakeTransport(script(*answers))
    return AsyncHeadwater("http://server", transport=transport, retry=QUICK, **options), transport


async def collect(client: AsyncHeadwater, live: Any = None, offset: str = "-1") -> list[Any]:
    stream = client.stream("s")
    reader = stream.read(offset) if live is None else stream.follow(offset, live=live)
    return [message async for message in reader.messages()]


# --- Retries -------------------------------------------------------------------------------------


async def test_what_may_be_repeated_is_repeated() -> None:
    client, transport = client_of(lost(), refused(429), refused(500), granted("0_0"))
    await client.stream("s").head()
    assert [request.method for request in transport.requests] == ["HEAD"] * 4


async def test_an_append_is_not_repeated_when_it_may_have_been_written() -> None:
    client, transport = client_of(not_connected(), refused(429), refused(503, "busy"), lost())
    with pytest.raises(ConnectionFailed) as caught:
        await client.stream("s", content_type="text/plain").append("x")
    assert caught.value.in_doubt
    assert len(transport.requests) == 4


async def test_it_gives_up_in_the_end() -> None:
    policy = RetryPolicy(base_delay_s=0.0, max_delay_s=0.0, give_up_after_s=0.0)
    transport = FakeTransport(script(*[refused(503, "busy", retry_after="60")] * 2))
    client = AsyncHeadwater("http://server", transport=transport, retry=policy)
    with pytest.raises(ServerUnavailable) as caught:
        await client.stream("s").head()
    assert caught.value.retry_after_s == 60.0
    assert caught.value.code == "busy"


async def test_created_by_ourselves_without_knowing() -> None:
    client, _ = client_of(lost(), granted("0_0", status=200))
    await client.stream("s").create()
    client, _ = client_of(not_connected(), granted("0_0", status=200))
    with pytest.raises(StreamExists):
        await client.stream("s").create()


async def test_deleted_by_ourselves_without_knowing() -> None:
    client, _ = client_of(lost(), refused(404))
    await client.stream("s").delete()
    client, _ = client_of(not_connected(), refused(404))
    with pytest.raises(StreamNotFound):
        await client.stream("s").delete()


async def test_other_requests_are_repeated_only_if_they_read() -> None:
    client, _ = client_of(lost(), granted("0_0"), lost())
    await client.request("GET", "/v1/streams")
    with pytest.raises(ConnectionFailed):
        await client.request("POST", "/v1/transaction", json={"publish": []})


# --- Credentials ---------------------------------------------------------------------------------


async def test_every_request_carries_token_and_headers() -> None:
    client, transport = client_of(granted("0_0"), END, token="secret", headers={"X-Team": "blue"})
    await client.stream("s").head()
    await collect(client)
    for request in transport.requests:
        assert request.headers["Authorization"] == "Bearer secret"
        assert request.headers["X-Team"] == "blue"


async def test_a_token_may_change() -> None:
    tokens = iter(["one", "two"])

    async def fresh() -> str:
        return next(tokens)

    client, transport = client_of(refused(401), granted("0_0"), token=fresh)
    with pytest.raises(Unauthorized):
        await client.stream("s").head()
    await client.stream("s").head()
    sent = [request.headers["Authorization"] for request in transport.requests]
    assert sent == ["Bearer one", "Bearer two"]


async def test_closing_the_client_closes_the_transport() -> None:
    client, transport = client_of()
    async with client:
        pass
    await client.aclose()
    assert transport.closed


async def test_headers_and_parameters_are_asked_for_before_every_request() -> None:
    numbers = iter(range(9))

    async def session() -> str:
        return f"s{next(numbers)}"

    client, transport = client_of(
        *[granted("0_0")] * 4,
        headers={"X-Session": session, "x-team": "blue"},
        params={"tenant": lambda: f"t{next(numbers)}"},
    )
    stream = client.stream("s", headers={"X-Team": "red"}, params={"v": "2"})
    await stream.head()
    await stream.append(1)
    await client.stream("s").head()
    first, second, third = transport.requests
    assert (first.headers["X-Session"], first.params["tenant"]) == ("s0", "t1")
    assert (second.headers["X-Session"], second.params["tenant"]) == ("s2", "t3")
    assert first.headers["X-Team"] == "red"
    assert "x-team" not in first.headers
    assert (third.headers["x-team"], "v" in third.params) == ("blue", False)
    assert (first.params["v"], second.params["v"]) == ("2", "2")


async def test_what_is_for_one_server_does_not_go_to_another() -> None:
    client, transport = client_of(
        granted("0_0"), granted("0_0"), token="t", headers={"X-A": "1"}, params={"p": "1"}
    )
    await client.stream("https://elsewhere/any/path", headers={"X-B": "2"}).head()
    await client.stream("http://server/any/path").head()
    elsewhere, here = transport.requests
    assert elsewhere.url == "https://elsewhere/any/path"
    assert (dict(elsewhere.headers), dict(elsewhere.params)) == ({"X-B": "2"}, {})
    assert here.headers == {"X-A": "1", "Authorization": "Bearer t"}


async def test_a_header_that_cannot_be_sent_is_not_retried() -> None:
    client, transport = client_of()
    with pytest.raises(ValueError, match="header X-A"):
        await client.stream("s", content_type="a/b").append(b"1", headers={"X-A": "a\nb"})
    assert transport.requests == []


async def test_errors_name_the_stream() -> None:
    client, _ = client_of(refused(404, "stream_not_found"), tail("0_1", b"[1]"))
    with pytest.raises(StreamNotFound, match="/v1/stream/orders: no"):
        await client.stream("orders").head()
    with pytest.raises(InvalidMessage, match="/v1/stream/orders: "):
        _ = [message async for message in client.stream("orders").read().messages(str)]


async def test_an_address_where_nobody_is() -> None:
    attempts = 0

    async def nobody(_: Any) -> Response:
        nonlocal attempts
        attempts += 1
        raise not_connected()

    acts: list[Callable[[AsyncStream], Awaitable[object]]] = [
        lambda stream: stream.append(1),
        lambda stream: stream.read_json(),
        lambda stream: stream.producer("p").append(1),
    ]
    for act in acts:
        policy = RetryPolicy(base_delay_s=0.01, max_delay_s=0.01, unreachable_after_s=0.05)
        client = AsyncHeadwater("http://server:1", transport=FakeTransport(nobody), retry=policy)
        with pytest.raises(ServerUnreachable, match=r"http://server:1 .*headwater serve"):
            await act(client.stream("s"))
    assert attempts > 3


async def test_a_server_that_was_there_is_given_more_time() -> None:
    policy = RetryPolicy(base_delay_s=0.0, max_delay_s=0.0, unreachable_after_s=0.0)
    transport = FakeTransport(script(granted("0_0"), not_connected(), granted("0_0")))
    client = AsyncHeadwater("http://server", transport=transport, retry=policy)
    await client.stream("s").head()
    await client.stream("s").head()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ProducerOptions(max_batch_messages=0),
        lambda: ProducerOptions(max_batch_bytes=0),
        lambda: ProducerOptions(max_in_flight=0),
        lambda: ProducerOptions(max_buffer_bytes=-1),
        lambda: ProducerOptions(linger_s=-1),
        lambda: RetryPolicy(base_delay_s=-1),
        lambda: RetryPolicy(give_up_after_s=-1),
        lambda: Timeouts(answer_s=0),
        lambda: ProducerTag("", 0, 0),
        lambda: ProducerTag("p", -1, 0),
        lambda: ProducerTag("p", 0, -1),
        lambda: client_of()[0].stream("s").producer(""),
        lambda: client_of()[0].stream("s").producer("é"),
        lambda: client_of()[0].stream("s").producer("p", epoch=-1),
        lambda: client_of()[0].stream("s").group(""),
        lambda: client_of()[0].subscription(""),
        lambda: client_of()[0].stream("s").group("g").consume(concurrency=0),
        lambda: client_of()[0].stream("s").group("g").consume(batch=0),
        lambda: client_of()[0].stream("s").group("g").consume(consumer=""),
    ],
)
def test_options_with_which_nothing_would_happen_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        make()


# --- Reading -------------------------------------------------------------------------------------


async def test_a_reader_goes_on_where_it_was() -> None:
    client, transport = client_of(granted("0_1", b"[1]"), lost(), refused(503), tail("0_2", b"[2]"))
    assert await collect(client) == [1, 2]
    offsets = [request.params["offset"] for request in transport.requests]
    assert offsets == ["-1", "0_1", "0_1", "0_1"]


async def test_an_answer_to_another_request_is_not_believed() -> None:
    first = granted("0_1", b"[1]")
    client, transport = client_of(first, first, first, tail("0_2", b"[2]"))
    assert await collect(client) == [1, 2]
    assert transport.distrusted == 2


async def test_a_server_that_never_makes_sense() -> None:
    client, _ = client_of(*[tail("0_1", b"[1")] * 20)
    with pytest.raises(UnexpectedAnswer):
        await collect(client, live="long-poll")


async def test_an_event_stream_that_breaks_anywhere() -> None:
    client, transport = client_of(
        tail("0_0", b"[]"),
        EventStream(data(1) + control("0_1", upToDate=True), data(2), lost()),
        EventStream(data(2) + control("0_2")[:20], None),
        refused(502),
        EventStream(data(2), control("0_2", upToDate=True), None),
        EventStream(data(3), control("0_3", streamClosed=True)),
    )
    assert await collect(client, live="sse") == [1, 2, 3]
    offsets = [request.params["offset"] for request in transport.requests]
    assert offsets == ["-1", "0_0", "0_1", "0_1", "0_1", "0_2"]


async def test_what_came_before_the_end_is_yielded_first() -> None:
    client, _ = client_of(
        tail("0_0", b"[]"),
        EventStream(data(1) + control("0_1") + b"event: deleted\ndata: 0_1\n\n"),
    )
    reader = client.stream("s").follow(live="sse")
    messages = reader.messages()
    assert await anext(messages) == 1
    with pytest.raises(StreamNotFound):
        await anext(messages)
    assert reader.position == Position("0_1")


async def test_an_event_stream_that_is_refused() -> None:
    client, _ = client_of(tail("0_0", b"[]"), refused(400, "invalid_query"))
    with pytest.raises(BadRequest) as caught:
        await collect(client, live="sse")
    assert caught.value.code == "invalid_query"


async def test_a_follower_is_patient_once_it_has_been_connected() -> None:
    policy = RetryPolicy(base_delay_s=0.0001, max_delay_s=0.0001, give_up_after_s=0.0)
    answers: list[Any] = [tail("0_1", b"[1]"), *[lost() for _ in range(100)], END]
    transport = FakeTransport(script(*answers))
    client = AsyncHeadwater("http://server", transport=transport, retry=policy)
    assert await collect(client, live="long-poll") == [1]
    client, _ = client_of(lost())
    client._sender.retry = policy
    with pytest.raises(ConnectionFailed):
        await collect(client, live="long-poll")


async def test_rate_limits_are_waited_out_only_so_long() -> None:
    transport = FakeTransport(script(refused(429, "too_busy", retry_after="3600")))
    client = AsyncHeadwater("http://server", transport=transport, retry=RetryPolicy())
    with pytest.raises(RateLimited):
        await collect(client)


# --- Cancellation --------------------------------------------------------------------------------


@pytest.mark.parametrize("live", ["long-poll", "sse"])
async def test_a_cancelled_wait_can_be_taken_up_again(live: Any) -> None:
    asked = asyncio.Event()

    async def handle(request: Any) -> Any:
        if len(transport.requests) == 1:
            return tail("0_1", b"[1]")
        if len(transport.requests) == 2:
            asked.set()
            if live == "sse":
                return EventStream(data("half"))
            await asyncio.Event().wait()
        if live == "sse":
            return EventStream(data(2) + control("0_2", streamClosed=True))
        return granted("0_2", b"[2]", stream_closed="true")

    transport = FakeTransport(handle)
    client = AsyncHeadwater("http://server", transport=transport, retry=QUICK)
    reader = client.stream("s").follow(live=live)
    messages = reader.messages()
    assert await anext(messages) == 1
    waiting = asyncio.ensure_future(anext(messages))
    await asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert reader.position == Position("0_1")
    assert [message async for message in messages] == [2]
    assert transport.requests[-1].params["offset"] == "0_1"


async def test_cancelling_at_any_step_of_the_loop_loses_nothing() -> None:
    """Cancel after 0, 1, 2, … turns of the event loop until a read completes undisturbed."""
    answers = [granted(f"0_{n}", f"[{n}]".encode()) for n in range(1, 5)]
    for turns in range(12):
        client, _ = client_of(*answers, *answers, END)
        seen: list[Any] = []
        reader = client.stream("s").read()
        messages = reader.messages()
        for _ in range(3):
            task = asyncio.ensure_future(anext(messages, None))
            for _ in range(turns):
                await asyncio.sleep(0)
            if not task.cancel() and task.result() is not None:
                seen.append(task.result())
            await asyncio.wait([task])
        position = reader.position
        assert position.offset == (f"0_{len(seen)}" if seen else "-1")
        assert seen == list(range(1, len(seen) + 1))
