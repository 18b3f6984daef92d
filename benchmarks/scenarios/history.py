"""Sealed history: reading it from the start, starting anywhere, and what sealing costs appends."""

import re
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from urllib.request import urlopen

from benchmarks.errors import BenchmarkError, LoadFailed
from benchmarks.load.http import json_message
from benchmarks.load.jobs import FillStream, FirstByte, Replay
from benchmarks.load.process import Result, run_job
from benchmarks.nginx import FILE_NAME, nginx
from benchmarks.plan import MIB, Plan
from benchmarks.results import HEADWATER, NGINX
from benchmarks.scenarios import append
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server, running
from benchmarks.subjects import Subject, headwater

_STREAM, _LONG, _SHORT = "history", "history-long", "history-short"
_SMALL_MESSAGE_BYTES = 40
_SMALL_BATCH = 250
_FILL_CONNECTIONS = 8
_READ_SECONDS_MAX = 180.0
_SEAL_SECONDS_MAX = 300.0
_SEAL_POLL_SECONDS = 0.1
_METRICS_SECONDS_MAX = 30.0
_CHUNK_BYTES_MAX = MIB
_APPEND_STREAMS = 16
_APPEND_CONNECTIONS = 64
# Several files per second, however many appends there are.
_SEAL_OFTEN = ("--seal-after-ms", "250")
_SEAL_EVERYTHING = ("--seal-after-ms", "0")
_NO_SEAL = ("--no-seal",)


def steps(context: Context, subject: Subject) -> Generator[Step]:
    if subject.name != HEADWATER:
        yield from _of_reference(context, subject)
        return
    data_dir = _prepared(context, subject)
    with _ready(subject, data_dir) as server, _beside(context) as beside:
        memory: dict[int, float] = {}
        for readers in context.plan.history_readers:
            variant = _replay_variant(context.plan, readers)
            yield Step(variant, partial(_replay, context, server, readers, memory))
            if context.compare:
                yield Step(variant, partial(_replay_file, context, beside, readers), NGINX)
        long = f"{context.plan.history_long_messages:,} messages"
        yield Step(f"{long}, from anywhere", lambda: _first_byte(context, server))
    # Nothing has been read from this one before.
    with _ready(subject, data_dir) as fresh:
        yield Step(f"{long}, for the first time, 1 reader", lambda: _first_time(context, fresh))
    variant = f"{_APPEND_STREAMS} streams, {_APPEND_CONNECTIONS} connections, sealing"
    yield Step(variant, lambda: _append(context))


def _of_reference(context: Context, subject: Subject) -> Generator[Step]:
    plan = context.plan
    data_dir = context.work_dir / f"history-{subject.name}"
    try:
        with _ready(subject, data_dir) as server:
            _fill(plan, server)
            # This many readers keep it busy for minutes, and once is enough.
            every_time = plan.history_readers[:-1]
            for readers in every_time if context.repetition else plan.history_readers:
                take = partial(_replay, context, server, readers, {})
                yield Step(_replay_variant(plan, readers), take)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


@contextmanager
def _beside(context: Context) -> Iterator[Server | BenchmarkError]:
    """nginx with the same messages in a file, idle until its turn; or why there is none."""
    data_dir = context.work_dir / "history-nginx"
    data_dir.mkdir(exist_ok=True)
    stored = (json_message(context.plan.message_bytes) + b",") * _messages(context.plan)
    (data_dir / FILE_NAME).write_bytes(stored)
    with ExitStack() as stack:
        try:
            beside: Server | BenchmarkError = stack.enter_context(_ready(nginx(), data_dir))
        except BenchmarkError as error:
            beside = error
        yield beside


@contextmanager
def _ready(subject: Subject, data_dir: Path) -> Iterator[Server]:
    with running(subject, data_dir) as server:
        server.await_ready()
        yield server


# ── Preparing ────────────────────────────────────────────────────────────────────────────────────


def _prepared(context: Context, subject: Subject) -> Path:
    """A data directory with everything in history files, made once for all repetitions."""
    plan = context.plan
    data_dir = context.kept_dir(subject, "history")
    marker = data_dir.parent / f"{data_dir.name}.sealed"
    if marker.exists():
        return data_dir
    with _ready(headwater(context.python, *_NO_SEAL), data_dir) as server:
        stored = _fill(plan, server)
        stored += _fill_small(plan, server, _LONG, plan.history_long_messages)
        stored += _fill_small(plan, server, _SHORT, plan.history_short_messages)
    with _ready(headwater(context.python, *_SEAL_EVERYTHING), data_dir) as server:
        deadline = time.monotonic() + _SEAL_SECONDS_MAX
        while _sealed_bytes(server) < stored:
            if time.monotonic() > deadline:
                raise LoadFailed(f"not sealed after {_SEAL_SECONDS_MAX:.0f} s")
            time.sleep(_SEAL_POLL_SECONDS)
    marker.touch()
    return data_dir


def _messages(plan: Plan) -> int:
    return plan.history_bytes // plan.message_bytes


def _fill(plan: Plan, server: Server) -> int:
    """Fill the stream that is read from the start. Returns how many bytes of it are stored."""
    job = FillStream(
        port=server.port,
        server_pid=server.pid,
        path=_STREAM,
        messages=_messages(plan),
        message_bytes=plan.message_bytes,
        batch_messages=plan.catchup_batch_messages,
    )
    run_job(job, plan.prepare_seconds_max)
    # Each message is followed by a comma.
    return job.messages * (job.message_bytes + 1)


