"""The shapes of JSON on the wire.

Schemas of what the server parses come from the types it parses with. Those of what it writes are
stated here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headwater.core.access.grants import GrantsText
from headwater.core.groups.commands import Ack, Extend, Nack, Reject
from headwater.core.groups.config import GroupConfig
from headwater.core.limits import FOLLOWED_MAX
from headwater.core.live.profile import ProfileEnvelope
from headwater.core.live.state import Totals
from headwater.core.subscriptions.config import SubscriptionConfig
from headwater.core.subscriptions.state import StreamInfo
from headwater.http.access.signing import SignBody
from headwater.http.resources.cluster import DrainBody, MoveBody
from headwater.http.resources.groups import FetchBody, SeekBody
from headwater.http.resources.live import ActivateBody, WaitBody
from headwater.http.resources.pipelines import PipelineReport
from headwater.http.resources.subscriptions import ClaimBody, ReleaseBody, SettleBody, StreamsBody
from headwater.http.resources.tables import SqlBody
from headwater.http.resources.transactions import AckPart, ProducerPart
from headwater.http.routes.route import TEXT, WHOLE, Schema, listing, nullable, obj, ref
from headwater.service.groups.operations import GroupInfo
from headwater.service.live.metrics import camel
from headwater.service.transactions import PUBLISHES_MAX

_PARSED: Final = (
    GroupConfig,
    FetchBody,
    Ack,
    Nack,
    Extend,
    Reject,
    SeekBody,
    AckPart,
    ProducerPart,
    GroupInfo,
    ProfileEnvelope,
    WaitBody,
    ActivateBody,
    SubscriptionConfig,
    StreamInfo,
    StreamsBody,
    ClaimBody,
    SettleBody,
    ReleaseBody,
    SignBody,
    PipelineReport,
    DrainBody,
    MoveBody,
    GrantsText,
    SqlBody,
)
_BOOLEAN: Final[Schema] = {"type": "boolean"}
_STREAM_FIELDS: Final[dict[str, Schema]] = {
    "name": TEXT,
    "content_type": TEXT,
    "tail": TEXT,
    "closed": _BOOLEAN,
    "created": WHOLE,
    "size_bytes": WHOLE,
    "messages": WHOLE,
    "ttl_s": nullable(WHOLE),
    "expires_at": nullable({"type": "integer"}),
    "profile": {"type": "string", "enum": ["generic", "state-protocol"]},
}
_DETAIL_FIELDS: Final[dict[str, Schema]] = {
    "description": nullable(TEXT),
    "version": WHOLE,
    "unique_ids": nullable(TEXT),
    "id_pointer": nullable(TEXT),
    "retention_s": nullable(WHOLE),
    "retention_bytes": nullable(WHOLE),
    "earliest": TEXT,
    "forked_from": nullable(TEXT),
    "forks": WHOLE,
    "producers": WHOLE,
    "readers": WHOLE,
}
_RANGE: Final = obj(
    {
        "offset": TEXT,
        "until": TEXT,
        "bytes": WHOLE,
        "first_message": WHOLE,
        "messages": WHOLE,
        "first_timestamp": {"type": "integer"},
        "last_timestamp": {"type": "integer"},
        "file": nullable(
            obj(
                {
                    "name": TEXT,
                    "size_bytes": WHOLE,
                    "checksum": TEXT,
                    "index_offset": WHOLE,
                    "location": nullable(TEXT),
                }
            )
        ),
    }
)
_TEMPLATE: Final = obj(
    {
        "templateId": TEXT,
        "entity": TEXT,
        "fields": listing(obj({"name": TEXT, "encoding": TEXT})),
        "waiters": WHOLE,
        "lastSeenMs": WHOLE,
        "inactivityTtlMs": WHOLE,
    }
)
_LIVE: Final[dict[str, Schema]] = {
    "LiveMeta": obj(
        {
            "cursor": TEXT,
            "epoch": TEXT,
            "generation": WHOLE,
            "settled": _BOOLEAN,
            "touchMode": {"type": "string", "enum": ["idle", "fine", "restricted", "coarseOnly"]},
            "bucketMs": WHOLE,
            "coalesceMs": {"type": "number"},
            "pendingKeys": WHOLE,
            "overflowBuckets": WHOLE,
            "lagSourceOffsets": WHOLE,
            "bucketMaxSourceOffsetSeq": TEXT,
            "activeTemplates": WHOLE,
            "hotTemplates": WHOLE,
            "hotFineKeys": WHOLE,
            "activeWaiters": WHOLE,
            "fineWaitersActive": WHOLE,
            "coarseWaitersActive": WHOLE,
            "broadFineWaitersActive": WHOLE,
            "unplacedWaitersActive": WHOLE,
            "memoryBytes": WHOLE,
            **{camel(f"total_{name}"): WHOLE for name in Totals.__struct_fields__},
        },
        templates=listing(_TEMPLATE),
    ),
    "Wait": obj(
        {
            "cursor": TEXT,
            "effectiveWaitKind": TEXT,
            "bucketMaxSourceOffsetSeq": TEXT,
            "flushAtMs": WHOLE,
            "bucketStartMs": WHOLE,
        },
        touched=_BOOLEAN,
        stale=_BOOLEAN,
        epoch=TEXT,
        generation=WHOLE,
        error=obj({"code": TEXT, "message": TEXT}),
    ),
    "Activation": obj(
        {
            "activated": listing(
                obj({"templateId": TEXT, "state": TEXT, "activeFromTouchOffset": TEXT})
            ),
            "denied": listing(obj({"index": WHOLE, "reason": TEXT})),
            "limits": obj(
                {
                    "maxActiveTemplatesPerEntity": WHOLE,
                    "maxActiveTemplatesPerStream": WHOLE,
                    "activationRateLimitPerMinute": WHOLE,
                }
            ),
        }
    ),
}
_SUBSCRIPTION: Final = obj(
    {
        "id": TEXT,
        "subscription_id": TEXT,
        "type": {"type": "string", "enum": ["webhook", "pull-wake"]},
        "lease_ttl_ms": WHOLE,
        "created_at": {"type": "string", "format": "date-time"},
        "status": {"type": "string", "enum": ["active", "failed"]},
        "generation": WHOLE,
        "state": {"type": "string", "enum": ["idle", "due", "offered", "leased"]},
        "failures": WHOLE,
        "streams_total": WHOLE,
        "streams_pending": WHOLE,
    },
    pattern=TEXT,
    webhook={"type": "object"},
    wake_stream=TEXT,
    description=TEXT,
    holder=TEXT,
    next_attempt_at=WHOLE,
    streams=listing(ref("StreamInfo")),
)
# Not from its type, which takes the value verbatim from the body.
_PUBLISH: Final[Schema] = {
    **obj(
        {"stream": TEXT},
        value={},
        data=nullable({"type": "string", "contentEncoding": "base64"}),
        id=nullable({"type": "string", "minLength": 1, "maxLength": 256}),
        on_duplicate={"type": "string", "enum": ["abort", "succeed"], "default": "abort"},
        producer=nullable(ref("ProducerPart")),
    ),
    "additionalProperties": False,
}
_WRITTEN: Final[dict[str, Schema]] = {
    "Error": obj(
        {"error": obj({"code": TEXT, "message": TEXT}, index={"type": "integer", "minimum": 0})}
    ),
    "Stream": obj(_STREAM_FIELDS),
    "DeletedStream": obj(_STREAM_FIELDS | {"deleted_at": WHOLE, "kept_until": WHOLE}),
    "StreamDetails": obj(_STREAM_FIELDS | _DETAIL_FIELDS),
    "Groups": obj(
        {
            "streams": listing(obj({"stream": TEXT, "groups": listing(ref("GroupInfo"))})),
            "next": nullable(WHOLE),
        }
    ),
    "Caller": obj(
        {
            "access": _BOOLEAN,
            "name": nullable(TEXT),
            "expires_at_ms": nullable(WHOLE),
            "grants": nullable(ref("GrantsText")),
            "administers": _BOOLEAN,
        },
        stream=obj({"path": TEXT, "read": _BOOLEAN, "write": _BOOLEAN, "delete": _BOOLEAN}),
    ),
    "Figures": obj(
        {
            "step_ms": WHOLE,
            "times": listing(WHOLE),
            "figures": {
                "type": "object",
                "additionalProperties": listing(nullable({"type": "number"})),
            },
        }
    ),
    "Tables": obj(
        {
            "tables": listing(
                obj(
                    {
                        "name": TEXT,
                        "path": TEXT,
                        "rows": WHOLE,
                        "size_bytes": WHOLE,
                        "version": WHOLE,
                        "changed": nullable(WHOLE),
                    }
                )
            )
        }
    ),
    "Rows": obj(
        {
            "columns": listing(
                obj(
                    {
                        "name": TEXT,
                        "kind": {"type": "string", "enum": ["number", "time", "text", "other"]},
                    }
                )
            ),
            "rows": listing(listing({})),
            "more": _BOOLEAN,
        }
    ),
    "Cluster": obj(
        {
            "node": WHOLE,
            "nodes": listing(
                obj(
                    {
                        "id": WHOLE,
                        "name": TEXT,
                        "address": nullable(TEXT),
                        "epoch": WHOLE,
                        "lease_ms": WHOLE,
                        "draining": _BOOLEAN,
                        "labels": listing(TEXT),
                        "shards": WHOLE,
                    }
                )
            ),
            "shards": listing(
                obj(
                    {
                        "id": WHOLE,
                        "owner": nullable(WHOLE),
                        "epoch": WHOLE,
                        "label": nullable(TEXT),
                    }
                )
            ),
            "bindings": listing(obj({"prefix": TEXT, "label": TEXT})),
            "leases": listing(obj({"node": WHOLE, "lease_ms": WHOLE, "counter": WHOLE})),
        }
    ),
    "Pipelines": obj({"pipelines": listing(ref("PipelineReport"))}),
    "StreamList": obj(
        {
            "streams": listing({"anyOf": [ref("Stream"), ref("DeletedStream")]}),
            "next": nullable(TEXT),
        }
    ),
    "Position": obj(
        {"offset": TEXT},
        skip=WHOLE,
        messages=WHOLE,
        bytes=WHOLE,
        tail=TEXT,
        messages_behind=WHOLE,
        closed=_BOOLEAN,
    ),
    "Snapshots": obj(
        {
            "snapshots": listing(
                obj({"offset": TEXT, "content_type": TEXT, "size_bytes": WHOLE, "created": WHOLE})
            )
        }
    ),
    "Message": obj(
        {"id": TEXT, "offset": TEXT, "deliveries": WHOLE, "receipt": TEXT},
        value={},
        data=TEXT,
        time=WHOLE,
        producer=obj({"id": TEXT, "epoch": WHOLE, "seq": WHOLE}),
    ),
    "Fetched": obj(
        {"messages": listing(ref("Message")), "lag": WHOLE}, acked=WHOLE, stale=listing(TEXT)
    ),
    "Ranges": obj(
        {
            "tail": TEXT,
            "closed": _BOOLEAN,
            "content_type": TEXT,
            "messages": WHOLE,
            "ranges": listing(_RANGE),
        }
    ),
    **_LIVE,
    "Subscription": _SUBSCRIPTION,
    "SubscriptionList": obj(
        {"subscriptions": listing(ref("Subscription")), "next": nullable(TEXT)}
    ),
    "PublishPart": _PUBLISH,
    "FollowBody": {
        **obj(
            {
                "streams": {
                    "type": "object",
                    "additionalProperties": TEXT,
                    "minProperties": 1,
                    "maxProperties": FOLLOWED_MAX,
                }
            }
        ),
        "additionalProperties": False,
    },
    "TransactionBody": {
        "type": "object",
        "properties": {
            "publish": {**listing(ref("PublishPart")), "maxItems": PUBLISHES_MAX, "default": []},
            "ack": nullable(ref("AckPart")),
        },
        "additionalProperties": False,
    },
    "TransactionDone": obj(
        {
            "acked": WHOLE,
            "published": listing(obj({"stream": TEXT, "offset": TEXT, "duplicate": _BOOLEAN})),
        }
    ),
}


def components() -> dict[str, Any]:
    _, parsed = msgspec.json.schema_components(_PARSED, ref_template="#/components/schemas/{name}")
    # Defaults are Python values; a description must be plain JSON.
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({**parsed, **_WRITTEN}))
    return plain
