"""The decisions: given the state of a stream and a command, what happens?

Each function is pure. It returns the mutations to commit and the reply to give once they are
committed, or raises the `StreamError` that says why not. Nothing is decided anywhere else.
"""

from headwater.core.decisions.access import decide_touch, is_taken, require, require_source
from headwater.core.decisions.append import decide_append, plain_append
from headwater.core.decisions.commands import (
    Append,
    AppendReply,
    Create,
    CreateReply,
    ForkPoint,
)
from headwater.core.decisions.create import decide_create, expected_config
from headwater.core.decisions.forget import decide_forget
from headwater.core.decisions.profile import decide_profile
from headwater.core.decisions.remove import decide_delete, decide_expire, decide_orphan, remove
from headwater.core.decisions.trim import Held, decide_retention, decide_trim
from headwater.core.decisions.undelete import decide_undelete

__all__ = [
    "Append",
    "AppendReply",
    "Create",
    "CreateReply",
    "ForkPoint",
    "Held",
    "decide_append",
    "decide_create",
    "decide_delete",
    "decide_expire",
    "decide_forget",
    "decide_orphan",
    "decide_profile",
    "decide_retention",
    "decide_touch",
    "decide_trim",
    "decide_undelete",
    "expected_config",
    "is_taken",
    "plain_append",
    "remove",
    "require",
    "require_source",
]
