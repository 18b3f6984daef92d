"""`headwater bench`: how fast is a server?"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
import uvloop

from headwater.cli.bench.load import MESSAGE_BYTES_MIN, Load, Outcome, latency, run
from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.failures import explain
from headwater.cli.output import Json, Progress, console, new_table, stdout, write_json, write_line
from headwater.cli.records import BenchRecord, LatencyRecord
from headwater.cli.target import Target, with_target
from headwater.client import HeadwaterError


@with_target
def bench(
    target: Target,
    connections: Annotated[
        int,
        typer.Option("-c", "--connections", min=1, max=1000, help="Appends in flight at a time."),
    ] = 10,
    streams: Annotated[
        int, typer.Option("-s", "--streams", min=1, max=10_000, help="Streams to write to.")
    ] = 10,
    message_bytes: Annotated[
        int, typer.Option("--size", min=MESSAGE_BYTES_MIN, max=1 << 24, help="Bytes per message.")
    ] = 200,
    count: Annotated[
        int,
        typer.Option("-n", "--count", min=1, max=100_000_000, help="Stop after this many appends."),
    ] = 10_000,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=3600, help="Stop after this long.")
    ] = 10.0,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=0.1,
            help="Appends per second in total; latency then counts from when each was due. "
            "Default: as many as possible.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Also follow every stream (SSE) and measure delivery.")
    ] = False,
    prefix: Annotated[str, typer.Option("--prefix", help="Prefix for the streams.")] = "bench",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the streams.")] = False,
    json: Json = False,
) -> None:
    """Measure a server: append latency and throughput, and delivery.

    Works with any Durable Streams server. Creates its own JSON streams,
    appends one message per request, prints how long that took, and deletes
    the streams. It stops at --count or --seconds, whichever comes first.

    It runs in one process, so its own work is part of the figures, and a
    fast server may outrun it. To measure more, run several at a time.

    Examples:

      headwater bench
      headwater bench -c 100 -s 1000 --seconds 30 --count 1000000
      headwater bench --follow --rate 500 --json
    """
    load = Load(
        connections, streams, message_bytes, count, seconds, rate, follow, prefix.strip("/"), keep
    )
    if not load.prefix:
        raise usage("--prefix is the path below which the streams go; it cannot be empty")
    with Progress("appending", total=count) as progress:
        outcome = _run(target, load, progress)
    record = BenchRecord(
        url=target.url,
        connections=connections,
        streams=streams,
        message_bytes=message_bytes,
        seconds=round(outcome.seconds, 3),
        errors=outcome.errors,
        append=latency(outcome.latencies_ns, outcome.seconds),
        delivery=latency(outcome.deliveries_ns, outcome.seconds) if follow else None,
    )
    if json:
        write_json(record)
    else:
        _print_table(record)
    if outcome.first_error is not None:
        reason = explain(outcome.first_error, url=target.url)
        raise CliError(f"{outcome.errors} appends failed, the first with: {reason.message}")
    if outcome.errors:
        raise CliError(f"{outcome.errors} appends were not answered in time")


def _run(target: Target, load: Load, progress: Progress) -> Outcome:
    def report(done: int) -> None:
        if done % 64 == 0:
            progress.update(done, f"{done:,} appends", in_bytes=False)

    async def work() -> Outcome:
        async with target.connect_async() as client:
            return await run(client, load, report)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work())
    except HeadwaterError as error:
        raise explain(error, url=target.url) from error
    except TimeoutError:
        raise CliError(
            f"{target.url} did not deliver a first message over SSE; try without --follow",
            ExitCode.UNAVAILABLE,
        ) from None
    except ValueError as error:
        raise usage(f"{error}; choose another --prefix") from None


def _print_table(record: BenchRecord) -> None:
    write_line(
        f"{record.url}: {record.connections} connections, {record.streams} streams, "
        f"{record.message_bytes} bytes a message, {record.seconds:.1f} s"
    )
    stdout().flush()
    table = new_table("", "#COUNT", "#PER SECOND", "#P50 MS", "#P90 MS", "#P99 MS", "#MAX MS")
    rows: dict[str, LatencyRecord | None] = {"append": record.append, "delivery": record.delivery}
    for name, figures in rows.items():
        if figures is not None:
            table.add_row(
                name,
                f"{figures.count:,}",
                f"{figures.per_s:,.0f}",
                f"{figures.p50_ms:,.2f}",
                f"{figures.p90_ms:,.2f}",
                f"{figures.p99_ms:,.2f}",
                f"{figures.max_ms:,.2f}",
            )
    console().print(table)
