"""`headwater demo`: sample data for a running server."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from headwater.cli.serving.demo import CUSTOMERS, SALES, TICK_S, feed
from headwater.cli.shell import say
from headwater.cli.target import Target, with_target
from headwater.core.content_types import JSON


@with_target
def demo(
    target: Target,
    seconds: Annotated[
        int, typer.Option("--seconds", "-s", min=1, max=3600, help="How long to write.")
    ] = 3600,
    rate: Annotated[
        float,
        typer.Option("--rate", min=0.1, max=100, help="How many times faster than a real café."),
    ] = 1.0,
) -> None:
    """Write sample data into a running server: the sales and customers of a café.

    Sales go to demo/sales, about two per second. demo/customers holds the
    state of forty customers who come, change and go. It continues where it
    stopped, so starting it twice writes nothing twice. Ctrl-C stops it, and
    `headwater rm demo/sales demo/customers` removes what it wrote.

    Examples:

      headwater demo
      headwater demo --seconds 30 --rate 20
    """
    with target.connect(stream=SALES) as client:
        client.stream(SALES).ensure(content_type=JSON)
    say(f"writing to {SALES} and {CUSTOMERS} on {target.url}; `headwater tail {SALES}` shows it")
    asyncio.run(_feed(target, TICK_S / rate, round(seconds * rate / TICK_S)))


async def _feed(target: Target, tick_s: float, ticks: int) -> None:
    async with target.connect_async() as client:
        await feed(client, say, tick_s=tick_s, ticks=ticks)
