"""File descriptors: connections leave enough of them for everything else.

The log, its history and outgoing requests need descriptors too, and a server that has none left
cannot even store what it has accepted. So connections are limited to what the operating system
allows minus a reserve. The kernel may hand over as many connections at once as its queue holds,
before any of them can be turned away; the reserve has room for those too.

libuv accepts one connection per descriptor in each turn of the loop. A client that opens hundreds
at once would keep everyone else waiting for hundreds of turns, so several descriptors share the
queue.

If none is left anyway, libuv silently drops new connections until there is one again. A check once
a second detects and logs that.
"""

from __future__ import annotations

import os
import resource
from time import monotonic
from typing import Final

import structlog

_BACKLOG_MAX: Final = 4096
_RESERVE: Final = 256
# Listeners, pipes, and connections to the database, which are open from the beginning.
_ALWAYS_OPEN: Final = 48
_PROBES_MAX: Final = 64
_ACCEPTS_PER_TURN_MAX: Final = 16
FILES_BESIDES: Final = _BACKLOG_MAX + _RESERVE
"""How many descriptors to allow on top of one per connection."""
_LOG_EVERY_S: Final = 60.0

log = structlog.get_logger()


class Descriptors:
    def __init__(self) -> None:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._allowed = 2**31 if allowed == resource.RLIM_INFINITY else allowed
        self.backlog = max(16, min(_BACKLOG_MAX, self._allowed // 8))
        self.accepts_per_turn = max(1, min(_ACCEPTS_PER_TURN_MAX, self.backlog // 16))
        """How many descriptors of one queue accept connections."""
        self.probes_max = min(_PROBES_MAX, self.backlog // 4)
        """How many connections beyond the limit may still send a probe."""
        self._refused = 0
        self._logged_at = -_LOG_EVERY_S

    def connections_max(self, wanted: int) -> int:
        """How many connections there may be."""
        reserve = min(_RESERVE, _ALWAYS_OPEN + self._allowed // 4) + self.backlog
        return max(1, min(wanted, self._allowed - reserve))

    def look(self, connections: int, refused: int) -> None:
        """Log, but not too often, that connections were refused or cannot even be accepted."""
        exhausted = not self._can_open()
        if (refused == self._refused and not exhausted) or (
            monotonic() - self._logged_at < _LOG_EVERY_S
        ):
            return
        self._logged_at = monotonic()
        log.warning(
            "descriptors_exhausted" if exhausted else "connections_refused",
            connections=connections,
            refused=refused - self._refused,
            descriptors_allowed=self._allowed,
            advice="raise LimitNOFILE or connections_max, or limit connections_per_address_max",
        )
        self._refused = refused

    @staticmethod
    def _can_open() -> bool:
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return False
        return True
