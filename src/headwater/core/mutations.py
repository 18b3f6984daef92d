"""Everything that an engine can be asked to store."""

from headwater.core.groups.state import GroupMutation
from headwater.core.live.templates import LiveMutation
from headwater.core.snapshots import SnapshotMutation
from headwater.core.stream import Mutation
from headwater.core.subscriptions.state import SubscriptionMutation

AnyMutation = Mutation | GroupMutation | LiveMutation | SubscriptionMutation | SnapshotMutation
