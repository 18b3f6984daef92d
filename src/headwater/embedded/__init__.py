"""Streams inside your own process: what the server does, without a server.

    async with headwater.open("data") as log:
        orders = log.stream("orders")
        await orders.ensure()
        await orders.append({"id": 1})
        async for message in orders.follow().messages():
            ...

In code that is not async:

    with headwater.open("data") as log:
        log.stream("orders").append({"id": 2})

All guarantees of the server hold here too: when `append` returns, the data is committed, and only
committed data is read. One process uses a directory at a time.
"""

from headwater.embedded.log import EmbeddedLog, ReadResult, Subscription, Update
from headwater.embedded.opening import Opening, open

__all__ = ["EmbeddedLog", "Opening", "ReadResult", "Subscription", "Update", "open"]
