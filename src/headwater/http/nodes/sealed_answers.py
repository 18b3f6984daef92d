"""Plain reads of other nodes' streams, answered here if all of the chunk is in object storage."""

from __future__ import annotations

from headwater.core.errors import StreamError
from headwater.core.offsets import Anchor
from headwater.http.messages import Answer, Request
from headwater.http.reads import ReadQuery
from headwater.http.resources.streams import StreamResource
from headwater.http.routes.matching import STREAM_RESOURCE
from headwater.http.wire.outcomes import resolved
from headwater.service.sealed_reads import SealedReads


class SealedAnswers:
    def __init__(self, reads: SealedReads, streams: StreamResource) -> None:
        self._reads = reads
        self._streams = streams

    def may_have(self, request: Request) -> bool:
        """Whether it is worth trying. A forwarded request is for the owner."""
        match = request.match
        if request.method != "GET" or request.hops or match is None:
            return False
        if match.resource is not STREAM_RESOURCE:
            return False
        try:
            query = ReadQuery(request.query)
        except StreamError:
            # The owner reports what is wrong with it.
            return False
        if query.live is not None or query.until is not None or query.offset is Anchor.TAIL:
            return False
        return self._reads.may_have(match.args[0], query.offset)

    async def answer(self, request: Request) -> Answer | None:
        """None if only the owner can say."""
        assert request.match is not None
        query = ReadQuery(request.query)
        chunk = await self._reads.read(request.match.args[0], query.offset)
        if chunk is None:
            return None
        return await resolved(self._streams.caught_up(request, query, chunk))
