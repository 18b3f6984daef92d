"""The routes of this server: one table.

A route says which method of which path it is, who may use it, who answers it, and what goes in and
comes out. Requests are dispatched by it (`matching`), the gate asks it for the permission, bodies
are read only where it takes one, and `/openapi.json` is made from it. A new route is one entry in a
module here, and nothing else but its handler.
"""

from headwater.http.routes import (
    documents,
    groups,
    live,
    responses,
    server,
    snapshots,
    streams,
    subscriptions,
)
from headwater.http.routes.route import Route

ROUTES: tuple[Route, ...] = (
    *streams.ROUTES,
    *groups.ROUTES,
    *live.ROUTES,
    *snapshots.ROUTES,
    *subscriptions.ROUTES,
    *documents.ROUTES,
    *responses.ROUTES,
    *server.ROUTES,
)

__all__ = ["ROUTES", "Route"]
