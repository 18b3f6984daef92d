"""`live.metrics`: what happened on live streams, as a stream.

One tick per second for each stream on which something happened, and a note for each template that
was added or retired. It is created when there is first something to write, and it is best effort:
if it cannot be written, the numbers of `touch/meta` are still right. In a cluster all nodes write
to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.core.decisions import Append, Create
from headwater.core.errors import StreamError, StreamNotFound
from headwater.core.live.keys import to_hex
from headwater.core.live.state import Totals
from headwater.core.live.templates import Template
from headwater.service.elsewhere import Elsewhere
from headwater.service.log import Log

if TYPE_CHECKING:
    from headwater.service.live.stream import LiveStream

METRICS_PATH: Final = "live.metrics"
_JSON: Final = "application/json"
_NOTES_MAX: Final = 1024


class LiveMetrics:
    def __init__(self, log: Log, *, enabled: bool) -> None:
        self._log = log
        self._enabled = enabled
        self.elsewhere: Elsewhere | None = None
        """In a cluster: how to write to the stream, whoever owns it."""
        self._before: dict[str, Totals] = {}
        self._notes: list[dict[str, object]] = []

    def note_templates(
        self, stream: LiveStream, created: Sequence[Template], retired: Sequence[Template]
    ) -> None:
        for name, templates in (("template_activated", created), ("template_retired", retired)):
            for template in templates:
                self._note(name, stream, template)

    def _note(self, name: str, stream: LiveStream, template: Template) -> None:
        if self._enabled and len(self._notes) < _NOTES_MAX:
            self._notes.append(
                {
                    "type": name,
                    "ts": self._log.clock(),
                    "stream": stream.stream.path,
                    "templateId": to_hex(template.id),
                    "entity": template.spec.entity,
                    "fields": template.spec.fields,
                }
            )

    def forget(self, path: str) -> None:
        """The stream at a path was dropped: the next one starts over."""
        self._before.pop(path, None)

    async def write(self, streams: Sequence[LiveStream]) -> None:
        """Write what happened on each stream on which something did."""
        if not self._enabled:
            return
        ticks = [tick for stream in streams if (tick := self._tick(stream)) is not None]
        lines, self._notes = self._notes + ticks, []
        if lines:
            with suppress(StreamError):
                await self._append(msgspec.json.encode(lines))

    async def _append(self, body: bytes) -> None:
        command = Append(body, _JSON)
        if self.elsewhere is None:
            entry = await self._log.entry(METRICS_PATH)
            if entry.view is None:
                await self._log.create(Create(METRICS_PATH, _JSON))
            await self._log.append(METRICS_PATH, command)
            return
        try:
            await self.elsewhere.append(METRICS_PATH, command)
        except StreamNotFound:
            await self.elsewhere.create(METRICS_PATH, _JSON)
            await self.elsewhere.append(METRICS_PATH, command)

    def _tick(self, stream: LiveStream) -> dict[str, object] | None:
        path, totals = stream.stream.path, stream.state.totals
        before = self._before.get(path, Totals())
        if totals == before and path in self._before:
            return None
        self._before[path] = msgspec.structs.replace(totals)
        seen, now = msgspec.structs.asdict(before), msgspec.structs.asdict(totals)
        grown = {name: now[name] - seen[name] for name in now}
        if min(grown.values()) < 0:
            # The journal started over.
            grown = now
        journal = stream.state.journal
        return {
            "type": "tick",
            "ts": self._log.clock(),
            "stream": path,
            "touchMode": stream.state.mode,
            "cursor": journal.cursor,
            "activeWaiters": stream.waits,
            "activeTemplates": len(stream.state.book.active),
            "lagSourceOffsets": stream.lag,
            **{camel(name): value for name, value in grown.items()},
        }


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
