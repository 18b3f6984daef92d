"""The checker itself: a good history passes, and each kind of wrong one is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.history import (
    WAKE_PATIENCE_S,
    Delivered,
    Edited,
    Fate,
    History,
    Part,
    Seen,
    Sent,
    Settled,
    check,
)


def acked(client: str, began: float, ended: float, **messages: list[str]) -> Sent:
    return Sent(client, messages, began, ended, Fate.ACKED)


def good() -> History:
    """Two streams, two writers, a transaction, a reader, a waiter, a worker."""
    return History(
        sent=[
            acked("w1", 0, 1, s=["1"]),
            acked("w2", 2, 3, s=["2", "3"]),
            acked("t", 4, 5, s=["4"], other=["5"]),
            Sent("w1", {"s": ["open"]}, 6),
            Sent("w1", {"s": ["no"]}, 6, 7, Fate.REFUSED),
        ],
        seen=[
            Seen("r", "s", 0, ["1"], 1, 1.5),
            Seen("r", "s", 1, ["2", "3", "4"], 5.5, 6),
            Seen("q", "other", 0, ["5"], 6.5, 7),
            Seen("w", "s", 5, [], 10, 40, waited=True),
        ],
        delivered=[Delivered("s", ["1", "2"], 3.5, 4)],
        settled=[Settled("s", ["1", "2"], 4, 4.5, Fate.ACKED)],
        final={"s": ["1", "2", "3", "4", "open"], "other": ["5"]},
        unsettled={"s": 0},
        edited={"d": Edited({7: 2}, [{7: 2, 8: 1}, {7: 2, 8: 1}], [("ab", ""), ("ab", "")])},
    )


def recorded(history: History) -> History:
    """The same, with its reads as they are recorded while clients read."""
    reads, history.seen = history.seen, []
    for seen in sorted(reads, key=lambda one: one.ended):
        history.saw(seen)
    return history


def test_a_good_history() -> None:
    assert check(good()) == []
    assert check(recorded(good())) == []


def test_what_others_have_seen_is_kept_once() -> None:
    history = History()
    for reader in "abc":
        history.saw(Seen(reader, "s", 0, ["1", "2"], 1, 2))
        history.saw(Seen(reader, "s", 2, ["3"], 3, 4))
    history.saw(Seen("d", "s", 0, ["1", "2", "3", "4"], 5, 6))
    assert history.known == {"s": ["1", "2", "3", "4"]}
    parts = [seen.messages for seen in history.seen]
    assert all(isinstance(part, Part) for part in parts)
    assert [list(part) for part in parts] == [*[["1", "2"], ["3"]] * 3, ["1", "2", "3", "4"]]
    # Whoever saw something else keeps that.
    history.saw(Seen("e", "s", 1, ["2", "4"], 7, 8))
    assert history.seen[-1].messages == ["2", "4"]
    assert history.known == {"s": ["1", "2", "3", "4"]}


def lose_an_acknowledged_message(history: History) -> None:
    history.final["s"].remove("3")


def store_twice(history: History) -> None:
    history.final["s"].append("2")


def store_what_was_refused(history: History) -> None:
    history.final["s"].append("no")


def store_what_nobody_sent(history: History) -> None:
    history.final["s"].append("ghost")


def turn_around_two_writers(history: History) -> None:
    history.final["s"][:3] = ["2", "3", "1"]


def turn_around_one_append(history: History) -> None:
    history.final["s"][1:3] = ["3", "2"]


def show_another_order(history: History) -> None:
    history.seen[1].messages = ["3", "2", "4"]


def show_a_message_that_vanishes(history: History) -> None:
    history.seen[1].messages = ["2", "never", "4"]


def answer_with_an_old_tail(history: History) -> None:
    history.seen.append(Seen("late", "s", 0, ["1"], 20, 21))


def show_less_than_another_reader_saw(history: History) -> None:
    # Nobody was told that it is there, but somebody has seen it.
    history.seen.append(Seen("first", "s", 4, ["open"], 8, 9))
    history.seen.append(Seen("second", "s", 0, ["1", "2", "3", "4"], 9.5, 9.6))


def see_what_is_not_yet_sent(history: History) -> None:
    history.seen.append(Seen("prophet", "s", 0, ["1", "2", "3", "4"], 3.1, 3.2))


def store_half_a_transaction(history: History) -> None:
    history.sent[2].fate = Fate.UNKNOWN
    history.seen.pop(2)
    history.final["other"].clear()


def show_half_a_transaction(history: History) -> None:
    history.sent[2].ended = 100
    history.seen.append(Seen("half", "other", 0, [], 6.1, 6.2))


def settle_twice(history: History) -> None:
    history.settled.append(Settled("s", ["1"], 5, 6, Fate.ACKED))


def deliver_what_is_settled(history: History) -> None:
    history.delivered.append(Delivered("s", ["2"], 5, 6))


def deliver_what_is_not_there(history: History) -> None:
    history.delivered.append(Delivered("s", ["ghost"], 5, 6))


def forget_a_message_of_a_group(history: History) -> None:
    history.unsettled["s"] = 1


def miss_a_wake(history: History) -> None:
    late = 10 + 2 * WAKE_PATIENCE_S
    history.sent.append(acked("w3", 10, 11, s=["new"]))
    history.final["s"].append("new")
    history.seen[3] = Seen("w", "s", 5, [], 9, late, waited=True)


def leave_an_editor_behind(history: History) -> None:
    history.edited["d"].states[1][8] = 0


def show_one_document_in_two_ways(history: History) -> None:
    history.edited["d"].shown[1] = ("ba", "")


def lose_a_change(history: History) -> None:
    history.edited["d"].written[8] = 2


@pytest.mark.parametrize(
    "spoil, kind",
    [
        (lose_an_acknowledged_message, "lost"),
        (store_twice, "order"),
        (store_what_was_refused, "order"),
        (store_what_nobody_sent, "order"),
        (turn_around_two_writers, "real time"),
        (turn_around_one_append, "order"),
        (show_another_order, "order"),
        (show_a_message_that_vanishes, "order"),
        (answer_with_an_old_tail, "stale"),
        (show_less_than_another_reader_saw, "stale"),
        (see_what_is_not_yet_sent, "stale"),
        (store_half_a_transaction, "transactions"),
        (show_half_a_transaction, "transactions"),
        (settle_twice, "groups"),
        (deliver_what_is_settled, "groups"),
        (deliver_what_is_not_there, "groups"),
        (forget_a_message_of_a_group, "groups"),
        (miss_a_wake, "wakes"),
        (leave_an_editor_behind, "documents"),
        (show_one_document_in_two_ways, "documents"),
        (lose_a_change, "documents"),
    ],
)
@pytest.mark.parametrize("record", [False, True])
def test_a_wrong_history_is_found(
    spoil: Callable[[History], None], kind: str, record: bool
) -> None:
    history = good()
    spoil(history)
    found = check(recorded(history) if record else history)
    assert any(line.startswith(f"{kind}: ") for line in found), found
