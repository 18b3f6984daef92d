"""Who gets the next message: members with room take turns, message by message.

A member has room for a number of messages and a number of bytes. Members without room are skipped.
A member that was given nothing takes any one message, however large: otherwise that message would
never be delivered. If everyone gets all they want anyway, but not at once, members are served in
turn, each in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Taker(NamedTuple):
    """A member that takes messages."""

    consumer: str
    most: int
    most_bytes: int


def deal(sizes: Sequence[int], takers: Sequence[Taker]) -> Sequence[Sequence[int]]:
    """The message indexes for each taker. Messages that nobody has room for are left out."""
    total = sum(sizes)
    if len(takers) == 1:
        _, most, most_bytes = takers[0]
        if total <= most_bytes:
            return [range(len(sizes) if len(sizes) <= most else most)]
    if total <= min([taker.most_bytes for taker in takers], default=0):
        return _deal_rounds(len(sizes), takers)
    return _deal_singly(sizes, takers)


def _deal_rounds(count: int, takers: Sequence[Taker]) -> list[list[int]]:
    """Only the number of messages matters, so deal whole rounds at once."""
    dealt: list[list[int]] = [[] for _ in takers]
    playing = [index for index, taker in enumerate(takers) if taker.most > 0]
    at = 0
    while at < count and playing:
        left = count - at
        room = min(takers[index].most - len(dealt[index]) for index in playing)
        rounds = min(room, left // len(playing))
        if rounds == 0:
            for place, index in enumerate(playing[:left]):
                dealt[index].append(at + place)
            break
        end = at + rounds * len(playing)
        for place, index in enumerate(playing):
            dealt[index] += range(at + place, end, len(playing))
        at = end
        playing = [index for index in playing if len(dealt[index]) < takers[index].most]
    return dealt


def _deal_singly(sizes: Sequence[int], takers: Sequence[Taker]) -> list[list[int]]:
    dealt: list[list[int]] = [[] for _ in takers]
    given_bytes = [0] * len(takers)
    turn = [index for index, taker in enumerate(takers) if taker.most > 0]

    def has_room(index: int, size: int) -> bool:
        return not dealt[index] or given_bytes[index] + size <= takers[index].most_bytes

    for at, size in enumerate(sizes):
        index = next((index for index in turn if has_room(index, size)), None)
        if index is None:
            break
        dealt[index].append(at)
        given_bytes[index] += size
        turn.remove(index)
        if len(dealt[index]) < takers[index].most:
            turn.append(index)
    return dealt


def next_turns(dealt: Sequence[Sequence[int]]) -> list[int]:
    """The takers in order of their next turn: the one served last comes last."""
    if len(dealt) == 1:
        return [0]
    return sorted(range(len(dealt)), key=lambda index: dealt[index][-1] if dealt[index] else -1)
