"""PostgreSQL's changes in a stream: logical decoding to State Protocol records, exactly once.

    database = Database.parse("postgresql://localhost/app")
    wanted = Wanted(stream="app/changes", create=True, snapshot=True)
    async with AsyncHeadwater("http://localhost:4437") as client:
        await Follower(database, client, wanted).run(stop=asyncio.Event())

Not to be confused with `headwater.store.postgresql`, the engine that keeps a server's own streams
in a database.

Needs `pip install headwater[postgres]`. All decisions are in modules without IO: `pgoutput` (the
messages of the log), `values` (texts to JSON), `changes` (messages to records), `position` (their
order), `buffer` (cuts). Around them: `catalog` and `feed` talk to PostgreSQL, `sink` to the stream,
`plan` says what is required, `snapshot` begins and `follower` continues.
"""

from headwater.postgres.catalog import Catalog
from headwater.postgres.connection import Database
from headwater.postgres.errors import (
    BadMessage,
    NotConnected,
    NotPrepared,
    PostgresError,
    SlotInUse,
    SlotLost,
    StreamUnfit,
)
from headwater.postgres.follower import Follower
from headwater.postgres.plan import Wanted

__all__ = [
    "BadMessage",
    "Catalog",
    "Database",
    "Follower",
    "NotConnected",
    "NotPrepared",
    "PostgresError",
    "SlotInUse",
    "SlotLost",
    "StreamUnfit",
    "Wanted",
]
