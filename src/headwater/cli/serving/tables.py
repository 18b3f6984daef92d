"""The tables of a lake, for the server next to it: one process for each query.

A query that takes too long or too much memory, or has too long an answer, ends with its process.
One query runs at a time, and a few may wait.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from headwater.core.errors import InvalidQuery, TooBusy

TIME_S_MAX: Final = 30.0
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
WAITING_MAX: Final = 4


class Tables:
    def __init__(self, lake: Path, *, time_s_max: float = TIME_S_MAX) -> None:
        self._lake = lake
        self._time_s_max = time_s_max
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def __call__(self, sql: str | None) -> bytes:
        """The answer to a query, or the list of tables, as JSON."""
        if self._waiting >= WAITING_MAX:
            raise TooBusy("other questions are being answered; ask again in a moment")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._answer(sql)
        finally:
            self._waiting -= 1

    async def _answer(self, sql: str | None) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headwater.cli.tables.answer_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        try:
            question = msgspec.json.encode({"root": str(self._lake), "sql": sql})
            async with asyncio.timeout(self._time_s_max):
                answer = await _exchange(process, question)
        except TimeoutError:
            raise InvalidQuery(
                f"this took longer than {self._time_s_max:.0f} s; ask for less, or use "
                "`headwater sql`"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return _checked(answer)


async def _exchange(process: asyncio.subprocess.Process, question: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(question)
    process.stdin.close()
    answer = bytearray()
    while piece := await process.stdout.read(64 * 1024):
        answer += piece
        if len(answer) > ANSWER_BYTES_MAX:
            raise InvalidQuery("the answer is too large; ask for fewer columns or rows")
    return bytes(answer)


class _Refusal(msgspec.Struct):
    refused: str | None = None


def _checked(answer: bytes) -> bytes:
    try:
        refusal = msgspec.json.decode(answer, type=_Refusal)
    except msgspec.DecodeError:
        raise InvalidQuery(
            "it could not be answered: it may need more memory than there is; ask for less"
        ) from None
    if refusal.refused is not None:
        raise InvalidQuery(refusal.refused)
    return answer
