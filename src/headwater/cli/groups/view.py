"""Groups as shown to people and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headwater.cli.exits import one_line
from headwater.cli.output import new_table, size
from headwater.cli.records import GroupRecord
from headwater.client import GroupInfo

if TYPE_CHECKING:
    from rich.table import Table

_STEPS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))


def group_record(stream: str, group: GroupInfo) -> GroupRecord:
    settings = group.settings
    return GroupRecord(
        stream=stream,
        name=group.name,
        paused=group.paused,
        position=group.position,
        lag_messages=group.lag,
        lag_bytes=group.lag_bytes,
        lag_s=group.oldest_unsettled_age_s,
        in_flight=group.in_flight,
        members=dict(group.members),
        durable=settings.durable,
        start=settings.start,
        max_in_flight=settings.max_in_flight,
        ack_timeout_s=settings.ack_timeout_s,
        max_deliveries=settings.max_deliveries,
        dead_letter=settings.dead_letter,
        order_by=settings.order_by,
        version=settings.version,
    )


def age(seconds: float) -> str:
    """A duration for people.

    >>> age(0.25), age(75), age(7260), age(200_000)
    ('0.2s', '1m15s', '2h1m', '2d7h')
    """
    if seconds < 60:
        return f"{seconds:.1f}s".replace(".0s", "s")
    unit, name, part, part_name = next(step for step in _STEPS if seconds >= step[0])
    count, rest = divmod(int(seconds), unit)
    return f"{count}{name}" + (f"{rest // part}{part_name}" if rest >= part else "")


def group_table(groups: Sequence[tuple[str, GroupInfo]], *, with_streams: bool) -> Table:
    first = ("STREAM", "GROUP") if with_streams else ("GROUP",)
    columns = ("#LAG", "#OLDEST", "#IN FLIGHT", "#MEMBERS", "STATE")
    table = new_table(*first, *columns, folding=len(first))
    for path, group in groups:
        table.add_row(
            *([one_line(path)] if with_streams else []),
            one_line(group.name),
            f"{group.lag:,}",
            age(group.oldest_unsettled_age_s) if group.lag else "",
            f"{group.in_flight:,}",
            f"{len(group.members):,}",
            "paused" if group.paused else "active",
        )
    return table


def lag_table(groups: Sequence[GroupInfo]) -> Table:
    table = new_table("GROUP", "#MESSAGES", "#BYTES", "#SECONDS")
    for group in groups:
        table.add_row(
            one_line(group.name),
            f"{group.lag:,}",
            f"{group.lag_bytes:,}",
            f"{group.oldest_unsettled_age_s:,.1f}",
        )
    return table


def group_facts(record: GroupRecord) -> dict[str, object]:
    """What `info` shows about a group."""
    members = ", ".join(f"{name} ({count})" for name, count in sorted(record.members.items()))
    return {
        "group": record.name,
        "stream": record.stream,
        "state": "paused" if record.paused else "active",
        "position": record.position,
        "lag": f"{record.lag_messages:,} messages, {size(record.lag_bytes)}",
        "oldest": f"{age(record.lag_s)} ago" if record.lag_messages else None,
        "in flight": record.in_flight,
        "members": members or None,
        "durable": record.durable,
        "start": record.start,
        "ack timeout": age(record.ack_timeout_s),
        "max in flight": record.max_in_flight,
        "max deliveries": record.max_deliveries or None,
        "dead letters": record.dead_letter,
        "order by": record.order_by,
        "version": record.version or None,
    }
