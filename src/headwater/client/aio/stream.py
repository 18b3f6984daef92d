"""A handle for one stream: everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.client.aio.group import AsyncGroup
from headwater.client.aio.link import GroupLink
from headwater.client.aio.live import AsyncLiveStream
from headwater.client.aio.writable import AsyncWritableStream
from headwater.client.errors import StreamExists, StreamNotFound
from headwater.client.protocol.extensions import clear_request, next_offset, undelete_request
from headwater.client.protocol.groups import GroupInfo, group_infos, groups_url
from headwater.client.protocol.streams import (
    NOTHING,
    Durability,
    Request,
    StreamInfo,
    UniqueIds,
    create_request,
    fork_request,
    stream_info,
)
from headwater.core.content_types import JSON
from headwater.core.payloads import encode_append, encode_body


class AsyncStream(AsyncWritableStream):
    """One stream on a server. Creating a handle sends nothing.

    orders = client.stream("orders")
    await orders.ensure(content_type="application/json")
    await orders.append({"id": 1, "item": "tea"})
    print(await orders.read_json())
    """

    # --- Life cycle ------------------------------------------------------------------------------

    async def create(
        self,
        *,
        content_type: str | None = None,
        ttl_s: int | None = None,
        expires_at: str | None = None,
        retention_s: int | None = None,
        retention_bytes: int | None = None,
        durability: Durability | None = None,
        unique_ids: UniqueIds | None = None,
        id_pointer: str | None = None,
        closed: bool = False,
        data: Any = NOTHING,
        headers: Mapping[str, str] | None = None,
    ) -> StreamInfo:
        """Create the stream; `StreamExists` if it is already there.

        Args:
            content_type: `application/json` (the default) for messages, anything else for bytes.
            ttl_s: seconds without access after which the stream expires.
            expires_at: the time (RFC 3339) at which it expires instead.
            retention_s: drop messages older than this many seconds.
            retention_bytes: drop the oldest messages beyond this many bytes.
            durability: `relaxed` to acknowledge appends before their commit, which follows at once;
                a crash may lose the last of them. `synced` is the default.
            unique_ids: take each message once, by its id. A duplicate raises `DuplicateId` (`fail`)
                or counts as stored (`succeed`).
            id_pointer: a JSON pointer to the id in each message, such as `/id`. Without one, the
                id is an argument of `append`.
            closed: create it closed, with `data` as its whole content.
            data: first content, as for `append`.
            headers: further headers for servers that know more settings.
        """
        request = self._create_request(
            content_type,
            ttl_s=ttl_s,
            expires_at=expires_at,
            retention_s=retention_s,
            retention_bytes=retention_bytes,
            durability=durability,
            unique_ids=unique_ids,
            id_pointer=id_pointer,
            closed=closed,
            data=data,
            headers=headers,
        )
        answer = await self._sender.perform(request, stream_info)
        # After an attempt that got no answer, "exists" may mean that we have just created it.
        if answer.response.status == 200 and not answer.in_doubt:
            raise StreamExists(
                f"the stream {self._path!r} exists already",
                status=200,
                headers=answer.response.headers,
            )
        return self._learned(stream_info(answer.response))

    async def ensure(
        self,
        *,
        content_type: str | None = None,
        ttl_s: int | None = None,
        expires_at: str | None = None,
        retention_s: int | None = None,
        retention_bytes: int | None = None,
        durability: Durability | None = None,
        unique_ids: UniqueIds | None = None,
        id_pointer: str | None = None,
        version: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> StreamInfo:
        """Create the stream unless it exists with the same configuration.

        Servers that keep a configuration version apply newer settings to an existing stream when
        `version` is higher than the one they have, and change nothing otherwise.
        """
        request = self._create_request(
            content_type,
            ttl_s=ttl_s,
            expires_at=expires_at,
            retention_s=retention_s,
            retention_bytes=retention_bytes,
            durability=durability,
            unique_ids=unique_ids,
            id_pointer=id_pointer,
            config_version=version,
            headers=headers,
        )
        answer = await self._sender.perform(request, stream_info)
        return self._learned(stream_info(answer.response))

    async def delete(self, *, purge: bool = False) -> None:
        """Delete the stream; `StreamNotFound` if there is none.

        Headwater keeps it for a while, so that you can undelete it. With `purge`, nothing is kept,
        neither of this stream nor of streams deleted at its path before.
        """
        params = {"purge": "true"} if purge else {}
        try:
            await self._sender.perform(Request("DELETE", self._url, params=params))
        except StreamNotFound as error:
            # An attempt whose answer was lost has done it already.
            if not error.in_doubt:
                raise

    async def fork(
        self,
        path: str,
        *,
        offset: str | None = None,
        sub_offset: int | None = None,
        ttl_s: int | None = None,
        expires_at: str | None = None,
        retention_s: int | None = None,
        retention_bytes: int | None = None,
        durability: Durability | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncStream:
        """Create a new stream at `path` that starts with this one's content.

        Args:
            path: the path of the new stream.
            offset: how much to share; everything that is there now by default.
            sub_offset: this many messages (bytes, if not JSON) of the next append as well.
            ttl_s: as for `create`; the source's by default.
            expires_at: as for `create`; the source's by default.
            retention_s: as for `create`; the source's does not count.
            retention_bytes: as for `create`; the source's does not count.
            durability: as for `create`; the source's does not count.
            headers: further headers for servers that know more settings.
        """
        fork = AsyncStream(self._sender, self._root, path, content_type=self._content_type)
        created = create_request(
            fork._url,
            ttl_s=ttl_s,
            expires_at=expires_at,
            retention_s=retention_s,
            retention_bytes=retention_bytes,
            durability=durability,
            headers=headers,
        )
        request = fork_request(created, self._url, offset=offset, sub_offset=sub_offset)
        answer = await self._sender.perform(request, stream_info)
        fork._learned(stream_info(answer.response))
        return fork

    async def clear(self) -> str:
        """Drop all messages and keep the stream; returns the offset where it now begins.

        Settings and producers stay, and groups continue from there. The messages cannot be brought
        back.
        """
        return next_offset(await self._sender.extra(clear_request(self._url)))

    async def undelete(self) -> None:
        """Bring the deleted stream back as it was, if the server still keeps it.

        `StreamNotFound` if it does not; `Conflict` if another stream has taken the path, or if the
        source of a fork no longer has what the fork needs.
        """
        try:
            next_offset(await self._sender.extra(undelete_request(self._url)))
        except StreamNotFound as error:
            if not error.in_doubt:
                raise
            # An attempt whose answer was lost may have done it already: then the stream is there.
            await self.head()

    # --- Groups and live queries -----------------------------------------------------------------

    def group(self, name: str) -> AsyncGroup:
        """A handle for a group of this stream, which does not have to exist yet."""
        return AsyncGroup(GroupLink(self._sender, self._root, self._path, self._url, name))

    async def groups(self) -> list[GroupInfo]:
        """All groups of this stream."""
        answer = await self._sender.perform(Request("GET", groups_url(self._url)))
        return group_infos(answer.response)

    def live(self) -> AsyncLiveStream:
        """The live side of this stream: queries that wait for its changes."""
        return AsyncLiveStream(self._sender, self._url)

    # --- Inside ----------------------------------------------------------------------------------

    def _create_request(
        self, content_type: str | None, *, data: Any = NOTHING, **settings: Any
    ) -> Request:
        kind = content_type or self._content_type or JSON
        body = b"" if data is NOTHING else encode_body([encode_append(data, kind)], kind)
        return create_request(self._url, content_type=kind, body=body, **settings)
