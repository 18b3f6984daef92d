"""Which of many streams have a state.

A stream is a State Protocol stream if its first message is; all others are skipped. If the
beginning is no longer kept, the first kept message decides. An invalid message ends the table of
its stream, and no other: what follows cannot be applied without it. Such streams are recorded next
to the checkpoint, with the reason and the place. A stream that is created again under the same name
starts again, and so does one with a reset after that place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headwater.core.offsets import ZERO_SUFFIX
from headwater.core.state_protocol import RESET
from pyspark_headwater.pipelines.checkpoints import read_note, write_note
from pyspark_headwater.pipelines.folding import Place
from pyspark_headwater.pipelines.ledger import Ledger
from pyspark_headwater.pipelines.survey import Survey

NOTE: Final = "left-out.json"

IsFirst = Callable[[str, str], bool]
"""Whether the server has nothing of a stream before an offset."""


class LeftOut(msgspec.Struct, frozen=True):
    """Why and where the tables of a stream ended."""

    why: str
    offset: str = ""
    index: int = 0
    at_us: int = 0


@dataclass(frozen=True)
class Speaking:
    """The streams of the State Protocol.

    Attributes:
        directory: where the streams that are left out are recorded.
        is_first: asked about streams whose beginning is not in the batch.
        goes_on: whether an invalid message ends nothing, because it is kept elsewhere.
    """

    directory: str
    is_first: IsFirst
    goes_on: bool = False
    _known: dict[str, bool] = field(default_factory=dict, compare=False)

    def __call__(self, found: Mapping[str, Survey], ledger: Ledger) -> set[str]:
        before = left_out(self.directory)
        after = dict(before)
        chosen: set[str] = set()
        for stream, one in found.items():
            if stream not in before and not self._speaks(stream, one, ledger):
                continue
            if stream in after and _goes_on(after[stream], one):
                del after[stream]
            if stream in after:
                continue
            if one.misfit is None or self.goes_on:
                chosen.add(stream)
            else:
                at = one.misfit.point
                after[stream] = LeftOut(one.misfit.why, at.offset, at.number, at.at_us)
        if after != before:
            write_note(self.directory, NOTE, after)
        return chosen

    def _speaks(self, stream: str, one: Survey, ledger: Ledger) -> bool:
        begins = one.misfit is None or one.misfit.point != one.first
        if one.first.number == 0 and one.first.offset.endswith(ZERO_SUFFIX):
            self._known[stream] = begins
        elif stream not in self._known:
            has_state = ledger.seen(stream) is not None
            self._known[stream] = has_state or (begins and self.is_first(stream, one.first.offset))
        return self._known[stream]


def _goes_on(left: LeftOut, one: Survey) -> bool:
    """Whether a stream that was left out can be resumed, from its beginning or a reset."""
    if one.begins_us is not None and one.begins_us > left.at_us:
        return True
    resets = [place for place, kind, _ in one.control_messages() if kind == RESET]
    return any(place > Place(left.offset, left.index) for place in resets)


def left_out(directory: str) -> dict[str, LeftOut]:
    """The streams whose tables have ended, and why."""
    note = read_note(directory, NOTE)
    if note is None:
        return {}
    noted = msgspec.json.decode(note, type=dict[str, LeftOut | str])
    return {name: LeftOut(one) if isinstance(one, str) else one for name, one in noted.items()}
