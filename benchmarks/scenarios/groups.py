"""Work distribution: Headwater's groups compared with those of Redis streams and NATS JetStream."""

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.brokers import PEERS
from benchmarks.errors import BenchmarkError
from benchmarks.load.jobs import FillBroker, Job, PacedWork, Work
from benchmarks.load.process import Result, run_job
from benchmarks.results import HEADWATER, NATS
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server, running
from benchmarks.subjects import Subject, headwater, headwater_in_memory

_STREAM = "work"
_PACED = "paced"
_TARGET = "results"
_BATCH = 100
_FILL_SECONDS_MAX = 150.0
_SETUP_SECONDS_MAX = 60.0
_LATENCY_MEMBERS = 32
_LATENCY_WRITERS = 8
_TRANSACTION_MEMBERS = 64
_MANY_GROUPS_MEMBERS = 64
# How much of the stream may be used up. If it ran empty, members would wait instead of work.
_USABLE = 0.9


@dataclass(frozen=True)
class _System:
    """One system: its name, how to start it durable or not, and what it can do."""

    name: str
    server: Callable[[bool], Subject]
    has_transactions: bool = True
    acks_with_fetch: bool = True


def steps(context: Context, subject: Subject) -> Generator[Step]:
    """The systems take turns; which one starts changes with each repetition."""
    if subject.name != HEADWATER:
        return  # the reference server has no groups
    systems = [_System(HEADWATER, lambda durable: _headwater(context.python, durable))]
    if context.compare:
        systems += [
            _System(peer.name, peer.server, peer.has_transactions, peer.acks_with_fetch)
            for peer in PEERS
        ]
    first = context.repetition % len(systems)
    for durable in (True, False):
        for system in [*systems[first:], *systems[:first]]:
            yield from _measured(context, system, durable)


def _headwater(python: str, durable: bool) -> Subject:
    return headwater(python) if durable else headwater_in_memory(python)


def _measured(context: Context, system: _System, durable: bool) -> Generator[Step]:
    kind = "durable" if durable else "not synced"
    try:
        with _filled(context, system, durable) as server:
            bench = _Bench(context, server, system)
            plan = context.plan
            consumers = plan.groups_consumers if durable else plan.groups_unsynced_consumers
            for variant, take in bench.variants(consumers):
                yield Step(f"{kind}, {variant}", take, system.name)
    except BenchmarkError as error:
        failure = error

        def fail() -> Result:
            raise failure

        yield Step(kind, fail, system.name)


@contextmanager
def _filled(context: Context, system: _System, durable: bool) -> Iterator[Server]:
    """A server with messages in its stream."""
    subject = system.server(durable)
    data_dir = context.work_dir / f"groups-{system.name}"
    try:
        if durable and system.name == NATS:
            # It syncs after every message and would take minutes, so it is filled beforehand.
            with _ready(system.server(False), data_dir) as server:
                _fill(context, server, system)
            with _ready(subject, data_dir) as server:
                yield server
        else:
            with _ready(subject, data_dir) as server:
                _fill(context, server, system)
                yield server
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


@contextmanager
def _ready(subject: Subject, data_dir: Path) -> Iterator[Server]:
    with running(subject, data_dir) as server:
        server.await_ready()
        yield server


def _fill(context: Context, server: Server, system: _System) -> None:
    plan = context.plan
    job = FillBroker(
        port=server.port,
        server_pid=server.pid,
        broker=system.name,
        stream=_STREAM,
        messages=plan.groups_messages,
        message_bytes=plan.message_bytes,
        batch_messages=_BATCH,
    )
    run_job(job, _FILL_SECONDS_MAX)


class _Bench:
    """A filled server of one system, and everything its members do."""

    def __init__(self, context: Context, server: Server, system: _System) -> None:
        self._plan = context.plan
        self._server = server
        self._system = system

    def variants(self, counts: tuple[int, ...]) -> Iterator[tuple[str, Callable[[], Result]]]:
        for word, fetch in (("one by one", 1), (f"batches of {_BATCH}", _BATCH)):
            for consumers in counts:
                noun = "consumer" if consumers == 1 else "consumers"
                yield f"{word}, {consumers} {noun}", self._work(consumers, fetch)
                if self._system.acks_with_fetch:
                    variant = f"acknowledged with the next fetch, {word}, {consumers} {noun}"
                    yield variant, self._work(consumers, fetch, combined=True)
        many = self._plan.groups_many
        yield f"{many:,} groups", self._work(_MANY_GROUPS_MEMBERS, _BATCH, groups=many)
        if self._system.has_transactions:
            yield "transactions", self._work(_TRANSACTION_MEMBERS, _BATCH, target=_TARGET)
        yield f"{self._plan.groups_latency_rate:,.0f} messages/s", self._paced

    def _work(
        self,
        consumers: int,
        fetch: int,
        groups: int = 1,
        target: str = "",
        combined: bool = False,
    ) -> Callable[[], Result]:
        plan = self._plan
        kind = "combined" if combined else target
        job = Work(
            port=self._server.port,
            server_pid=self._server.pid,
            broker=self._system.name,
            stream=_STREAM,
            # Each step has its own groups, which start at the first message.
            group_prefix=f"g{groups}-{consumers}-{fetch}{kind}-",
            groups=groups,
            consumers=consumers,
            fetch=fetch,
            messages_max=int(plan.groups_messages * groups * _USABLE),
            message_bytes=plan.message_bytes,
            warmup_seconds=plan.groups_warmup_seconds,
            seconds=plan.groups_seconds,
            target=target,
            combined=combined,
        )
        return lambda: self._run(job, plan.groups_seconds)

    def _paced(self) -> Result:
        plan = self._plan
        job = PacedWork(
            port=self._server.port,
            server_pid=self._server.pid,
            broker=self._system.name,
            stream=_PACED,
            writers=_LATENCY_WRITERS,
            consumers=_LATENCY_MEMBERS,
            rate=plan.groups_latency_rate,
            message_bytes=plan.message_bytes,
            warmup_seconds=plan.live_warmup_seconds,
            seconds=plan.groups_seconds,
            drain_seconds=plan.live_drain_seconds,
        )
        return self._run(job, plan.groups_seconds + plan.live_drain_seconds)

    def _run(self, job: Job, seconds: float) -> Result:
        result = run_job(job, seconds + _SETUP_SECONDS_MAX)
        self._server.check_alive()
        return result
