"""Consumer groups and transactions."""

from __future__ import annotations

from typing import Final

from headwater.http.access.rules import Need
from headwater.http.resources.groups import FETCH_MAX, STREAMS_MAX
from headwater.http.routes.route import (
    EVENTS_TYPE,
    JSON_TYPE,
    STREAM,
    TEXT,
    WHOLE,
    Answer,
    Parameter,
    Route,
    Schema,
    listing,
    obj,
    ref,
    whole,
    with_head,
)
from headwater.http.routes.streams import APPEND_ERRORS, OFFSET_ERRORS, STREAM_ERRORS

GROUPS: Final = f"{STREAM}/_groups"
GROUP: Final = f"{GROUPS}/{{group}}"
TRANSACTION: Final = "/v1/transaction"

# The position of a group is reported with a time, which may be in object storage.
_STREAM_ERRORS: Final = (*STREAM_ERRORS, "history_unavailable")
_GROUP_ERRORS: Final = (*_STREAM_ERRORS, "group_not_found")

_LIST = Route(
    "GET",
    GROUPS,
    "All groups of a stream.",
    lambda on: on.groups.index,
    {200: Answer("The groups.", content={JSON_TYPE: obj({"groups": listing(ref("GroupInfo"))})})},
    needs=Need.READ,
    errors=_STREAM_ERRORS,
)
_EVERYWHERE = Route(
    "GET",
    "/v1/groups",
    "The groups of all streams, stream by stream.",
    lambda on: on.groups.everywhere,
    {200: Answer("A page of streams with their groups.", content={JSON_TYPE: ref("Groups")})},
    needs=Need.KNOWN,
    errors=("invalid_query", "data_corrupt", "history_unavailable"),
    query=(
        Parameter("after", "The `next` of the page before.", WHOLE),
        Parameter(
            "limit", "At most this many streams.", whole(1, STREAMS_MAX, default=STREAMS_MAX)
        ),
    ),
)
_GET = Route(
    "GET",
    GROUP,
    "A group; with `live=sse`, its messages.",
    lambda on: on.groups.get,
    {200: Answer("The group.", content={JSON_TYPE: ref("GroupInfo"), EVENTS_TYPE: {}})},
    needs=Need.READ_OR_GROUP,
    errors=(*_GROUP_ERRORS, "invalid_query"),
    waits=True,
    query=(
        Parameter("live", "`sse` has messages pushed.", {"type": "string", "enum": ["sse"]}),
        Parameter("consumer", "With `live=sse`: the member.", {"type": "string", "maxLength": 256}),
        Parameter(
            "max", "With `live=sse`: how many may be unsettled at a time.", whole(1, FETCH_MAX)
        ),
    ),
)
_PUT = Route(
    "PUT",
    GROUP,
    "Create a group, or change its settings.",
    lambda on: on.groups.put,
    {
        200: Answer("It was there.", content={JSON_TYPE: ref("GroupInfo")}),
        201: Answer("It is new.", content={JSON_TYPE: ref("GroupInfo")}),
    },
    needs=Need.GROUP,
    errors=(
        *_STREAM_ERRORS,
        "invalid_body",
        *OFFSET_ERRORS,
        "group_conflict",
        "path_reserved",
        "too_busy",
        "quota_exceeded",
    ),
    body={JSON_TYPE: ref("GroupConfig")},
    body_optional=True,
)
_DELETE = Route(
    "DELETE",
    GROUP,
    "Remove a group.",
    lambda on: on.groups.delete,
    {204: Answer("It is gone.")},
    needs=Need.GROUP,
    errors=(*_GROUP_ERRORS, "too_busy"),
)
_NOTHING: Final = {204: Answer("Done.")}


def _action(
    name: str,
    text: str,
    body: Schema,
    answers: dict[int, Answer],
    *more: str,
    waits: bool = False,
) -> Route:
    return Route(
        "POST",
        f"{GROUP}/{name}",
        text,
        lambda on: getattr(on.groups, name),
        answers,
        needs=Need.GROUP,
        errors=(*_GROUP_ERRORS, "too_busy", *more),
        body={JSON_TYPE: body} if body else {},
        waits=waits,
    )


def _settling(name: str, text: str, body: Schema, word: str) -> Route:
    schema = obj({word: {"type": "integer"}, "stale": listing(TEXT)})
    answer = Answer("How many, and the receipts that were stale.", content={JSON_TYPE: schema})
    return _action(name, text, body, {200: answer}, "invalid_body")


_FETCHED: Final = {200: Answer("Messages, maybe none.", content={JSON_TYPE: ref("Fetched")})}
_ACTIONS: Final = (
    _action("fetch", "Ask for messages.", ref("FetchBody"), _FETCHED, "invalid_body", waits=True),
    _settling("ack", "These are done.", ref("Ack"), "acked"),
    _settling("nack", "Deliver these again.", ref("Nack"), "nacked"),
    _settling("extend", "More time for these.", ref("Extend"), "extended"),
    _settling("reject", "Nobody can work on these.", ref("Reject"), "rejected"),
    _action(
        "seek",
        "Go on elsewhere.",
        ref("SeekBody"),
        _NOTHING,
        "invalid_body",
        *OFFSET_ERRORS,
    ),
    _action("pause", "Hand out nothing.", {}, _NOTHING),
    _action("resume", "Hand out again.", {}, _NOTHING),
)
_TRANSACT = Route(
    "POST",
    TRANSACTION,
    "Acknowledge and publish, all or nothing.",
    lambda on: on.transactions.run,
    {200: Answer("Everything is done.", content={JSON_TYPE: ref("TransactionDone")})},
    needs=Need.KNOWN,
    errors=(
        *_GROUP_ERRORS,
        "invalid_body",
        *APPEND_ERRORS,
        "stale_receipt",
    ),
    body={JSON_TYPE: ref("TransactionBody")},
    holds_data=True,
    # Anything wrong with a publish is a conflict: the resource itself exists.
    elsewhere={
        "stream_not_found": 409,
        "stream_gone": 409,
        "stale_epoch": 409,
        "forbidden": 409,
    },
)

ROUTES: Final = (
    *with_head(_LIST),
    *with_head(_EVERYWHERE),
    *with_head(_GET),
    _PUT,
    _DELETE,
    *_ACTIONS,
    _TRANSACT,
)
