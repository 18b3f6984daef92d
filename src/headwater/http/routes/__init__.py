"""The routes of this server: one table.

A route defines its method and path, who may use it, which handler answers it, and what goes in and
comes out. Requests are dispatched by it (`matching`), the gate takes the permission from it, bodies
are read only if it accepts one, and `/openapi.json` is generated from it. To add a route, add one
entry to a module here, and its handler.
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
