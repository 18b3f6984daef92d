"""Reasons to refuse a request about subscriptions.

The codes are in capitals because the public protocol spells them so.
"""

from __future__ import annotations

from headwater.core.errors import Conflict, InvalidRequest, StreamError, TooBusy


class InvalidSubscription(InvalidRequest):
    code = "INVALID_REQUEST"


class WebhookUrlRejected(InvalidRequest):
    code = "WEBHOOK_URL_REJECTED"


class InvalidAck(InvalidRequest):
    """What was acknowledged is not an offset."""

    code = "INVALID_OFFSET"


class SubscriptionNotFound(StreamError):
    code = "SUBSCRIPTION_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__("no such subscription; create it with PUT")
        self.name = name


class TokenInvalid(StreamError):
    code = "TOKEN_INVALID"

    def __init__(self) -> None:
        super().__init__("send the token of the wake as 'Authorization: Bearer …', as received")


class SubscriptionExists(Conflict):
    code = "SUBSCRIPTION_ALREADY_EXISTS"

    def __init__(self) -> None:
        super().__init__("the subscription exists with other settings; delete it first")


class Fenced(Conflict):
    code = "FENCED"

    def __init__(self) -> None:
        super().__init__("this wake is over; nothing was changed; wait for the next one")


class AlreadyClaimed(Conflict):
    code = "ALREADY_CLAIMED"

    def __init__(self, holder: str, generation: int) -> None:
        super().__init__("another worker holds this wake; wait for the next event")
        self.holder = holder
        self.generation = generation

    def details(self) -> dict[str, object]:
        return {"current_holder": self.holder, "generation": self.generation}


class NoPendingWork(Conflict):
    code = "NO_PENDING_WORK"

    def __init__(self) -> None:
        super().__init__("there is nothing to do; wait for an event in the wake stream")


class AckConflict(Conflict):
    """A well-formed offset that is not between the acknowledged one and the tail."""

    code = "INVALID_OFFSET"


class TooManySubscriptions(TooBusy):
    code = "TOO_MANY_SUBSCRIPTIONS"

    def __init__(self, limit: int) -> None:
        super().__init__(f"this server has {limit} subscriptions, which is as many as it may have")
        self.limit = limit
