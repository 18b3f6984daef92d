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
`aclose`. What goes over the wire is decided in modules without IO (`protocol`, `reading`, `sse`,
`retry`, `producer_state`, `state`, `groups`, `subscriptions`, `live`); the async classes put IO
around them, and the blocking classes are written from the async ones by a script. `live_keys` is
for applications that wait for changes in their own way.
"""

from headwater.client._client import AsyncHeadwater
from headwater.client._consumer import AsyncConsumer
from headwater.client._group import AsyncGroup
from headwater.client._live import AsyncLiveQuery, AsyncLiveStream
from headwater.client._message import AsyncMessage, AsyncTransaction
from headwater.client._portal import Delivery
from headwater.client._producer import AsyncDelivery, AsyncProducer, ProducerOptions
from headwater.client._reader import AsyncItems, AsyncReader
from headwater.client._snapshots import AsyncSnapshots
from headwater.client._stream import AsyncStream
from headwater.client._subscription import AsyncClaim, AsyncSubscription
from headwater.client._sync_client import Headwater
from headwater.client._sync_consumer import Consumer
from headwater.client._sync_group import Group
from headwater.client._sync_live import LiveQuery, LiveStream
from headwater.client._sync_message import Message, Transaction
from headwater.client._sync_producer import Producer
from headwater.client._sync_reader import Items, Reader
from headwater.client._sync_snapshots import Snapshots
from headwater.client._sync_stream import Stream
from headwater.client._sync_subscription import Claim, Subscription
from headwater.client.batch import Batch, Position
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
)
from headwater.client.groups import Committed, GroupInfo, GroupSettings, Published
from headwater.client.live import (
    Activation,
    LiveMeta,
    StateProtocol,
    TouchSettings,
    WaitResult,
)
from headwater.client.live_keys import Encoded, Keyset, Template, keyset
from headwater.client.protocol import (
    NOW,
    START,
    ProducerTag,
    Receipt,
    Response,
    StreamInfo,
)
from headwater.client.resources import (
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
from headwater.client.retry import RetryPolicy
from headwater.client.state import Change, MaterializedState
from headwater.client.subscriptions import (
    LinkedStream,
    SubscriptionInfo,
    WebhookKeys,
    WebhookWake,
)
from headwater.client.transport import Timeouts, Transport

__all__ = [
    "NOW",
    "START",
    "Activation",
    "AlreadyClaimed",
    "AsyncClaim",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncGroup",
    "AsyncHeadwater",
    "AsyncItems",
    "AsyncLiveQuery",
    "AsyncLiveStream",
    "AsyncMessage",
    "AsyncProducer",
    "AsyncReader",
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
    "RequestTimedOut",
    "Response",
    "ResponseError",
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
    "WaitResult",
    "WebhookKeys",
    "WebhookWake",
    "keyset",
]
