"""Everything that an engine can be asked to store, and what a decision is.

Streams, groups and subscriptions are state machines of one kind: a pure function decides, which
returns mutations and a reply or raises the error that says why not, and `evolve` folds each
mutation into the state.
"""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import msgspec

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

R = TypeVar("R")
M = TypeVar("M")


class Decision(msgspec.Struct, Generic[R, M], frozen=True):
    """What a command comes to."""

    reply: R
    mutations: Sequence[M] = ()


StreamDecision = Decision[R, Mutation]
GroupDecision = Decision[R, GroupMutation]
SubscriptionDecision = Decision[R, SubscriptionMutation]
