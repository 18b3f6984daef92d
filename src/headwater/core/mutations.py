"""Everything that an engine can store, and what a decision is.

Streams, groups and subscriptions are the same kind of state machine: a pure function decides,
returning mutations and a reply or raising the error that says why not, and `evolve` folds each
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

# What takes more space than it frees: refused when the disk is nearly full.
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
    """The outcome of a command."""

    reply: R
    mutations: Sequence[M] = ()


StreamDecision = Decision[R, Mutation]
GroupDecision = Decision[R, GroupMutation]
SubscriptionDecision = Decision[R, SubscriptionMutation]
