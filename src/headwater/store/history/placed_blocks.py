"""Blocks of a file whose bytes do not come in order, but all come, each exactly once.

A block is written when it is complete. So about as many blocks are in memory as there are places
where writing goes on at the same time.
"""

from __future__ import annotations

import os

from headwater.store.history.segment_format import BLOCK_BYTES, block_sum


class PlacedBlocks:
    def __init__(self, file: int, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._sums = [0] * (size_bytes // BLOCK_BYTES)
        self._blocks: dict[int, bytearray] = {}
        self._missing: dict[int, int] = {}
        """How many bytes of each of them have not come yet."""

    def write(self, offset: int, data: bytes) -> None:
        left = memoryview(data)
        while left:
            number, place = divmod(offset, BLOCK_BYTES)
            part = left[: BLOCK_BYTES - place]
            self._block(number)[place : place + len(part)] = part
            self._missing[number] -= len(part)
            if not self._missing[number]:
                self._complete(number)
            offset, left = offset + len(part), left[len(part) :]

    def _block(self, number: int) -> bytearray:
        block = self._blocks.get(number)
        if block is None:
            size = min(BLOCK_BYTES, self._size_bytes - number * BLOCK_BYTES)
            block = self._blocks[number] = bytearray(size)
            self._missing[number] = size
        return block

    def _complete(self, number: int) -> None:
        if number == len(self._sums):
            # The last one is not full: something else will follow in it.
            return
        block = self._blocks.pop(number)
        del self._missing[number]
        self._sums[number] = block_sum(number, block)
        left = memoryview(block)
        offset = number * BLOCK_BYTES
        while left:
            count = os.pwrite(self._file, left, offset)
            offset, left = offset + count, left[count:]

    def end(self) -> tuple[list[int], bytearray]:
        """The sums of all full blocks, and the beginning of the one after them."""
        last = self._blocks.pop(len(self._sums), bytearray())
        assert not self._blocks, "some bytes are missing"
        return self._sums, last
