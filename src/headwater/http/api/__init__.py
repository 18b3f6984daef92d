"""What this server answers, as data: every resource, method, parameter, header, status and error.

`/openapi.json` is made from it, and the tests hold it against the routes and against a running
server, so that neither can change without the other. A new resource is described in a module here
and added to `OPERATIONS`.
"""

from headwater.http.api import groups, live, server, snapshots, streams, subscriptions
from headwater.http.api.model import Operation

OPERATIONS: tuple[Operation, ...] = (
    *streams.OPERATIONS,
    *groups.OPERATIONS,
    *live.OPERATIONS,
    *snapshots.OPERATIONS,
    *subscriptions.OPERATIONS,
    *server.OPERATIONS,
)

__all__ = ["OPERATIONS", "Operation"]
