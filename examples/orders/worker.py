"""A worker: takes an order, packs it, and says that it is shipped. Kill it whenever you like.

    python -m examples.orders.worker --server http://127.0.0.1:4437 --name ann

An order is acknowledged in the same transaction that publishes its shipment and its new state. So
either all of that has happened or nothing, and each order is shipped once, whoever dies. What a
dead worker was packing goes to another one when its time is over.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any, Final

from headwater.client import Headwater, Message, RetryPolicy, StaleReceipt

ORDERS: Final = "shop/orders"
STATE: Final = "shop/state"
SHIPMENTS: Final = "shop/shipments"
PACKERS: Final = "packers"


def work(client: Headwater, name: str, packing_s: float) -> None:
    group = client.stream(ORDERS).group(PACKERS)
    state = client.stream(STATE)
    for message in group.consume(consumer=name):
        order = message.value | {"worker": name, "deliveries": message.deliveries}
        state.append(record(order | {"status": "packing"}))
        time.sleep(packing_s * random.uniform(0.5, 1.5))
        try:
            ship(message, order)
        except StaleReceipt:
            # It took so long that the order went to someone else; that one ships it.
            print(f"{name}: {order['id']} is somebody else's now", flush=True)


def ship(message: Message, order: dict[str, Any]) -> None:
    with message.transaction() as transaction:
        transaction.publish(SHIPMENTS, {"order": order["id"], "worker": order["worker"]})
        transaction.publish(STATE, record(order | {"status": "shipped"}))


def record(order: dict[str, Any]) -> dict[str, Any]:
    """The order as it is now, as a change of the state that pages show."""
    return {
        "type": "order",
        "key": order["id"],
        "value": order,
        "headers": {"operation": "upsert"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.orders.worker", description=__doc__)
    parser.add_argument("--server", default="http://127.0.0.1:4437")
    parser.add_argument("--name", required=True)
    parser.add_argument("--packing", type=float, default=1.5, help="seconds that an order takes")
    arguments = parser.parse_args()
    # A server that is away comes back.
    with Headwater(arguments.server, retry=RetryPolicy(give_up_after_s=None)) as client:
        work(client, arguments.name, arguments.packing)


if __name__ == "__main__":
    main()
