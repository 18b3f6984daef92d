"""How `headwater consume` handles a message: print it, or run a command with it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from tempfile import TemporaryFile
from typing import IO, Final, Protocol

import msgspec

from headwater.cli.exits import CliError
from headwater.cli.output import on_one_line, stdout
from headwater.cli.records import (
    DeliveredDataRecord,
    DeliveredTextRecord,
    DeliveredValueRecord,
    DeliveryRecord,
)
from headwater.cli.units import Unit
from headwater.client import AsyncMessage

# The exit codes of a shell for a command that is missing or cannot be run.
_CANNOT_RUN: Final = (126, 127)


class Verdict(Enum):
    """What should happen to a message."""

    ACK = "acked"
    NACK = "nacked"
    REJECT = "rejected"
    RETURN = "returned"
    """As if it had not been delivered: the failure was not the message's fault."""


@dataclass(frozen=True, slots=True)
class Handled:
    """The outcome of one message."""

    verdict: Verdict
    exit_code: int | None = None


class Handler(Protocol):
    async def handle(self, message: AsyncMessage) -> Handled:
        """Handle a message. `OSError` and `CliError` end the command; the message is returned."""

    def abort(self) -> None:
        """The caller has stopped waiting."""


class Printer:
    """Writes each message to stdout, in the order in which they were started."""

    def __init__(self, unit: Unit, *, json: bool) -> None:
        self._unit = unit
        self._json = json
        self._turn = asyncio.Lock()

    async def handle(self, message: AsyncMessage) -> Handled:
        line = (
            msgspec.json.encode(self._record(message)) + b"\n"
            if self._json
            else self._line(message)
        )
        async with self._turn:
            # On a thread: the reader of our output may pause, and leases must be kept.
            await asyncio.to_thread(_write, line)
        return Handled(Verdict.ACK)

    def abort(self) -> None:
        """Writing a line takes no time, unless nobody reads it."""

    def _line(self, message: AsyncMessage) -> bytes:
        if self._unit is Unit.BYTE:
            return message.data
        return as_line(message, self._unit)

    def _record(self, message: AsyncMessage) -> DeliveryRecord:
        head = {"id": message.id, "offset": message.offset, "deliveries": message.deliveries}
        if self._unit is Unit.MESSAGE:
            value = msgspec.Raw(on_one_line(message.data))
            return msgspec.convert({**head, "value": value}, DeliveredValueRecord)
        if self._unit is Unit.LINE:
            with suppress(UnicodeDecodeError):
                return msgspec.convert({**head, "text": message.data.decode()}, DeliveredTextRecord)
        data = b64encode(message.data).decode()
        return msgspec.convert({**head, "data": data}, DeliveredDataRecord)


class Executor:
    """Runs a command for each message: exit code 0 acknowledges it, anything else returns it."""

    def __init__(
        self,
        command: str,
        unit: Unit,
        variables: Mapping[str, str],
        *,
        reject_code: int | None,
        to_stderr: bool,
    ) -> None:
        self._command = command
        self._unit = unit
        self._variables = variables
        self._reject_code = reject_code
        self._output = sys.stderr.fileno() if to_stderr else None
        self._running: set[Process] = set()
        self._aborted = False
        self._has_run = False

    async def handle(self, message: AsyncMessage) -> Handled:
        if self._aborted:
            return Handled(Verdict.RETURN)
        content = message.data if self._unit is not Unit.MESSAGE else as_line(message, self._unit)
        # From a file and not a pipe: the command may read it, or some of it, or none.
        with await asyncio.to_thread(_file_with, content) as file:
            process = await self._start(message, file)
        self._running.add(process)
        if self._aborted:
            self._end(process)
        try:
            code = await process.wait()
        finally:
            self._running.discard(process)
        return self._judge(code)

    def abort(self) -> None:
        """End the running commands."""
        self._aborted = True
        for process in self._running:
            self._end(process)

    async def _start(self, message: AsyncMessage, file: IO[bytes]) -> Process:
        variables = {
            **self._variables,
            "HEADWATER_OFFSET": message.offset,
            "HEADWATER_MESSAGE_ID": message.id,
            "HEADWATER_DELIVERIES": str(message.deliveries),
        }
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            self._command,
            stdin=file,
            stdout=self._output,
            env={**os.environb, **{os.fsencode(k): _value(v) for k, v in variables.items()}},
            # Out of reach of Ctrl-C, which is meant for us: running commands should finish.
            start_new_session=True,
        )

    @staticmethod
    def _end(process: Process) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)

    def _judge(self, code: int) -> Handled:
        if code == 0:
            self._has_run = True
            return Handled(Verdict.ACK, code)
        if self._aborted:
            return Handled(Verdict.RETURN, code)
        if code in _CANNOT_RUN and not self._has_run:
            raise CliError(f"the command cannot be run (exit code {code}): {self._command}")
        self._has_run = True
        if code == self._reject_code:
            return Handled(Verdict.REJECT, code)
        return Handled(Verdict.NACK, code)


def as_line(message: AsyncMessage, unit: Unit) -> bytes:
    """A message on one line."""
    data = on_one_line(message.data) if unit is Unit.MESSAGE else message.data
    return data if data.endswith(b"\n") else data + b"\n"


def _write(line: bytes) -> None:
    stdout().write(line)
    stdout().flush()


def _file_with(content: bytes) -> IO[bytes]:
    file = TemporaryFile()  # noqa: SIM115 - closed by whoever asked for it
    file.write(content)
    file.seek(0)
    return file


def _value(text: str) -> bytes:
    """Text that is safe for the environment: ids may contain anything."""
    return text.encode(errors="replace").replace(b"\0", b"")
