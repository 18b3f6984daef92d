"""Controlling a pipeline: pause, resume, reset.

Orders are a stream on the server, see `headwater.core.pipelines`. Executed orders are recorded next
to the checkpoint, so that an order takes effect once, even if the pipeline was stopped in between.

A reset gives the pipeline a new checkpoint that begins elsewhere. The tables know their progress in
each stream and add only what is new to them. So after a step back nothing is stored twice, and
removed tables are filled again; after a step forward, what was skipped stays out.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from headwater.client import START
from headwater.client.errors import HeadwaterError, ResponseError
from headwater.core.pipelines import CONTROL, Standing, To, standing_after
from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.options import EARLIEST, LATEST, ReadOptions
from pyspark_headwater.pipelines.checkpoints import (
    begin_at,
    is_known,
    position_of,
    read_note,
    write_note,
)
from pyspark_headwater.selection import Selection, is_data_loss
from pyspark_headwater.wire import Wire

NOTE: Final = "steering.json"
_log: Final = logging.getLogger(__name__)


class Steering:
    """The orders to a pipeline.

    Args:
        name: the name of the pipeline.
        directory: where it keeps its notes.
        wire: a way to the server that gives up soon: orders can wait, the pipeline cannot.
    """

    def __init__(self, name: str, directory: str, wire: Wire) -> None:
        self._name, self._directory = name, directory
        self._wire = wire
        self._is_new = not is_known(directory)
        note = read_note(directory, NOTE)
        self.standing = Standing() if note is None else msgspec.json.decode(note, type=Standing)
        self._is_deaf = False

    def look(self) -> list[To]:
        """Read new orders; returns the resets among them, which are still to be done."""
        try:
            return self._look()
        except HeadwaterError as error:
            if isinstance(error, ResponseError) and not self._is_deaf:
                self._is_deaf = True
                _log.warning("%s cannot be steered: %s", self._name, error)
            return []

    def _look(self) -> list[To]:
        info = self._wire.info(CONTROL)
        is_new, self._is_new = self._is_new, False
        if info is None or info.next_offset in (None, self.standing.obeyed):
            return []
        stream = self._wire.stream(CONTROL)
        try:
            found = list(stream.read(self.standing.obeyed or START))
        except ResponseError as error:
            if not is_data_loss(error):
                raise
            found = list(stream.read(START))
        orders = [message for batch in found for message in batch.raw_messages()]
        after, resets = standing_after(orders, self._name, self.standing)
        if found:
            after = msgspec.structs.replace(after, obeyed=found[-1].next_offset)
        self.standing = after
        self._is_deaf = False
        return [] if is_new else resets

    def note(self) -> None:
        """Record that everything up to here was done."""
        write_note(self._directory, NOTE, self.standing)


def reset(root: str, directory: str, options: ReadOptions, wire: Wire, to: To) -> None:
    """Let the next query of a pipeline begin elsewhere. The current one must have ended."""
    ends = Selection(options, wire).tails()
    if isinstance(to, str):
        to = dict.fromkeys(ends, to)
    position = position_of(root, directory)
    for stream, place in to.items():
        if place == EARLIEST:
            # A stream without a position begins there.
            position.pop(stream, None)
        elif place == LATEST:
            position |= {stream: ends[stream]} if stream in ends else {}
        else:
            _check(wire, stream, place)
            position[stream] = place
    begin_at(root, directory, position)


def _check(wire: Wire, stream: str, offset: str) -> None:
    try:
        wire.reach(stream, offset, messages=0)
    except ResponseError as error:
        raise InvalidOption(f"{offset!r} is no offset of {stream!r}: {error}") from None
