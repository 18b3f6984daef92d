"""The shapes of JSON that go over the wire.

What the server parses comes from the very types it parses with. What it writes is stated here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headwater.core.groups.config import GroupConfig
from headwater.http.api.model import TEXT, WHOLE, Schema, listing, nullable, obj, ref
from headwater.http.groups import AckBody, ExtendBody, FetchBody, NackBody, SeekBody
from headwater.http.transactions import AckPart, ProducerPart
from headwater.service.groups import GroupInfo
from headwater.service.transactions import PUBLISHES_MAX

_PARSED: Final = (
    GroupConfig,
    FetchBody,
    AckBody,
    NackBody,
    ExtendBody,
    SeekBody,
    AckPart,
    ProducerPart,
    GroupInfo,
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
}
_DETAIL_FIELDS: Final[dict[str, Schema]] = {
    "description": nullable(TEXT),
    "version": WHOLE,
    "unique_ids": nullable(TEXT),
    "id_pointer": nullable(TEXT),
    "forked_from": nullable(TEXT),
    "forks": WHOLE,
    "producers": WHOLE,
    "readers": WHOLE,
}
# Not from its type, because that takes the value as it stands in the body.
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
    "StreamDetails": obj(_STREAM_FIELDS | _DETAIL_FIELDS),
    "StreamList": obj({"streams": listing(ref("Stream")), "next": nullable(TEXT)}),
    "Position": obj({"offset": TEXT, "skip": WHOLE}),
    "Message": obj(
        {"id": TEXT, "offset": TEXT, "deliveries": WHOLE, "receipt": TEXT}, value={}, data=TEXT
    ),
    "Fetched": obj({"messages": listing(ref("Message")), "lag": WHOLE}),
    "PublishPart": _PUBLISH,
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
    return {**parsed, **_WRITTEN}
