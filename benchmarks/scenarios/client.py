"""Headwater's Python client and the one from PyPI, against the same server."""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NoReturn

from benchmarks.clients.jobs import Client, ClientJob, Flavour, Kind, Live
from benchmarks.clients.process import run_client
from benchmarks.errors import LoadFailed, PeerFailed
from benchmarks.load.http import JSON, json_record, stream_path
from benchmarks.load.jobs import FillStream
from benchmarks.load.process import Result, run_job
from benchmarks.peers import install_peer
from benchmarks.plan import MIB
from benchmarks.results import HEADWATER, PEER_CLIENT
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server, ask
from benchmarks.subjects import Subject, headwater_in_memory

_SECONDS_MAX = 150.0
_CONNECT_SECONDS = 0.5
_CREATED = 201
_WARMUP = "client-warmup"
_WARMUP_MESSAGES = 1_000
_EARLY_PART = 16
_TEXT = "read-text"
_FLAVOURS: tuple[Flavour, ...] = ("blocking", "async")
_SUBJECTS: dict[Client, str] = {"headwater": HEADWATER, "peer": PEER_CLIENT}

# A reader slower than the producer would be cut off, and has to reconnect by itself. One of the two
# clients does not do that, so here the server is patient with both.
_PATIENCE = str(1024 * MIB)
_SERVER_OPTIONS = ("--reader-buffer-bytes-max", _PATIENCE, "--buffers-bytes-max", _PATIENCE)


@dataclass(frozen=True)
class _Variant:
    """What both clients do in turn."""

    name: str
    kind: Kind
    flavour: Flavour
    messages: int
    stream: str
    live: Live = "long-poll"
    early_messages: int = 0


def steps(context: Context, subject: Subject) -> Generator[Step]:
    """The clients take turns at everything; which one starts changes each time."""
    if subject.name != HEADWATER:
        return  # the servers are not compared here
    pythons: dict[Client, str] = {"headwater": context.python}
    if context.compare:
        try:
            pythons["peer"] = install_peer(context.python)
        except PeerFailed as error:
            failure = error
            yield Step("installation", lambda: _fail(failure), PEER_CLIENT)
    with context.fresh_server(headwater_in_memory(context.python, *_SERVER_OPTIONS)) as server:
        bench = _Bench(context, server, pythons)
        bench.fill(_WARMUP, _WARMUP_MESSAGES)
        for number, variant in enumerate(_variants(context), start=context.repetition):
            clients = list(pythons)
            for client in clients if number % 2 == 0 else reversed(clients):
                yield Step(
                    variant.name,
                    lambda c=client, v=variant: bench.take(c, v),  # type: ignore[misc]
                    _SUBJECTS[client],
                )


def _fail(error: PeerFailed) -> NoReturn:
    raise error


def _variants(context: Context) -> Iterator[_Variant]:
    plan = context.plan
    size = plan.message_bytes
    for flavour in _FLAVOURS:
        read = plan.client_read_bytes // size
        yield _Variant(f"read records, {flavour}", "read", flavour, read, "read-records")
        yield _Variant(f"read text, {flavour}", "read", flavour, read, _TEXT)
    lives: tuple[Live, ...] = ("long-poll", "sse")
    for live, flavour in product(lives, _FLAVOURS):
        name = f"follow by {live.replace('sse', 'SSE')}, {flavour}"
        messages = plan.client_follow_bytes // size
        yield _Variant(name, "follow", flavour, messages, f"follow-{live}-{flavour}", live)
    for flavour in _FLAVOURS:
        name, messages = f"produce records, {flavour}", plan.client_produce_messages
        yield _Variant(name, "produce", flavour, messages, f"produce-{flavour}")
    for flavour in _FLAVOURS:
        name = f"memory, {plan.client_memory_bytes // MIB:,} MiB, {flavour}"
        messages = plan.client_memory_bytes // size
        yield _Variant(
            name, "read", flavour, messages, "memory", early_messages=messages // _EARLY_PART
        )


class _Bench:
    """A server, the clients, and the streams filled so far."""

    def __init__(self, context: Context, server: Server, pythons: dict[Client, str]) -> None:
        self._context = context
        self._server = server
        self._pythons = pythons
        self._filled: set[str] = set()

    def take(self, client: Client, variant: _Variant) -> Result:
        # All read the same stream; following and producing use a separate one each.
        own = variant.kind != "read"
        path = f"{variant.stream}-{client}" if own else variant.stream
        if not own and path not in self._filled:
            self.fill(path, variant.messages)
        elif own:
            self._create(path)
        job = ClientJob(
            client=client,
            flavour=variant.flavour,
            kind=variant.kind,
            port=self._server.port,
            server_pid=self._server.pid,
            path=path,
            messages=variant.messages,
            message=json_record(self._context.plan.message_bytes).decode(),
            live=variant.live,
            early_messages=variant.early_messages,
            warmup_path=_WARMUP,
        )
        python = self._pythons[client]
        if variant.kind != "follow":
            return run_client(python, job, _SECONDS_MAX)
        result = run_client(python, job, _SECONDS_MAX, lambda: self._produce(path, job.messages))
        del result["others_cpu_share"]  # the producer is among the others
        return result

    def fill(self, path: str, messages: int) -> Result:
        """Append in large batches, as fast as the server accepts them."""
        plan = self._context.plan
        job = FillStream(
            port=self._server.port,
            server_pid=self._server.pid,
            path=path,
            messages=messages,
            message_bytes=plan.message_bytes,
            batch_messages=plan.catchup_batch_messages,
            record=path != _TEXT,
        )
        self._filled.add(path)
        return run_job(job, plan.prepare_seconds_max)

    def _produce(self, path: str, messages: int) -> Result:
        time.sleep(_CONNECT_SECONDS)
        result = self.fill(path, messages)
        return {"appended_per_second": messages / result["seconds"]}

    def _create(self, path: str) -> None:
        if ask(self._server.port, "PUT", stream_path(path), JSON) != _CREATED:
            raise LoadFailed(f"{path} cannot be created")
