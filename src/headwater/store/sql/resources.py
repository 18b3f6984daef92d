"""What belongs to streams and is stored with them: groups, subscriptions, templates, snapshots."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.groups.mutations import GroupMutation
from headwater.core.live.templates import LiveMutation
from headwater.core.mutations import AnyMutation
from headwater.core.snapshots import SnapshotMutation
from headwater.core.subscriptions.state import SubscriptionMutation
from headwater.store.sql.groups import GroupChanges
from headwater.store.sql.snapshots import write_snapshot
from headwater.store.sql.subscriptions import SubscriptionChanges
from headwater.store.sql.tables import Tables
from headwater.store.sql.templates import TemplateChanges


def write_resources(tables: Tables, mutations: Sequence[AnyMutation]) -> None:
    """Write the result of a batch's mutations, table by table; those of streams are left out."""
    if not mutations:
        return
    groups, templates, subscriptions = GroupChanges(), TemplateChanges(), SubscriptionChanges()
    has_groups = False
    for mutation in mutations:
        if isinstance(mutation, GroupMutation):
            groups.add(mutation)
            has_groups = True
        elif isinstance(mutation, LiveMutation):
            templates.add(mutation)
        elif isinstance(mutation, SnapshotMutation):
            write_snapshot(tables, mutation)
        elif isinstance(mutation, SubscriptionMutation):
            subscriptions.add(mutation)
    if has_groups:
        groups.write(tables)
    templates.write(tables)
    subscriptions.write(tables)
