"""A small café, for people who want to see something: sales, and customers who come and go.

What happens at a tick depends only on its number, which is also the number of the producer's
request. So the feed continues where it stopped, whenever it is restarted, and messages sent twice
are stored once. It starts with some hundred sales and ends after an hour.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from headwater.client import AsyncHeadwater, AsyncStream, HeadwaterError
from headwater.client.protocol.streams import ProducerTag
from headwater.core.content_types import JSON

SALES: Final = "demo/sales"
CUSTOMERS: Final = "demo/customers"
TICK_S: Final = 1.0
TICKS_PER_START: Final = 3_600
TICKS_MAX: Final = 100_000
"""Nothing happens beyond this, however often it is started."""

_PRODUCER: Final = "headwater-demo"
_FIRST_SALES: Final = 300
_SALES_PER_TICK: Final = 2
_CUSTOMERS: Final = 40
_TICKS_PER_ARRIVAL: Final = 5
_MENU: Final = {"tea": 3.2, "coffee": 3.5, "cake": 4.8, "soup": 6.9, "sandwich": 5.4, "juice": 4.1}
_NAMES: Final = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jon")
_CITIES: Final = ("Berlin", "Lyon", "Porto", "Turin", "Utrecht")


# --- What happens --------------------------------------------------------------------------------


def sales_at(tick: int) -> list[dict[str, Any]]:
    """The sales of a tick, numbered without gaps."""
    if tick == 0:
        numbers = range(1, _FIRST_SALES + 1)
    else:
        first = _FIRST_SALES + 1 + (tick - 1) * _SALES_PER_TICK
        numbers = range(first, first + _SALES_PER_TICK)
    return [_sale(number, tick) for number in numbers]


def changes_at(tick: int) -> list[dict[str, Any]]:
    """How the customers change at a tick, as State Protocol messages.

    There are always 40. Every few ticks a new one comes and the one who was there longest goes.
    """
    if tick == 0:
        return [_change("insert", number, 0) for number in range(1, _CUSTOMERS + 1)]
    present = _present(tick)
    changes = []
    if tick % _TICKS_PER_ARRIVAL == 0:
        changes += [_change("delete", present[0] - 1, tick), _change("insert", present[-1], tick)]
    # The last one may have come only now.
    somebody = _chance("update", tick).choice(present[:-1])
    return [*changes, _change("update", somebody, tick)]


def _sale(number: int, tick: int) -> dict[str, Any]:
    chance = _chance("sale", number)
    item = chance.choice([*_MENU])
    quantity = chance.randint(1, 3)
    return {
        "sale": number,
        "customer": _key(chance.choice(_present(tick))),
        "item": item,
        "quantity": quantity,
        "total": round(_MENU[item] * quantity, 2),
    }


def _change(operation: str, number: int, tick: int) -> dict[str, Any]:
    change = {
        "type": "customers",
        "key": _key(number),
        "headers": {"operation": operation},
    }
    if operation == "delete":
        return change
    chance = _chance("customer", number)
    visits = 1 if operation == "insert" else 2 + _chance("visits", tick).randrange(50)
    value = {"name": chance.choice(_NAMES), "city": chance.choice(_CITIES), "visits": visits}
    return {**change, "value": value}


def _present(tick: int) -> range:
    """The numbers of the customers who are present."""
    gone = tick // _TICKS_PER_ARRIVAL
    return range(gone + 1, gone + 1 + _CUSTOMERS)


def _key(number: int) -> str:
    return f"c{number:04d}"


def _chance(what: str, number: int) -> random.Random:
    return random.Random(f"{what} {number}")


# --- Sending it ----------------------------------------------------------------------------------


async def feed(
    client: AsyncHeadwater,
    say: Callable[[str], None],
    *,
    tick_s: float = TICK_S,
    ticks: int = TICKS_PER_START,
) -> None:
    """Write what happens until the time is over, or the server refuses it."""
    ends = await asyncio.gather(
        _feed_stream(client, SALES, sales_at, tick_s, ticks),
        _feed_stream(client, CUSTOMERS, changes_at, tick_s, ticks),
    )
    for end in dict.fromkeys(ends):
        say(f"the demo feed has ended: {end}")


async def _feed_stream(
    client: AsyncHeadwater,
    path: str,
    messages_at: Callable[[int], list[dict[str, Any]]],
    tick_s: float,
    ticks: int,
) -> str:
    """Feed one stream; returns why it ended."""
    stream = client.stream(path)
    try:
        await stream.ensure(content_type=JSON)
        last = await _begin(client, stream, messages_at(0))
        for tick in range(last + 1, min(last + 1 + ticks, TICKS_MAX)):
            await asyncio.sleep(tick_s)
            await stream.append_tagged(messages_at(tick), ProducerTag(_PRODUCER, 0, tick))
    except HeadwaterError as error:
        return f"{path}: {error.message}"
    return "it is a small one; start again for more of it"


async def _begin(
    client: AsyncHeadwater, stream: AsyncStream, messages: list[dict[str, Any]]
) -> int:
    """Send the first tick, which may be stored already; returns the last stored tick."""
    tag = {"Producer-Id": _PRODUCER, "Producer-Epoch": "0", "Producer-Seq": "0"}
    answer = await client.request("POST", stream.url, json=messages, headers=tag)
    return int(answer.headers.get("producer-seq", "0"))
