"""A client for Durable Streams servers: Headwater's own, and any other that speaks the protocol.

Two flavours with one surface, `AsyncHeadwater` for asyncio and `Headwater` for everything else:

    from headwater.client import Headwater

    with Headwater("http://localhost:4437") as client:
        orders = client.stream("orders")
        orders.ensure(content_type="application/json")
        orders.append({"id": 1, "item": "tea"})
        for order in orders.read().messages():
            print(order)

The async flavour reads the same with `async with`, `async for` and `await`, and closes with
`aclose`. `protocol` decides what goes over the wire, without IO; the async classes in `aio` put IO
around it, and a script writes the blocking classes in `sync` from those. `live_keys` is for
applications that wait for changes in their own way.
"""

from headwater.client.aio.client import AsyncHeadwater
from headwater.client.aio.consumer import AsyncConsumer
from headwater.client.aio.group import AsyncGroup
from headwater.client.aio.live import AsyncLiveQuery, AsyncLiveStream
from headwater.client.aio.message import AsyncMessage, AsyncTransaction
from headwater.client.aio.producer import AsyncDelivery, AsyncProducer, ProducerOptions
from headwater.client.aio.reader import AsyncItems, AsyncReader
from headwater.client.aio.records import AsyncRecords
from headwater.client.aio.response import AsyncDurableResponse
from headwater.client.aio.snapshots import AsyncSnapshots
from headwater.client.aio.stream import AsyncStream
from headwater.client.aio.subscription import AsyncClaim, AsyncSubscription
from headwater.client.aio.transport import Timeouts, Transport
from headwater.client.errors import (
    AlreadyClaimed,
    BadRequest,
    BufferFull,
    ConfigConflict,
    Conflict,
    ConnectionFailed,
    DuplicateId,
    Fenced,
    Forbidden,
    GroupNotFound,
    HeadwaterError,
    InvalidMessage,
    InvalidSignature,
    LiveNotEnabled,
    NoPendingWork,
    NotSupported,
    ProducerStopped,
    RateLimited,
    RequestTimedOut,
    ResponseError,
    ResponseIncomplete,
    SequenceConflict,
    ServerUnavailable,
    ServerUnreachable,
    StaleEpoch,
    StaleReceipt,
    StreamClosed,
    StreamExists,
    StreamGone,
    StreamNotFound,
    SubscriptionNotFound,
    TooLarge,
    Unauthorized,
    UnexpectedAnswer,
    UnknownSigningKey,
    UpstreamRefused,
)
from headwater.client.live_keys import Encoded, Keyset, Template, keyset
from headwater.client.protocol.batch import Batch, Position
from headwater.client.protocol.extensions import (
    Bulk,
    Range,
    Ranges,
    Reach,
    SealedFile,
    Snapshot,
    SnapshotInfo,
    StreamDetails,
    StreamPage,
    StreamSummary,
)
from headwater.client.protocol.groups import Committed, GroupInfo, GroupSettings, Published
from headwater.client.protocol.live import (
    Activation,
    LiveMeta,
    StateProtocol,
    TouchSettings,
    WaitResult,
)
from headwater.client.protocol.records import Record
from headwater.client.protocol.retry import RetryPolicy
from headwater.client.protocol.state import Change, MaterializedState
from headwater.client.protocol.streams import (
    NOW,
    START,
    ProducerTag,
    Receipt,
    Response,
    StreamInfo,
)
from headwater.client.protocol.subscriptions import (
    LinkedStream,
    SubscriptionInfo,
    WebhookKeys,
    WebhookWake,
)
from headwater.client.sync.client import Headwater
from headwater.client.sync.consumer import Consumer
from headwater.client.sync.group import Group
from headwater.client.sync.live import LiveQuery, LiveStream
from headwater.client.sync.message import Message, Transaction
from headwater.client.sync.portal import Delivery
from headwater.client.sync.producer import Producer
from headwater.client.sync.reader import Items, Reader
from headwater.client.sync.records import Records
from headwater.client.sync.response import DurableResponse
from headwater.client.sync.snapshots import Snapshots
from headwater.client.sync.stream import Stream
from headwater.client.sync.subscription import Claim, Subscription

__all__ = [
    "NOW",
    "START",
    "Activation",
    "AlreadyClaimed",
    "AsyncClaim",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncDurableResponse",
    "AsyncGroup",
    "AsyncHeadwater",
    "AsyncItems",
    "AsyncLiveQuery",
    "AsyncLiveStream",
    "AsyncMessage",
    "AsyncProducer",
    "AsyncReader",
    "AsyncRecords",
    "AsyncSnapshots",
    "AsyncStream",
    "AsyncSubscription",
    "AsyncTransaction",
    "BadRequest",
    "Batch",
    "BufferFull",
    "Bulk",
    "Change",
    "Claim",
    "Committed",
    "ConfigConflict",
    "Conflict",
    "ConnectionFailed",
    "Consumer",
    "Delivery",
    "DuplicateId",
    "DurableResponse",
    "Encoded",
    "Fenced",
    "Forbidden",
    "Group",
    "GroupInfo",
    "GroupNotFound",
    "GroupSettings",
    "Headwater",
    "HeadwaterError",
    "InvalidMessage",
    "InvalidSignature",
    "Items",
    "Keyset",
    "LinkedStream",
    "LiveMeta",
    "LiveNotEnabled",
    "LiveQuery",
    "LiveStream",
    "MaterializedState",
    "Message",
    "NoPendingWork",
    "NotSupported",
    "Position",
    "Producer",
    "ProducerOptions",
    "ProducerStopped",
    "ProducerTag",
    "Published",
    "Range",
    "Ranges",
    "RateLimited",
    "Reach",
    "Reader",
    "Receipt",
    "Record",
    "Records",
    "RequestTimedOut",
    "Response",
    "ResponseError",
    "ResponseIncomplete",
    "RetryPolicy",
    "SealedFile",
    "SequenceConflict",
    "ServerUnavailable",
    "ServerUnreachable",
    "Snapshot",
    "SnapshotInfo",
    "Snapshots",
    "StaleEpoch",
    "StaleReceipt",
    "StateProtocol",
    "Stream",
    "StreamClosed",
    "StreamDetails",
    "StreamExists",
    "StreamGone",
    "StreamInfo",
    "StreamNotFound",
    "StreamPage",
    "StreamSummary",
    "Subscription",
    "SubscriptionInfo",
    "SubscriptionNotFound",
    "Template",
    "Timeouts",
    "TooLarge",
    "TouchSettings",
    "Transaction",
    "Transport",
    "Unauthorized",
    "UnexpectedAnswer",
    "UnknownSigningKey",
    "UpstreamRefused",
    "WaitResult",
    "WebhookKeys",
    "WebhookWake",
    "keyset",
]
