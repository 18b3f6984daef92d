"""Updates that a document holds back.

An update may depend on others that have not arrived: its author had them, but their producer is
late. A Yjs document sets such an update aside and applies it when the others arrive. Its encoded
state does not include it. So a snapshot of only that state would lose the update for everyone who
starts from it, and the update must be added to the snapshot.

The state of a document says for each client how many of its operations are applied. An update is
applied when, compared with that state, it has no operation left and deletes nothing beyond it.
"""

from __future__ import annotations

from headwater.core.documents.framing import read_number

State = dict[int, int]
"""The number of applied operations by client."""


def parse_state(encoded: bytes) -> State:
    count, at = read_number(encoded, 0)
    state: State = {}
    for _ in range(count):
        client, at = read_number(encoded, at)
        state[client], at = read_number(encoded, at)
    return state


def is_applied(rest: bytes, state: State) -> bool:
    """Whether no part of an update is pending, given the `rest` of it beyond a state."""
    if rest[0] != 0:
        return False
    if rest == b"\0\0":
        return True
    clients, at = read_number(rest, 1)
    for _ in range(clients):
        client, at = read_number(rest, at)
        ranges, at = read_number(rest, at)
        for _ in range(ranges):
            clock, at = read_number(rest, at)
            length, at = read_number(rest, at)
            if clock + length > state.get(client, 0):
                return False
    return True
