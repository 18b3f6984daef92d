"""One flipped bit in the database file: an error or the right data, never wrong data.

The database is small and has been folded into one file (no log is left), so that every page is in
use and a bit can be flipped anywhere. Everything that an engine can be asked is compared with what
it said before the damage.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import DataCorrupt, StorageUnavailable
from headwater.core.expiry import Lifetime
from headwater.core.lineage import ForkRequest
from headwater.core.producers import ProducerStamp
from headwater.store.engine import Problem
from headwater.store.sqlite.database import DATABASE_NAME, DataDirectoryError
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.verify import verify_database
from tests.support.decided import CommittedStreams

HEADER_BYTES = 100
REFUSED = "refused"
Answers = dict[str, object]


def fill(engine: SqliteEngine) -> CommittedStreams:
    """Several pages of everything, bodies that need more than one page among them."""
    streams = CommittedStreams(engine)
    for number in range(8):
        lifetime = Lifetime(ttl_s=60) if number % 2 else Lifetime()
        streams.create(Create(f"s/{number}", body=b"first" * number, lifetime=lifetime), 1_000)
        for seq in range(4):
            body = bytes([number, seq]) * (1 + 500 * seq)
            stamp = ProducerStamp(f"p{number}", 0, seq)
            command = Append(body, "application/octet-stream", producer=stamp)
            streams.append(f"s/{number}", command, 1_001 + seq)
    streams.create(Create("fork", fork=ForkRequest("s/3", "-1", 4), body=b"own"), 2_000)
    streams.append("s/4", Append(close=True), 2_001)
    streams.delete("s/3", 2_002)
    return streams


def ask_everything(engine: SqliteEngine, streams: CommittedStreams) -> Answers:
    answers: Answers = {}

    def ask(name: str, question: Callable[[], object]) -> None:
        try:
            answers[name] = question()
        except (DataCorrupt, StorageUnavailable):
            answers[name] = REFUSED

    ask("next id", engine.streams.next_id)
    ask("listing", lambda: engine.streams.summaries("", "", 100))
    ask("expired", lambda: engine.streams.expired(10**9, 100))
    ask("deadline", engine.streams.next_deadline_ms)
    for path, state in streams.by_path.items():
        own = state.config.id
        ask(f"load {path}", lambda path=path: engine.streams.load(path))  # type: ignore[misc]
        ask(f"id {own}", lambda own=own: engine.streams.load_id(own))  # type: ignore[misc]
        ask(f"producer {own}", lambda own=own: engine.streams.producer(own, f"p{own - 1}"))  # type: ignore[misc]
        for span in state.config.lineage.spans(0, state.tail):
            ask(f"read {path} {span}", lambda span=span: engine.appends.read(span, 10**9))  # type: ignore[misc]
            ask(f"find {path} {span}", lambda s=span: engine.appends.append_at(s.run, s.end - 1))  # type: ignore[misc]
    return answers


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, CommittedStreams, Answers]:
    directory = tmp_path_factory.mktemp("sound")
    with closing(SqliteEngine(directory)) as engine:
        streams = fill(engine)
        answers = ask_everything(engine, streams)
    assert REFUSED not in answers.values()
    assert not (directory / f"{DATABASE_NAME}-wal").exists()
    return (directory / DATABASE_NAME).read_bytes(), streams, answers


def bits_to_flip(size: int) -> list[int]:
    """Some bit of each byte of the header, and bits anywhere; the same ones in every run."""
    random = Random(20_240_917)
    header = [byte * 8 + random.randrange(8) for byte in range(HEADER_BYTES)]
    return header + [random.randrange(size * 8) for _ in range(150)]


def test_a_flipped_bit_is_an_error_or_makes_no_difference(
    sound: tuple[bytes, CommittedStreams, Answers], tmp_path: Path
) -> None:
    content, streams, truth = sound
    path = tmp_path / DATABASE_NAME
    noticed = 0
    for bit in bits_to_flip(len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        path.write_bytes(damaged)
        found = [line for line in verify_database(path) if isinstance(line, Problem)]
        assert found, f"verify missed bit {bit}"
        try:
            engine = SqliteEngine(tmp_path)
        except DataDirectoryError:
            noticed += 1
            continue
        with closing(engine):
            answers = ask_everything(engine, streams)
        wrong = {
            question: answer
            for question, answer in answers.items()
            if answer not in (truth[question], REFUSED)
        }
        assert wrong == {}, f"bit {bit}"
        noticed += REFUSED in answers.values()
    assert noticed > HEADER_BYTES


def test_a_file_that_is_cut_short_is_an_error_or_makes_no_difference(
    sound: tuple[bytes, CommittedStreams, Answers], tmp_path: Path
) -> None:
    content, streams, truth = sound
    random = Random(4)
    path = tmp_path / DATABASE_NAME
    pages = len(content) // 4096
    sizes = [page * 4096 for page in range(pages)] + [
        random.randrange(len(content)) for _ in range(10)
    ]
    for size in sizes:
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        path.write_bytes(content[:size])
        assert any(isinstance(line, Problem) for line in verify_database(path)), f"{size} bytes"
        try:
            engine = SqliteEngine(tmp_path)
        except DataDirectoryError:
            continue
        with closing(engine):
            answers = ask_everything(engine, streams)
        assert all(answer in (truth[name], REFUSED) for name, answer in answers.items()), size
