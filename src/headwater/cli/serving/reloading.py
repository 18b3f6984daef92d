"""Files that the server reloads when they change: keys, certificates.

They are checked every second, and at once on SIGHUP. Invalid files change nothing: the last good
version stays, and the log says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from headwater.core.access.keys import KeyBook
from headwater.http.access.verification import InvalidKeySet
from headwater.http.wire.tls import CertificateError
from headwater.service.background import Watch
from headwater.store.key_file import KeyFileError, KeyPlace, file_stamp

INTERVAL_S: Final = 1.0
_PAUSE_S_MAX: Final = 60.0
UNUSABLE: Final = (KeyFileError, InvalidKeySet, CertificateError, OSError)

log = structlog.get_logger()


@dataclass(slots=True)
class _Watched:
    what: str
    stamp: Callable[[], object]
    load: Callable[[], Any]
    use: Callable[[Any], None]
    last: object

    def look(self, *, force: bool) -> tuple[bool, Any]:
        """Load if something changed. On a thread: disks can be slow."""
        stamp = self.stamp()
        if stamp == self.last and not force:
            return False, None
        self.last = stamp
        return True, self.load()


class Reloader:
    def __init__(self) -> None:
        self.failures = 0
        self.watches = [Watch("reloading")]
        self._watched: list[_Watched] = []
        self._poke = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._each_time: list[Callable[[], None]] = []
        self._at_end: list[Callable[[], Awaitable[None]]] = []

    def watch(
        self, paths: Sequence[Path], load: Callable[[], Any], use: Callable[[Any], None]
    ) -> None:
        """Load now, and again whenever one of the files changes. The first load may raise."""
        what = ", ".join(map(str, paths))
        self._watch(what, lambda: tuple(map(file_stamp, paths)), load, use)

    def watch_keys(self, place: KeyPlace, use: Callable[[KeyBook | None], None]) -> None:
        """The same for keys, wherever they are."""
        self._watch(place.name, place.stamp, place.load, use)
        self.at_end(lambda: asyncio.to_thread(place.close))

    def _watch(
        self,
        what: str,
        stamp: Callable[[], object],
        load: Callable[[], Any],
        use: Callable[[Any], None],
    ) -> None:
        # The stamp first: a change during the load must not go unnoticed.
        watched = _Watched(what, stamp, load, use, stamp())
        use(load())
        self._watched.append(watched)

    def each_time(self, action: Callable[[], None]) -> None:
        """Add something else to do about once a second."""
        self._each_time.append(action)

    def at_end(self, action: Callable[[], Awaitable[None]]) -> None:
        self._at_end.append(action)

    @property
    def has_work(self) -> bool:
        return bool(self._watched or self._each_time)

    def reload(self) -> None:
        """Reload everything, whether it changed or not."""
        self._poke.set()

    def start(self) -> None:
        if self.has_work:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for action in self._at_end:
            await action()

    async def _run(self) -> None:
        pause_s, forced = 0.0, False
        while True:
            try:
                for action in self._each_time:
                    action()
                forced |= await self._pause(max(INTERVAL_S, pause_s))
                for watched in self._watched:
                    await self._look(watched, force=forced)
            except Exception as error:
                pause_s = min(max(INTERVAL_S, 2 * pause_s), _PAUSE_S_MAX)
                self.watches[0].failed(error, pause_s)
                if not self._poke.is_set():
                    forced |= await self._pause(pause_s)
            else:
                self.watches[0].succeeded()
                pause_s, forced = 0.0, False

    async def _pause(self, length_s: float) -> bool:
        try:
            async with asyncio.timeout(length_s):
                await self._poke.wait()
        except TimeoutError:
            return False
        self._poke.clear()
        return True

    async def _look(self, watched: _Watched, *, force: bool) -> None:
        try:
            changed, loaded = await asyncio.to_thread(watched.look, force=force)
        except UNUSABLE as error:
            self.failures += 1
            log.error("not_reloaded", files=watched.what, error=str(error))
            return
        if changed:
            watched.use(loaded)
            log.info("reloaded", files=watched.what)
