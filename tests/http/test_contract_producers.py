"""POST by idempotent producers: every row of the table, and what state they leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.http import contract
from tests.http.client import CLOSE, JSON, TEXT, Client, fresh, producer
from tests.http.conftest import watched
from tests.http.contract import Case, State, rows
from tests.http.wire import request_bytes
from tests.support.engines import serving

BIGGEST = 2**53 - 1

Present = Mapping[str, str | None]


def sent(name: str, given: State, stamp: Mapping[str, str], status: int, has: Present) -> Case:
    """A row for an append of one JSON value."""
    return Case(name, given, "POST", status, headers={**JSON, **stamp}, body=b"1", has=has)


def repeated(name: str, given: State, stamp: Mapping[str, str], body: bytes, has: Present) -> Case:
    """A row for a request that was stored before: 204, and nothing changes."""
    return Case(
        name,
        given,
        "POST",
        204,
        headers={**JSON, **stamp},
        body=body,
        has={"Stream-Next-Offset": None, **has},
        changes=False,
    )


KNOWN, CLOSED_BY = contract.with_producer, contract.closed_by_producer
IS_CLOSED: Present = {"Stream-Closed": "true"}

ACCEPTED = [
    sent(
        "unknown, first sequence",
        KNOWN,
        producer(0, 0, "new"),
        200,
        {"Producer-Epoch": "0", "Producer-Seq": "0", "Stream-Next-Offset": None},
    ),
    sent(
        "unknown, any epoch",
        KNOWN,
        producer(BIGGEST, 0, "new"),
        200,
        {"Producer-Epoch": str(BIGGEST), "Producer-Seq": "0"},
    ),
    sent(
        "the next one",
        KNOWN,
        producer(3, 3),
        200,
        {"Producer-Epoch": "3", "Producer-Seq": "3"},
    ),
    sent(
        "a higher epoch",
        KNOWN,
        producer(9, 0),
        200,
        {"Producer-Epoch": "9", "Producer-Seq": "0"},
    ),
    sent(
        "append and close",
        KNOWN,
        producer(3, 3) | CLOSE,
        200,
        {"Producer-Seq": "3", "Stream-Closed": "true"},
    ),
    Case(
        "close only",
        KNOWN,
        "POST",
        204,
        headers=producer(3, 3) | CLOSE,
        has={"Producer-Epoch": "3", "Producer-Seq": "3", "Stream-Closed": "true"},
    ),
    repeated("the last one again", KNOWN, producer(3, 2), b"1", {"Producer-Seq": "2"}),
    repeated(
        "an old one again: the highest accepted is named",
        KNOWN,
        producer(3, 0),
        b"1",
        {"Producer-Epoch": "3", "Producer-Seq": "2"},
    ),
    repeated(
        "a duplicate with a Stream-Seq of its time",
        contract.with_producer_and_seq,
        producer(0, 0) | {"Stream-Seq": "a"},
        b"1",
        {"Producer-Seq": "1"},
    ),
    repeated("the closing request again", CLOSED_BY, producer(3, 3) | CLOSE, b'"3"', IS_CLOSED),
    repeated("the same, without its body", CLOSED_BY, producer(3, 3) | CLOSE, b"", IS_CLOSED),
    repeated("the same, with another body", CLOSED_BY, producer(3, 3) | CLOSE, b"{", IS_CLOSED),
]

GAPS = [
    Case(
        name,
        contract.with_producer,
        "POST",
        409,
        "sequence_gap",
        headers=JSON | extra,
        body=b"1",
        has={"Producer-Expected-Seq": expected, "Producer-Received-Seq": received},
        lacks=("Stream-Closed",),
    )
    for name, extra, expected, received in [
        ("unknown, not from 0", producer(0, 1, "new"), "0", "1"),
        ("one too far", producer(3, 4), "3", "4"),
        ("far ahead", producer(3, BIGGEST), "3", str(BIGGEST)),
    ]
]

MALFORMED = [
    Case(name, contract.with_producer, "POST", 400, code, headers=JSON | extra, body=b"1")
    for name, extra, code in [
        ("id alone", {"Producer-Id": "p"}, "invalid_header"),
        ("epoch alone", {"Producer-Epoch": "3"}, "invalid_header"),
        ("sequence alone", {"Producer-Seq": "3"}, "invalid_header"),
        ("no id", {"Producer-Epoch": "3", "Producer-Seq": "3"}, "invalid_header"),
        ("no epoch", {"Producer-Id": "p", "Producer-Seq": "3"}, "invalid_header"),
        ("no sequence", {"Producer-Id": "p", "Producer-Epoch": "3"}, "invalid_header"),
        ("empty id", producer(3, 3, ""), "invalid_header"),
        ("id not ASCII", producer(3, 3, "\xe9"), "invalid_header"),
        ("empty epoch", producer("", 3), "invalid_header"),
        ("negative epoch", producer("-1", 0), "invalid_header"),
        ("signed epoch", producer("+3", 3), "invalid_header"),
        ("epoch with a point", producer("3.0", 3), "invalid_header"),
        ("epoch in words", producer("three", 3), "invalid_header"),
        ("epoch too large", producer(BIGGEST + 1, 0), "invalid_header"),
        ("empty sequence", producer(3, ""), "invalid_header"),
        ("negative sequence", producer(3, "-1"), "invalid_header"),
        ("sequence with an exponent", producer(3, "1e1"), "invalid_header"),
        ("sequence too large", producer(3, BIGGEST + 1), "invalid_header"),
        ("absurdly many digits", producer(3, "9" * 5000), "invalid_header"),
        ("a new epoch not from 0", producer(4, 1), "epoch_must_start_at_zero"),
    ]
]

FENCED = [
    Case(
        name,
        given,
        "POST",
        403,
        "stale_epoch",
        headers=JSON | producer(2, seq),
        body=b"1",
        has={"Producer-Epoch": "3"},
    )
    for name, given, seq in [
        ("a lower epoch", contract.with_producer, 3),
        ("a lower epoch, from 0", contract.with_producer, 0),
        ("a lower epoch on a closed stream", contract.closed_by_producer, 3),
    ]
]

CLOSED = [
    Case(
        name,
        contract.closed_by_producer,
        "POST",
        409,
        "stream_closed",
        headers=JSON | extra,
        body=b"1",
        has={"Stream-Closed": "true", "Stream-Next-Offset": None},
    )
    for name, extra in [
        ("the next sequence", producer(3, 4)),
        ("the next sequence, closing", producer(3, 4) | CLOSE),
        ("another producer, same numbers", producer(3, 3, "q") | CLOSE),
        ("no producer", {}),
    ]
]


@pytest.mark.parametrize("case", rows(ACCEPTED))
def test_accepted(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(GAPS))
def test_gap(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(MALFORMED))
def test_malformed(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(FENCED))
def test_fenced(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(CLOSED))
def test_closed(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("closer", [{}, producer(0, 0, "q"), producer(3, 3)])
def test_what_was_stored_may_be_sent_again_after_the_close(
    client: Client, closer: dict[str, str]
) -> None:
    path = fresh()
    contract.with_producer(client, path)
    closed = client.post(path, b"", JSON | CLOSE | closer)
    assert closed.status == 204
    for seq in (0, 2):
        for extra in ({}, CLOSE):
            reply = client.post(path, b"again", TEXT | producer(3, seq) | extra)
            assert (reply.status, reply.headers["Stream-Closed"]) == (204, "true")
            assert reply.next_offset == closed.next_offset
    assert client.post(path, b"1", JSON | producer(3, 4)).status == 409
    assert client.post(path, b"1", JSON | producer(2, 0)).status == 403


def test_a_refused_append_leaves_the_sequence_where_it_was(client: Client) -> None:
    path = client.create(JSON)
    assert client.post(path, b"{", JSON | producer(0, 0)).status == 400
    assert client.post(path, b"1", JSON | producer(0, 0) | {"Stream-Seq": "b"}).status == 200
    assert client.post(path, b"2", JSON | producer(0, 1) | {"Stream-Seq": "a"}).status == 409
    assert client.post(path, b"2", JSON | producer(0, 1)).status == 200
    assert client.get(path).body == b"[1,2]"


def test_a_new_stream_knows_no_producer(client: Client) -> None:
    path = client.create(TEXT)
    assert client.post(path, b"x", TEXT | producer(5, 0)).status == 200
    assert client.delete(path).status == 204
    client.create(TEXT, path=path)
    assert client.post(path, b"x", TEXT | producer(0, 0)).status == 200


def test_a_producer_id_is_compared_exactly(client: Client) -> None:
    path = client.create(TEXT)
    for name in ("p", "P", "p p", "p;q=1", '"p"'):
        assert client.post(path, b"x", TEXT | producer(0, 0, name)).status == 200, name


class TestOvertaking:
    """Requests of one producer that arrive in the wrong order, over several connections."""

    @pytest.fixture
    def patient(self, engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
        patience = ("--producer-wait-ms", "60000")
        with serving(engine, tmp_path_factory.mktemp("patient"), *patience) as server:
            yield from watched(server)

    def test_they_wait_for_each_other(self, patient: Client) -> None:
        path = patient.create(TEXT)
        wires = [patient.wire() for _ in range(6)]
        for seq, wire in reversed(list(enumerate(wires))):
            body = str(seq).encode()
            wire.send(request_bytes("POST", f"/v1/stream/{path}", TEXT | producer(0, seq), body))
        replies = [wire.reply() for wire in wires]
        for wire in wires:
            wire.close()
        assert [reply.status for reply in replies] == [200] * 6
        assert [reply.headers["Producer-Seq"] for reply in replies] == list("012345")
        assert patient.get(path).body == b"012345"

    def test_one_that_is_too_far_ahead_does_not_wait(self, patient: Client) -> None:
        # With a minute to wait, an answer within the patience of the client says enough.
        path = patient.create(TEXT)
        assert patient.post(path, b"x", TEXT | producer(0, 6)).status == 409
        assert patient.post(path, b"x", TEXT | producer(0, 0)).status == 200
