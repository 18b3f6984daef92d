"""Object storage on bad days: it fails, is slow, loses the end of data, returns old lists.

Replaces the library that talks to it, so that everything above is the real thing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import obstore

Call = tuple[str, str]
"""The operation (`put`, `get`, `get_range`, `list`, `delete`), on `segments` or on `catalogs`."""

FAILS: Final = "fails"
SLOW: Final = "slow"
TRUNCATES: Final = "truncates"
OLD: Final = "old"


class Weather:
    def __init__(self) -> None:
        self.faults: dict[Call, str] = {}
        self.struck: dict[Call, int] = {}
        """How often each fault occurred."""
        self._gate = threading.Event()
        self._old: dict[str, list[Any]] = {}

    def worsen(self, call: Call, fault: str) -> None:
        self.faults[call] = fault

    def clear_up(self) -> None:
        self.faults.clear()
        self._gate.set()

    def _fault(self, what: str, key: str) -> str | None:
        call = (what, key.split("/")[0])
        fault = self.faults.get(call)
        if fault is not None:
            self.struck[call] = self.struck.get(call, 0) + 1
        if fault == FAILS:
            raise OSError("bad weather")
        if fault == SLOW:
            assert self._gate.wait(60)
        return fault

    # ── The interface of the library ─────────────────────────────────────────────────────────

    def put(self, store: Any, key: str, content: bytes | Path) -> None:
        if self._fault("put", key) == TRUNCATES:
            content = content.read_bytes() if isinstance(content, Path) else content
            content = content[: len(content) // 2]
        obstore.put(store, key, content)

    def get(self, store: Any, key: str) -> Weather.Answer:
        cut = self._fault("get", key) == TRUNCATES
        data = bytes(obstore.get(store, key).bytes())
        return Weather.Answer(data[: len(data) // 2] if cut else data)

    class Answer:
        def __init__(self, data: bytes) -> None:
            self._data = data

        def bytes(self) -> bytes:
            return self._data

    def get_range(self, store: Any, key: str, *, start: int, length: int) -> bytes:
        cut = self._fault("get_range", key) == TRUNCATES
        return bytes(
            obstore.get_range(store, key, start=start, length=length // 2 if cut else length)
        )

    def list(self, store: Any, *, prefix: str) -> Iterator[Any]:
        # The list from when the weather was last good.
        if self._fault("list", prefix) != OLD:
            self._old[prefix] = [*obstore.list(store, prefix=prefix)]
        return iter(self._old.get(prefix, []))

    def delete(self, store: Any, key: str) -> None:
        self._fault("delete", key)
        obstore.delete(store, key)
