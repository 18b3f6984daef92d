"""Subscriptions: workers and webhooks woken when streams have something new."""

from __future__ import annotations

from typing import Final

from headwater.http.access.rules import Need
from headwater.http.routes.route import (
    JSON_TYPE,
    TEXT,
    Answer,
    Route,
    Schema,
    listing,
    obj,
    page,
    ref,
    with_head,
)

RESERVED: Final = "/v1/stream/__ds"
SUBSCRIPTIONS: Final = f"{RESERVED}/subscriptions"
SUBSCRIPTION: Final = f"{SUBSCRIPTIONS}/{{subscription}}"

_FOUND: Final = ("invalid_path", "SUBSCRIPTION_NOT_FOUND")
_SHOWN: Final = {JSON_TYPE: ref("Subscription")}
_DONE: Final = {204: Answer("Done.")}

_JWKS = Route(
    "GET",
    f"{RESERVED}/jwks.json",
    "The public keys that webhooks are signed with.",
    lambda on: on.subscriptions.jwks,
    {
        200: Answer(
            "A JWK set.",
            content={"application/jwk-set+json": obj({"keys": listing({"type": "object"})})},
        )
    },
    needs=Need.NOTHING,
)
_LIST = Route(
    "GET",
    SUBSCRIPTIONS,
    "The subscriptions of this server, by name.",
    lambda on: on.subscriptions.index,
    {200: Answer("A page of them.", content={JSON_TYPE: ref("SubscriptionList")})},
    needs=Need.ADMIN,
    errors=("invalid_query",),
    query=page("subscriptions", "name"),
)
_GET = Route(
    "GET",
    SUBSCRIPTION,
    "A subscription and its streams.",
    lambda on: on.subscriptions.get,
    {200: Answer("The subscription.", content=_SHOWN)},
    needs=Need.ADMIN,
    errors=_FOUND,
)
_PUT = Route(
    "PUT",
    SUBSCRIPTION,
    "Create a subscription, or make sure that it is as described.",
    lambda on: on.subscriptions.put,
    {
        200: Answer("It was there already, with these settings.", content=_SHOWN),
        201: Answer("It is new.", content=_SHOWN),
    },
    needs=Need.ADMIN,
    errors=(
        "invalid_path",
        "invalid_header",
        "INVALID_REQUEST",
        "WEBHOOK_URL_REJECTED",
        "SUBSCRIPTION_ALREADY_EXISTS",
        "TOO_MANY_SUBSCRIPTIONS",
        "path_reserved",
        "stream_gone",
        "too_busy",
        "quota_exceeded",
        "data_corrupt",
    ),
    body={JSON_TYPE: ref("SubscriptionConfig")},
)
_DELETE = Route(
    "DELETE",
    SUBSCRIPTION,
    "Remove a subscription.",
    lambda on: on.subscriptions.delete,
    _DONE,
    needs=Need.ADMIN,
    errors=(*_FOUND, "too_busy"),
)
_UNLINK = Route(
    "DELETE",
    f"{SUBSCRIPTION}/streams/{{path}}",
    "Take a stream that was named out of it.",
    lambda on: on.subscriptions.unlink,
    _DONE,
    needs=Need.ADMIN,
    errors=(*_FOUND, "INVALID_REQUEST", "too_busy"),
)


def _action(
    name: str,
    text: str,
    body: Schema,
    answers: dict[int, Answer],
    *errors: str,
    own_token: bool = False,
) -> Route:
    proof = ("TOKEN_INVALID", "FENCED", "invalid_header") if own_token else ()
    return Route(
        "POST",
        f"{SUBSCRIPTION}/{name}",
        text,
        lambda on: getattr(on.subscriptions, name),
        answers,
        needs=Need.WAKE_TOKEN if own_token else Need.ADMIN,
        errors=(*_FOUND, "INVALID_REQUEST", "too_busy", *proof, *errors),
        body={JSON_TYPE: body},
        elsewhere={"INVALID_OFFSET": 409} if "INVALID_OFFSET" in errors else {},
    )


_SETTLED: Final = {
    200: Answer(
        "It counts.", content={JSON_TYPE: obj({"ok": {}, "next_wake": {"type": "boolean"}})}
    )
}
_CLAIMED: Final = {
    200: Answer(
        "The wake is yours.",
        content={
            JSON_TYPE: obj(
                {
                    "wake_id": TEXT,
                    "generation": {"type": "integer"},
                    "token": TEXT,
                    "streams": listing(ref("StreamInfo")),
                    "lease_ttl_ms": {"type": "integer"},
                }
            )
        },
    )
}

ROUTES: Final = (
    *with_head(_JWKS),
    *with_head(_LIST),
    *with_head(_GET),
    _PUT,
    _DELETE,
    _action("streams", "Name more streams.", ref("StreamsBody"), _DONE, "data_corrupt"),
    _UNLINK,
    _action(
        "claim",
        "Take the wake on.",
        ref("ClaimBody"),
        _CLAIMED,
        "ALREADY_CLAIMED",
        "NO_PENDING_WORK",
    ),
    _action(
        "callback",
        "For a webhook: this far is done.",
        ref("SettleBody"),
        _SETTLED,
        "INVALID_OFFSET",
        own_token=True,
    ),
    _action(
        "ack",
        "For a worker: this far is done.",
        ref("SettleBody"),
        _SETTLED,
        "INVALID_OFFSET",
        own_token=True,
    ),
    _action("release", "Give the wake back.", ref("ReleaseBody"), _DONE, own_token=True),
)