def _fill_small(plan: Plan, server: Server, path: str, messages: int) -> int:
    """A stream of small messages, in appends small enough to have very many of them."""
    job = FillStream(
        port=server.port,
        server_pid=server.pid,
        path=path,
        messages=messages,
        message_bytes=_SMALL_MESSAGE_BYTES,
        batch_messages=_SMALL_BATCH,
        connections=_FILL_CONNECTIONS,
    )
    run_job(job, plan.prepare_seconds_max)
    return messages * (_SMALL_MESSAGE_BYTES + 1)


def _sealed_bytes(server: Server) -> float:
    with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=_METRICS_SECONDS_MAX) as answer:
        found = re.search(rb"^headwater_sealed_bytes_total (\S+)", answer.read(), re.MULTILINE)
    if found is None:
        raise LoadFailed("the server does not tell how much it has sealed")
    return float(found[1])


# ── Measuring ────────────────────────────────────────────────────────────────────────────────────


def _replay_variant(plan: Plan, readers: int) -> str:
    noun = "reader" if readers == 1 else "readers"
    return f"{plan.history_bytes // MIB} MiB, {readers} {noun}"


def _replay(context: Context, server: Server, readers: int, memory: dict[int, float]) -> Result:
    plan = context.plan
    job = Replay(server.port, server.pid, _STREAM, readers, plan.history_seconds)
    result = run_job(job, _READ_SECONDS_MAX)
    # A JSON read is one array per response: each message and one separator or bracket after it, and
    # one opening bracket.
    expected = _messages(plan) * (plan.message_bytes + 1) + result["pass_responses"]
    _expect(result, expected)
    memory[readers] = result["memory_mib"]
    if 1 in memory and readers > 1:
        result["memory_growth"] = memory[readers] / memory[1]
    return result


def _first_time(context: Context, server: Server) -> Result:
    messages = context.plan.history_long_messages
    result = run_job(Replay(server.port, server.pid, _LONG, 1, 0.0), _READ_SECONDS_MAX)
    _expect(result, messages * (_SMALL_MESSAGE_BYTES + 1) + result["pass_responses"])
    return result


def _replay_file(context: Context, server: Server | BenchmarkError, readers: int) -> Result:
    if isinstance(server, BenchmarkError):
        raise server
    plan = context.plan
    # As much at a time as Headwater sends: whole appends, as many as fit into a chunk.
    append_bytes = plan.catchup_batch_messages * (plan.message_bytes + 1)
    job = Replay(
        port=server.port,
        server_pid=server.pid,
        path=FILE_NAME,
        readers=readers,
        seconds=plan.history_seconds,
        range_bytes=_CHUNK_BYTES_MAX // append_bytes * append_bytes,
    )
    result = run_job(job, _READ_SECONDS_MAX)
    _expect(result, _messages(plan) * (plan.message_bytes + 1))
    return result


def _expect(result: Result, pass_bytes: float) -> None:
    if result["pass_bytes"] != pass_bytes:
        raise LoadFailed(f"read {result['pass_bytes']:.0f} bytes instead of {pass_bytes:.0f}")


def _first_byte(context: Context, server: Server) -> Result:
    plan = context.plan
    job = FirstByte(
        port=server.port,
        server_pid=server.pid,
        long_path=_LONG,
        long_appends=plan.history_long_messages // _SMALL_BATCH,
        short_path=_SHORT,
        short_appends=plan.history_short_messages // _SMALL_BATCH,
        samples=plan.history_samples,
    )
    return run_job(job, _READ_SECONDS_MAX)


def _append(context: Context) -> Result:
    """Servers that seal and servers that do not, in turn; the medians are compared."""
    rounds = range(context.plan.history_append_rounds)
    sealing: list[Result] = []
    plain: list[Result] = []
    for number in rounds:
        turns: list[Callable[[], None]] = [
            lambda: sealing.append(_append_once(context, _SEAL_OFTEN)),
            lambda: plain.append(_append_once(context, _NO_SEAL)),
        ]
        for take in turns if number % 2 == 0 else reversed(turns):
            take()
    result = _medians(sealing)
    beside = _medians(plain)
    return result | {
        "unsealed_appends_per_second": beside["appends_per_second"],
        "unsealed_server_cpu_us_per_append": beside["server_cpu_us_per_append"],
        "sealing_rate": result["appends_per_second"] / beside["appends_per_second"],
    }


def _append_once(context: Context, options: tuple[str, ...]) -> Result:
    with context.fresh_server(headwater(context.python, *options)) as server:
        seconds = context.plan.history_append_seconds
        result = append.take(context, server, _APPEND_STREAMS, _APPEND_CONNECTIONS, seconds)
        sealed = _sealed_bytes(server)
    if options == _SEAL_OFTEN and not sealed:
        raise LoadFailed("nothing was sealed meanwhile")
    warmed_up = seconds + context.plan.append_warmup_seconds
    return result | {"sealed_mb_per_second": sealed / 1e6 / warmed_up}


def _medians(results: list[Result]) -> Result:
    return {key: median(result[key] for result in results) for key in results[0]}
