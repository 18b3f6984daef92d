"""The process that commits, where there is one: started, fed and started again.

See `headwater.store.engine.committer`. It is started when requests begin to share commits: a server
with little to do does not need it. Until it is ready, and whenever it is gone, the thread commits.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Callable, Sequence
from typing import Final, cast

from headwater.core.mutations import AnyMutation
from headwater.service.background import Background
from headwater.store.engine.committer import ANSWER, LENGTH, Answer, Committer

_END_S: Final = 10.0
# One that has worked for so long is started again soon, however often that happens.
_LONG_S: Final = 60.0
_PAUSE_S: Final = 1.0

Done = Callable[[Answer | None], None]
"""Called with the answer; without one, the process has ended, and all may be stored or nothing."""


class CommitProcess(Background, asyncio.Protocol):
    name = "committer"

    def __init__(self, committer: Committer) -> None:
        super().__init__()
        self._committer = committer
        self._transport: asyncio.Transport | None = None
        self._is_ready = False
        self._batch: Sequence[AnyMutation] = ()
        self._done: Done | None = None
        self._answer = b""
        self._wanted = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when it may be time to end, or the process is gone."""
        self.pid: int | None = None

    def want(self) -> None:
        """It is worth starting now."""
        self._wanted.set()

    def commit(self, mutations: Sequence[AnyMutation], size_bytes: int, done: Done) -> bool:
        """Hand a batch over; False if it has to be committed here."""
        if not self._is_ready or self._done is not None or self._transport is None:
            return False
        batch = self._committer.encode(mutations, size_bytes)
        if batch is None:
            return False
        self._batch, self._done = mutations, done
        self._transport.write(LENGTH.pack(len(batch)) + batch)
        return True

    async def stop(self) -> None:
        self._stopping.set()
        self._is_ready = False
        self._wanted.set()
        self._changed.set()
        await super().stop()

    # ── The process ──────────────────────────────────────────────────────────────────────────

    async def round(self) -> float:
        """Run it once, until it is no longer needed or ends by itself."""
        await self._wanted.wait()
        if self._stopping.is_set():
            return 0.0
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await self._aside(self._spawn, theirs)
        except OSError:
            ours.close()
            raise
        self.pid = process.pid
        began_s = loop.time()
        try:
            await loop.create_unix_connection(lambda: self, sock=ours)
            await self._run_until_stopped()
        finally:
            self._is_ready = False
            await self._end(process)
        if not self._stopping.is_set():
            error = OSError(f"it has ended with status {process.returncode}")
            if loop.time() - began_s < _LONG_S:
                raise error
            self.failed(error, _PAUSE_S)
        return _PAUSE_S

    def _spawn(self, channel: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._committer.command,
            stdin=channel.fileno(),
            stdout=subprocess.DEVNULL,
            # Whatever keeps it from working is reported when the engine does the work itself.
            stderr=subprocess.DEVNULL,
            pass_fds=tuple(self._committer.descriptors),
            # Signals that a terminal sends to all of its processes are for the server.
            start_new_session=True,
        )

    async def _run_until_stopped(self) -> None:
        # What it is committing is finished first.
        while self._transport is not None and (
            not self._stopping.is_set() or self._done is not None
        ):
            self._changed.clear()
            await self._changed.wait()

    async def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Close the channel and wait for the process, which has nothing more to do."""
        if self._transport is not None:
            self._transport.close()
        try:
            await self._aside(process.wait, _END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await self._aside(process.wait)
        # Only now is it certain that it does nothing more.
        self._settle(None)

    def _settle(self, answer: Answer | None, sync_s: float = 0.0) -> None:
        done, self._done = self._done, None
        batch, self._batch = self._batch, ()
        if answer is Answer.DONE:
            self._committer.committed(batch, sync_s)
        if done is not None:
            done(answer)

    # ── asyncio.Protocol ─────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._answer = b""

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if len(self._answer) < ANSWER.size:
            return
        kind, sync_s = ANSWER.unpack(self._answer)
        self._answer = b""
        if kind == Answer.READY:
            self._is_ready = not self._stopping.is_set()
            self.succeeded()
        else:
            self._settle(Answer(kind), sync_s)
            if not self._is_ready:
                self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ready = False
        self._transport = None
        self._changed.set()
