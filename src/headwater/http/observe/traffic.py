"""Requests and their outcomes: always counted, and passed to watchers.

This runs with every request, so it does little: one dictionary entry and one bucket. Anything that
needs more (the access log, tracing) is a watcher, and costs nothing if there is none.

Requests that wait for data (long-polls, event streams, fetches) take as long as nothing happens.
They are counted, but their duration says nothing about the server, so it is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from time import perf_counter
from typing import Final

import structlog

from headwater.core.histograms import SECONDS, Histogram
from headwater.http.messages import Request, Response

log = structlog.get_logger()

REFUSED: Final = ("", "refused")
Watcher = Callable[[Request, int, float], None]
"""Called with the request, the status, and the seconds it took."""


class Tally(Histogram):
    """Requests of one kind, and how long they took."""

    __slots__ = ("untimed",)

    def __init__(self) -> None:
        super().__init__(SECONDS)
        self.untimed = 0

    @property
    def requests(self) -> int:
        return self.count + self.untimed


class Traffic:
    def __init__(self, slow_s: float = float("inf")) -> None:
        self.tallies: dict[tuple[str, str, int], Tally] = {}
        """By method, route and status."""
        self.errors: dict[str, int] = {}
        """By code."""
        self.connections = 0
        self.watchers: list[Watcher] = []
        self._slow_s = slow_s

    def answered(self, request: Request, status: int, code: str) -> None:
        took_s = perf_counter() - request.began_s
        tally = self.tallies.get((request.method, request.route, status))
        if tally is None:
            tally = self._new(request, status)
        if request.on_disconnect is None:
            tally.counts[bisect_left(SECONDS, took_s)] += 1
            tally.total += took_s
            if took_s > self._slow_s:
                log.warning("slow_request", **facts(request, status, took_s))
        else:
            tally.untimed += 1
        # HEAD asks whether something exists, and "no" is a valid answer.
        if status >= 400 and (status != 404 or request.method != "HEAD"):
            self.errors[code] = self.errors.get(code, 0) + 1
        if self.watchers:
            self._tell(request, status, took_s)

    def begun(self, request: Request) -> None:
        """An event stream starts; its duration is not known yet."""
        tally = self.tallies.get((request.method, request.route, 200))
        (tally or self._new(request, 200)).untimed += 1
        self._tell(request, 200, perf_counter() - request.began_s)

    def _new(self, request: Request, status: int) -> Tally:
        return self.tallies.setdefault((request.method, request.route, status), Tally())

    def _tell(self, request: Request, status: int, took_s: float) -> None:
        for watch in self.watchers:
            try:
                watch(request, status, took_s)
            except Exception as error:
                # A watcher that fails must not affect the answer.
                log.error("watcher_failed", error=repr(error), exc_info=error)

    def refused(self, response: Response) -> None:
        """Count a refusal of malformed input, or for lack of room."""
        self.tallies.setdefault((*REFUSED, response.status), Tally()).untimed += 1
        self.errors[response.code] = self.errors.get(response.code, 0) + 1


def facts(request: Request, status: int, took_s: float) -> dict[str, object]:
    """What may be logged. Queries, headers and bodies can hold secrets."""
    return {
        "request_id": request.id,
        "method": request.method,
        "route": request.route,
        "path": _shown(request.path),
        "status": status,
        "took_ms": round(took_s * 1000, 3),
        "request_bytes": len(request.body),
    }


def _shown(target: bytes) -> str:
    """A target that is a full URL may contain a password."""
    return target.decode("ascii", "backslashreplace") if target[:1] == b"/" else "(a URL)"


def log_access(request: Request, status: int, took_s: float) -> None:
    """A watcher: one line for every request."""
    log.info("request", **facts(request, status, took_s))
