"""Ports of this machine for what the examples start."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from typing import Final

# Below those that the system gives to outgoing connections, which could take one meanwhile.
_PORTS: Final = range(10_000, 20_000)


def free_port() -> int:
    """One that was free a moment ago."""
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port between {_PORTS.start} and {_PORTS.stop} is free")
