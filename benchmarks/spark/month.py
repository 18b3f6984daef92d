"""A month of small batches: do tables stay as quick as if they had been written in one go?

    python -m benchmarks.spark.month --batches 10000

The jobs of `archive` and `materialize` process the batches one by one, with the code that Spark's
tasks and driver run, in this process. The same messages in one batch make the tables to compare
with. Then both get the same queries in turn, as `headwater sql` runs them, and the quickest of
several answers counts. A month passes in minutes here, so replaced files are not kept.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable

from headwater.cli.tables.lake import ask, rows_of
from pyspark_headwater.pipelines.archive import Archive
from pyspark_headwater.pipelines.delta import Commit
from pyspark_headwater.pipelines.jobs import Job
from pyspark_headwater.pipelines.open_tables import OpenTables
from pyspark_headwater.pipelines.state import Materialize
from tests.spark.arrow_frames import batch_of, without_spark

MONTH_S: Final = 30 * 24 * 3600
STREAM: Final = "orders"
KEYS: Final = 2_000
QUESTIONS: Final = {
    "archive: count": 'SELECT count(*) FROM "archive/orders"',
    "archive: all messages": 'SELECT sum(length(value)) FROM "archive/orders"',
    "archive: one day": "SELECT count(value) FROM \"archive/orders\" WHERE date = '2026-01-15'",
    "state: count": 'SELECT count(*) FROM "state/orders/order"',
    "state: sum of a field": 'SELECT sum(n) FROM "state/orders/order"',
    "state: one key": "SELECT n FROM \"state/orders/order\" WHERE key = 'o7'",
}


@dataclass(frozen=True, slots=True)
class Files:
    """What a table consists of."""

    live: int
    on_disk: int
    in_log: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What many small batches leave, compared with one large batch.

    Attributes:
        files: of each table that was made of many batches.
        most: the most files that a table had at any time, by table.
        seconds: by query, how long the answer took: many batches, one batch.
        same: whether all answers were the same.
    """

    files: dict[str, Files]
    most: dict[str, int]
    seconds: dict[str, tuple[float, float]]
    same: bool


def change(number: int, dice: random.Random) -> dict[str, Any]:
    value = {"n": number, "item": dice.choice(["tea", "cake"]), "price": dice.randrange(1000) / 100}
    key = f"o{dice.randrange(KEYS)}"
    return {"type": "order", "key": key, "value": value, "headers": {"operation": "upsert"}}


def simulate(root: Path, batches: int, rows: int, runs: int) -> Figures:
    """Process a month, in that many batches, and run the queries."""
    dice = random.Random(19)
    month = {n: [change(n * rows + row, dice) for row in range(rows)] for n in range(batches)}
    spacing_s = MONTH_S // batches
    with _jobs(root / "many") as jobs, _jobs(root / "one") as others:
        most = dict.fromkeys(_tables(root / "many"), 0)
        for number, messages in month.items():
            frame = batch_of(STREAM, {number: messages}, spacing_s)
            for job in jobs:
                job(frame, Commit("many", number))
            if number % 25 == 24:
                for name, uri in _tables(root / "many").items():
                    most[name] = max(most[name], len(DeltaTable(uri).file_uris()))
        for job in others:
            job(batch_of(STREAM, month, spacing_s), Commit("one", 0))
    files = {name: _files(Path(uri)) for name, uri in _tables(root / "many").items()}
    answers = {what: _both(root, question, runs) for what, question in QUESTIONS.items()}
    seconds = {what: (many[1], one[1]) for what, (many, one) in answers.items()}
    return Figures(files, most, seconds, all(many[0] == one[0] for many, one in answers.values()))


@contextmanager
def _jobs(root: Path) -> Iterator[Sequence[Job]]:
    with pytest.MonkeyPatch.context() as patch:
        without_spark(patch)
        yield [
            Archive(str(root), OpenTables(0), STREAM),
            Materialize(str(root), tables=OpenTables(0)),
        ]


def _tables(root: Path) -> dict[str, str]:
    return {"archive": f"{root}/archive/{STREAM}", "state": f"{root}/state/{STREAM}/order"}


def _files(table: Path) -> Files:
    return Files(
        live=len(DeltaTable(str(table)).file_uris()),
        on_disk=len([*table.glob("*/*.parquet")]) - len([*table.glob("_delta_log/*.parquet")]),
        in_log=len([*table.glob("_delta_log/*")]),
    )


def _both(root: Path, question: str, runs: int) -> list[tuple[list[Any], float]]:
    """The answers from the tables of many batches and of one, and how long they took, in turn."""
    best: dict[str, tuple[list[Any], float]] = {}
    for _ in range(runs):
        for side in ("many", "one"):
            began = time.perf_counter()
            answer = [*rows_of(ask(str(root / side), question))]
            took = time.perf_counter() - began
            best[side] = (answer, min(took, best.get(side, ([], took))[1]))
    return [best["many"], best["one"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=20, help="messages in a batch")
    parser.add_argument("--runs", type=int, default=9, help="how often each question is asked")
    asked = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as root:
        found = simulate(Path(root), asked.batches, asked.rows, asked.runs)
    took = time.perf_counter() - began
    print(f"{asked.batches} batches of {asked.rows} messages, {took:.0f} s")
    for name, files in found.files.items():
        print(
            f"{name}: {files.live} files (at most {found.most[name]}), "
            f"{files.on_disk} on disk, {files.in_log} in the log"
        )
    for what, (many, one) in found.seconds.items():
        compared = f"written in one go {one * 1000:.1f} ms: {many / one:.2f}x"
        print(f"{what}: {many * 1000:.1f} ms, {compared}")
    print("the answers are the same" if found.same else "THE ANSWERS DIFFER")


if __name__ == "__main__":
    main()
