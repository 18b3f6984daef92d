"""Reading in bulk: …/_segments to plan it, …/_bulk to do it, as Arrow or as lines of JSON.

Every message comes with the offset of its append, its index in that append and the time it was
written. A response ends near the requested size; `Stream-Next-Offset` says where the next one
begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Final

import msgspec

from headwater.core import json_mode
from headwater.core.errors import ArrowUnavailable
from headwater.core.frames import Frame
from headwater.core.limits import KIB, MIB
from headwater.core.offsets import Anchor, Offset, parse_offset
from headwater.core.stream import StreamConfig
from headwater.http.answers import NO_STORE, json_answer
from headwater.http.messages import Headers, Request, Response
from headwater.http.queries import number_between, query_of
from headwater.http.reads import parse_until
from headwater.service.log import Log
from headwater.service.ranges import Range, plan_ranges
from headwater.store.engine.appends import SealedExtent

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
NDJSON_TYPE: Final = "application/x-ndjson"
_RANGE_BYTES_DEFAULT: Final = 8 * MIB
_RANGE_BYTES_MIN: Final = 64 * KIB
_BULK_BYTES_DEFAULT: Final = 8 * MIB
_BULK_BYTES_MAX: Final = 16 * MIB
# How many answers are built at once: each takes several times its size while being built.
_RENDERED_AT_ONCE: Final = 2

Render = Callable[[StreamConfig, Sequence[Frame], bool], bytes]


class BulkResource:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._turns = asyncio.Semaphore(_RENDERED_AT_ONCE)

    async def segments(self, request: Request, path: str) -> Response:
        query = query_of(request)
        target = number_between(query, "max_bytes", 1, 2**40, default=_RANGE_BYTES_DEFAULT)
        entry = await self._log.entry(path)
        start, until = _span(query)
        config = self._log.view(entry).config
        committed, ranges = await plan_ranges(
            self._log,
            entry,
            start,
            until,
            max(target, _RANGE_BYTES_MIN),
            by_file=query.get("files") != "false",
        )
        body = {
            "tail": config.lineage.token_at(committed.tail),
            "closed": committed.closed,
            "content_type": config.content_type,
            "messages": committed.messages,
            "ranges": [_range_json(config, one, request.is_local) for one in ranges],
        }
        return json_answer(body)

    async def bulk(self, request: Request, path: str) -> Response:
        query = query_of(request)
        size = number_between(query, "max_bytes", 1, _BULK_BYTES_MAX, default=_BULK_BYTES_DEFAULT)
        start, until = _span(query)
        entry = await self._log.entry(path)
        content_type, render = _choose(request)
        details = query.get("headers") == "true"
        async with self._turns:
            view, position, frames = await self._log.read_frames(entry, start, until, size)
            body = await self._log.in_thread(render, view.config, frames, details)
        end = frames[-1].end if frames else position
        headers: Headers = [
            ("Content-Type", content_type),
            ("Stream-Next-Offset", view.config.lineage.token_at(end)),
            NO_STORE,
        ]
        if end == view.tail:
            headers.append(("Stream-Up-To-Date", "true"))
            if view.closed:
                headers.append(("Stream-Closed", "true"))
        return Response(200, headers, body)


def _span(query: dict[str, str]) -> tuple[Anchor | Offset, Offset | None]:
    until = query.get("until")
    return parse_offset(query.get("offset", "-1")), parse_until([until] if until else None)


def _choose(request: Request) -> tuple[str, Render]:
    accepted = request.header(b"accept") or ""
    if ARROW_TYPE not in accepted:
        return NDJSON_TYPE, render_ndjson
    if find_spec("pyarrow") is None:
        raise ArrowUnavailable
    return ARROW_TYPE, render_arrow


def _range_json(config: StreamConfig, one: Range, is_local: bool) -> dict[str, object]:
    sealed = one.sealed
    return {
        "offset": config.lineage.token_at(one.start),
        "until": config.lineage.token_at(one.end),
        "bytes": one.end - one.start,
        "first_message": one.first_message,
        "messages": one.messages,
        "first_timestamp": one.first_at_ms,
        "last_timestamp": one.last_at_ms,
        "file": None
        if sealed is None
        else {
            "name": sealed.file,
            "size_bytes": sealed.size_bytes,
            "checksum": sealed.checksum,
            "index_offset": sealed.index_offset,
            "location": _location(sealed, is_local),
        },
    }


def _location(sealed: SealedExtent, is_local: bool) -> str | None:
    """Where the caller can read a file without the server, with its own permissions.

    Paths on this machine are shown only to callers on this machine.
    """
    if sealed.url is not None and not sealed.url.startswith("file:"):
        return sealed.url
    if not is_local:
        return None
    return sealed.url or (sealed.path.as_uri() if sealed.path is not None else None)


# ── Rendering, on a thread ───────────────────────────────────────────────────────────────────


def render_ndjson(config: StreamConfig, frames: Sequence[Frame], details: bool) -> bytes:
    # In one growing piece: a list of lines would take many times their size.
    lines = bytearray()
    for frame in frames:
        for number, body in enumerate(frame.bodies()):
            about = _about(config, frame, number, details)
            messages = json_mode.decode(body) if config.is_json else [body]
            for index, message in enumerate(messages):
                value = _in_one_line(message) if config.is_json else {"data": message}
                lines += msgspec.json.encode({**about, "index": index, **value})
                lines += b"\n"
    return bytes(lines)


def _in_one_line(message: bytes) -> dict[str, object]:
    """In JSON, line breaks are whitespace between values; a string cannot contain one."""
    return {"value": msgspec.Raw(message.replace(b"\n", b" ").replace(b"\r", b" "))}


def _about(config: StreamConfig, frame: Frame, number: int, details: bool) -> dict[str, object]:
    """The fields that all messages of an append share."""
    position = frame.origin + frame.starts[number]
    about: dict[str, object] = {
        "offset": config.lineage.token_at(position),
        "index": 0,
        "timestamp": frame.times[number],
    }
    if details:
        stamp = frame.stamps.stamp(number) if frame.stamps else None
        id_, epoch, seq = stamp or (None, None, None)
        about |= {"producer_id": id_, "producer_epoch": epoch, "producer_seq": seq}
        about["message_id"] = frame.ids[number] if frame.ids else None
    return about


def render_arrow(config: StreamConfig, frames: Sequence[Frame], details: bool) -> bytes:
    # A large library, and most servers never need it.
    import pyarrow as pa

    from headwater.core.arrow import rows_of, schema_of

    json = config.is_json
    batches = [
        rows_of(one, config.lineage.offset_at(one.start), json=json, headers=details)
        for one in frames
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema_of(json=json, headers=details)) as writer:
        if batches:
            # Many small batches are slow to read, so they are sent as one.
            writer.write_batch(pa.concat_batches(batches) if len(batches) > 1 else batches[0])
    return bytes(sink.getvalue().to_pybytes())
