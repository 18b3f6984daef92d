"""Everything that an engine can be asked to store."""

from typing import Final

from headwater.core.groups.mutations import GroupCreated, GroupMutation
from headwater.core.live.templates import LiveMutation, TemplatesSaved
from headwater.core.snapshots import SnapshotMutation, SnapshotTaken
from headwater.core.stream import Appended, Created, Mutation
from headwater.core.subscriptions.state import SubscriptionCreated, SubscriptionMutation

# What takes more room than it gives: not to be stored when there is hardly any left.
GROWING: Final = (
    Appended,
    Created,
    GroupCreated,
    SnapshotTaken,
    SubscriptionCreated,
    TemplatesSaved,
)

AnyMutation = Mutation | GroupMutation | LiveMutation | SubscriptionMutation | SnapshotMutation
