"""The blocking client. Written by scripts/make_sync.py from aio/stream.py: DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.client.aio.stream import AsyncStream
from headwater.client.protocol.groups import GroupInfo
from headwater.client.protocol.streams import NOTHING, Durability, StreamInfo, UniqueIds
from headwater.client.sync.group import Group
from headwater.client.sync.live import LiveStream
from headwater.client.sync.writable import WritableStream


class Stream(WritableStream):
    """One stream on a server. Creating a handle sends nothing.

    orders = client.stream("orders")
    orders.ensure(content_type="application/json")
    orders.append({"id": 1, "item": "tea"})
    print(orders.read_json())
    """

    _async: AsyncStream

    def create(
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
        return self._portal.call(
            self._async.create(
                content_type=content_type,
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
        )

    def ensure(
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
        return self._portal.call(
            self._async.ensure(
                content_type=content_type,
                ttl_s=ttl_s,
                expires_at=expires_at,
                retention_s=retention_s,
                retention_bytes=retention_bytes,
                durability=durability,
                unique_ids=unique_ids,
                id_pointer=id_pointer,
                version=version,
                headers=headers,
            )
        )

    def delete(self, *, purge: bool = False) -> None:
        """Delete the stream; `StreamNotFound` if there is none.

        Headwater keeps it for a while, so that you can undelete it. With `purge`, nothing is kept,
        neither of this stream nor of streams deleted at its path before.
        """
        self._portal.call(self._async.delete(purge=purge))

    def fork(
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
    ) -> Stream:
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
        return Stream(
            self._portal,
            self._portal.call(
                self._async.fork(
                    path,
                    offset=offset,
                    sub_offset=sub_offset,
                    ttl_s=ttl_s,
                    expires_at=expires_at,
                    retention_s=retention_s,
                    retention_bytes=retention_bytes,
                    durability=durability,
                    headers=headers,
                )
            ),
        )

    def clear(self) -> str:
        """Drop all messages and keep the stream; returns the offset where it now begins.

        Settings and producers stay, and groups continue from there. The messages cannot be brought
        back.
        """
        return self._portal.call(self._async.clear())

    def undelete(self) -> None:
        """Bring the deleted stream back as it was, if the server still keeps it.

        `StreamNotFound` if it does not; `Conflict` if another stream has taken the path, or if the
        source of a fork no longer has what the fork needs.
        """
        self._portal.call(self._async.undelete())

    def group(self, name: str) -> Group:
        """A handle for a group of this stream, which does not have to exist yet."""
        return Group(self._portal, self._async.group(name))

    def groups(self) -> list[GroupInfo]:
        """All groups of this stream."""
        return self._portal.call(self._async.groups())

    def live(self) -> LiveStream:
        """The live side of this stream: queries that wait for its changes."""
        return LiveStream(self._portal, self._async.live())
