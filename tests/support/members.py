"""Members of consumer groups, without HTTP."""

from __future__ import annotations

import asyncio

from headwater.core.content_types import JSON
from headwater.core.decisions import Append
from headwater.core.errors import StreamError
from headwater.core.groups.commands import Ack, Nack, Reject
from headwater.core.groups.decisions import Outcome
from headwater.core.groups.state import format_receipt
from headwater.core.limits import FETCH_BYTES_MAX
from headwater.service.groups.group import Group
from headwater.service.groups.members import Delivery
from headwater.service.groups.operations import Groups


def json(text: str, message_id: str | None = None) -> Append:
    return Append(text.encode(), JSON, message_id=message_id)


class Member:
    """Takes messages once, and then no more."""

    most_bytes = FETCH_BYTES_MAX

    def __init__(self, consumer: str = "ann", most: int = 1) -> None:
        self.consumer = consumer
        self.most = most
        self.future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
        self.group: Group | None = None

    @property
    def demand(self) -> int:
        return 0 if self.future.done() else self.most

    def give(self, deliveries: list[Delivery], lag: int) -> None:
        assert self.group is not None
        self.group.leave(self)
        if self.future.done():
            self.group.take_back([message for message, _ in deliveries])
        else:
            self.future.set_result(deliveries)

    def fail(self, error: StreamError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def give_up(self) -> None:
        """Stop waiting."""
        if self.group is not None:
            self.group.leave(self)
        if not self.future.done():
            self.future.set_result([])

    async def join(self, groups: Groups, path: str, name: str) -> None:
        self.group = await groups.get(path, name)
        self.group.enlist(self)


async def wait_for_messages(
    groups: Groups, path: str, name: str, most: int = 1, consumer: str = "ann"
) -> list[tuple[str, str]]:
    """Wait until there is something; returns receipts and messages."""
    member = Member(consumer, most)
    await member.join(groups, path, name)
    try:
        return _named(member, await member.future)
    except asyncio.CancelledError:
        member.future.cancel()
        raise
    finally:
        assert member.group is not None
        member.group.leave(member)


async def fetch(
    groups: Groups, path: str, name: str, most: int = 10, consumer: str = "ann"
) -> list[tuple[str, str]]:
    """Take what is available now."""
    member = Member(consumer, most)
    await member.join(groups, path, name)
    assert member.group is not None
    member.group.after_pump(member.give_up)
    return _named(member, await member.future)


def _named(member: Member, deliveries: list[Delivery]) -> list[tuple[str, str]]:
    assert member.group is not None
    group_id = member.group.state.record.id
    return [(format_receipt(group_id, message), data.decode()) for message, data in deliveries]


async def ack(groups: Groups, path: str, name: str, *receipts: str) -> Outcome:
    group = await groups.get(path, name)
    return await group.settle(Ack(list(receipts)))


async def nack(groups: Groups, path: str, name: str, *receipts: str, delay_ms: int = 0) -> Outcome:
    group = await groups.get(path, name)
    return await group.settle(Nack(list(receipts), delay_ms))


async def reject(groups: Groups, path: str, name: str, *receipts: str) -> Outcome:
    group = await groups.get(path, name)
    return await group.settle(Reject(list(receipts)))
