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
`retry`, `producer_state`, `state`, `groups`); the async classes put IO around them, and the
blocking classes are written from the async ones by a script.
"""

from headwater.client._client import AsyncHeadwater
from headwater.client._consumer import AsyncConsumer
from headwater.client._group import AsyncGroup
from headwater.client._message import AsyncMessage, AsyncTransaction
from headwater.client._portal import Delivery
from headwater.client._producer import AsyncDelivery, AsyncProducer, ProducerOptions
from headwater.client._reader import AsyncItems, AsyncReader
from headwater.client._stream import AsyncStream
from headwater.client._sync_client import Headwater
from headwater.client._sync_consumer import Consumer
from headwater.client._sync_group import Group
from headwater.client._sync_message import Message, Transaction
from headwater.client._sync_producer import Producer
from headwater.client._sync_reader import Items, Reader
from headwater.client._sync_stream import Stream
from headwater.client.batch import Batch, Position
from headwater.client.errors import (
    BadRequest,
    BufferFull,
    ConfigConflict,
    Conflict,
    ConnectionFailed,
    DuplicateId,
    Forbidden,
    GroupNotFound,
    HeadwaterError,
    InvalidMessage,
    ProducerStopped,
    RateLimited,
    RequestTimedOut,
    ResponseError,
    SequenceConflict,
    ServerUnavailable,
    StaleEpoch,
    StaleReceipt,
    StreamClosed,
    StreamExists,
    StreamGone,
    StreamNotFound,
    TooLarge,
    Unauthorized,
    UnexpectedAnswer,
)
from headwater.client.groups import Committed, GroupInfo, GroupSettings, Published
from headwater.client.protocol import (
    NOW,
    START,
    ProducerTag,
    Receipt,
    Response,
    StreamInfo,
)
from headwater.client.retry import RetryPolicy
from headwater.client.state import Change, MaterializedState
from headwater.client.transport import Timeouts, Transport

__all__ = [
    "NOW",
    "START",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncGroup",
    "AsyncHeadwater",
    "AsyncItems",
    "AsyncMessage",
    "AsyncProducer",
    "AsyncReader",
    "AsyncStream",
    "AsyncTransaction",
    "BadRequest",
    "Batch",
    "BufferFull",
    "Change",
    "Committed",
    "ConfigConflict",
    "Conflict",
    "ConnectionFailed",
    "Consumer",
    "Delivery",
    "DuplicateId",
    "Forbidden",
    "Group",
    "GroupInfo",
    "GroupNotFound",
    "GroupSettings",
    "Headwater",
    "HeadwaterError",
    "InvalidMessage",
    "Items",
    "MaterializedState",
    "Message",
    "Position",
    "Producer",
    "ProducerOptions",
    "ProducerStopped",
    "ProducerTag",
    "Published",
    "RateLimited",
    "Reader",
    "Receipt",
    "RequestTimedOut",
    "Response",
    "ResponseError",
    "RetryPolicy",
    "SequenceConflict",
    "ServerUnavailable",
    "StaleEpoch",
    "StaleReceipt",
    "Stream",
    "StreamClosed",
    "StreamExists",
    "StreamGone",
    "StreamInfo",
    "StreamNotFound",
    "Timeouts",
    "TooLarge",
    "Transaction",
    "Transport",
    "Unauthorized",
    "UnexpectedAnswer",
]
