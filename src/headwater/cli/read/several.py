"""`headwater tail A B …`: several streams at once, each line with the stream it came from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.cli.exits import CliError, usage
from headwater.cli.failures import explain
from headwater.cli.output import output_closed, stdout
from headwater.cli.read.formats import Format
from headwater.cli.read.printing import ItemPrinter
from headwater.cli.target import PATIENT_S, Target
from headwater.cli.units import Unit
from headwater.client import AsyncHeadwater, HeadwaterError, Position

STREAMS_MAX: Final = 64
# The meaning of `lines` here: the stream, a tab and the message.
LINES: Final = "%t\\t%s\\n"


@dataclass(frozen=True, slots=True)
class Followed:
    """One of the streams, and where to start."""

    path: str
    unit: Unit
    format: Format
    start: Position


def check_several(paths: Sequence[str], format: str) -> str:
    """The format for these streams; raises usage errors for options that need a single stream."""
    if len(paths) > STREAMS_MAX:
        raise usage(f"at most {STREAMS_MAX} streams can be followed at a time")
    if len(set(paths)) < len(paths):
        raise usage("a stream is named twice")
    if format == "lines":
        return LINES
    if "%" not in format:
        raise usage("several streams are shown as lines, or by a template: --format '%t %s\\n'")
    return format


def follow_several(
    target: Target,
    followed: Sequence[Followed],
    wanted: Callable[[bytes], bool] | None,
    *,
    follow: bool,
) -> None:
    """Write messages of all streams as they arrive, until all are closed."""
    asyncio.run(_run(target, followed, wanted, follow=follow))


async def _run(
    target: Target,
    followed: Sequence[Followed],
    wanted: Callable[[bytes], bool] | None,
    *,
    follow: bool,
) -> None:
    async with target.connect_async(patience_s=PATIENT_S) as client:
        tasks = [
            asyncio.create_task(_copy(client, target, one, wanted, follow=follow))
            for one in followed
        ]
        reading = asyncio.gather(*tasks)
        gone = asyncio.create_task(output_closed())
        try:
            waited: set[asyncio.Future[Any]] = {reading, gone}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise BrokenPipeError
            reading.result()
        finally:
            for task in (*tasks, gone):
                task.cancel()
            await asyncio.gather(*tasks, gone, reading, return_exceptions=True)
    stdout().flush()


async def _copy(
    client: AsyncHeadwater,
    target: Target,
    one: Followed,
    wanted: Callable[[bytes], bool] | None,
    *,
    follow: bool,
) -> None:
    printer = ItemPrinter(
        one.unit, limit=None, position=one.start, format=one.format, wanted=wanted
    )
    stream = client.stream(one.path)
    reader = stream.follow(one.start, live="sse") if follow else stream.read(one.start)
    try:
        async with reader:
            async for batch in reader:
                printer.print(batch)
                stdout().flush()
        printer.finish()
    except HeadwaterError as error:
        explained: CliError = explain(error, url=target.url, stream=one.path)
        raise explained from error
