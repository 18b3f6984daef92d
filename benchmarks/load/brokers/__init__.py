"""Connections to systems that distribute work, all built alike.

Headwater, Redis and NATS each have their own protocol. A broker here is one raw connection with one
request in flight and a callback for its answer, which parses no more of the answer than the next
request needs. With client libraries, the libraries would be what is measured.
"""

from benchmarks.load.brokers.base import Broker, connect
from benchmarks.load.brokers.headwater import HeadwaterBroker
from benchmarks.load.brokers.nats import NatsBroker
from benchmarks.load.brokers.redis import RedisBroker

BROKERS: dict[str, type[Broker]] = {
    "headwater": HeadwaterBroker,
    "redis": RedisBroker,
    "nats": NatsBroker,
}

__all__ = ["BROKERS", "Broker", "connect"]
