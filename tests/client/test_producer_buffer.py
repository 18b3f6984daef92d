"""Batching and back-pressure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.protocol.producer_buffer import MessageBuffer


def new_buffer(
    max_bytes: int = 100,
    max_batch_bytes: int = 10,
    max_batch_messages: int = 4,
    linger_s: float = 5.0,
) -> MessageBuffer[int]:
    return MessageBuffer(
        max_bytes=max_bytes,
        max_batch_bytes=max_batch_bytes,
        max_batch_messages=max_batch_messages,
        linger_s=linger_s,
    )


@given(st.lists(st.binary(min_size=1, max_size=15), max_size=30))
def test_batches_keep_order_and_limits(messages: list[bytes]) -> None:
    buffer = new_buffer()
    for number, message in enumerate(messages):
        buffer.add(message, number, now=0.0)
    taken: list[bytes] = []
    numbers: list[int] = []
    while buffer.due_at() is not None:
        parcel = buffer.take()
        assert parcel.first == len(taken)
        assert parcel.size == sum(map(len, parcel.messages))
        assert len(parcel.messages) <= 4
        assert len(parcel.messages) == 1 or parcel.size <= 10
        taken += parcel.messages
        numbers += parcel.payloads
        buffer.release(parcel)
    assert taken == messages
    assert numbers == list(range(len(messages)))
    assert buffer.first == buffer.added == len(messages)
    assert buffer.has_room(10**9), "an empty buffer takes anything"


def test_a_batch_is_due_when_its_oldest_message_has_waited() -> None:
    buffer = new_buffer()
    assert buffer.due_at() is None
    buffer.add(b"a", 0, now=7.0)
    buffer.add(b"b", 1, now=8.0)
    assert buffer.due_at() == 12.0


def test_a_full_batch_is_due_at_once() -> None:
    by_bytes, by_count = new_buffer(), new_buffer()
    by_bytes.add(b"x" * 10, 0, now=7.0)
    for number in range(4):
        by_count.add(b"x", number, now=7.0)
    assert by_bytes.due_at() == by_count.due_at() == 0.0


def test_flush_is_for_what_is_there_now() -> None:
    buffer = new_buffer()
    buffer.add(b"a", 0, now=7.0)
    buffer.flush()
    assert buffer.due_at() == 0.0
    buffer.take()
    buffer.add(b"b", 1, now=8.0)
    assert buffer.due_at() == 13.0


def test_room_is_taken_until_the_messages_are_settled() -> None:
    buffer = new_buffer(max_bytes=10)
    assert buffer.has_room(50)
    buffer.add(b"x" * 8, 0, now=0.0)
    assert buffer.has_room(2)
    assert not buffer.has_room(3)
    parcel = buffer.take()
    assert not buffer.has_room(3), "sent is not settled"
    buffer.release(parcel)
    assert buffer.has_room(3)


def test_the_producer_is_woken_by_the_first_message_and_by_a_full_batch() -> None:
    buffer = new_buffer()
    woken = [buffer.add(b"x", number, now=0.0) for number in range(6)]
    assert woken == [True, False, False, True, False, False]
    buffer.take()
    assert [buffer.add(b"x", n, now=0.0) for n in range(2)] == [False, True]
