"""The blocking client. Written by scripts/make_sync.py from aio/records.py: DO NOT EDIT."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from headwater.client.aio.records import AsyncRecords
from headwater.client.protocol.records import Record
from headwater.client.sync.portal import Blocking

T = TypeVar("T")


class Records(Blocking[AsyncRecords[T]], Generic[T]):
    """The messages of a stream with what the server knows of them, one at a time.

    for record in stream.records(since=timedelta(minutes=10)):
        print(record.timestamp, record.id, record.value)
    """

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record[T]:
        while True:
            for line, after in self._async._ready:
                return self._async._record(line, after)
            if not self._portal.call(self._async._fetch()):
                raise StopIteration
