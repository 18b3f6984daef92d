"""Everything that HTTP can do, the command line can: the table of routes against the commands.

A new route needs a line here: the command that uses it, or why there is none.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
import typer.main

from headwater.cli.main import app
from headwater.http.routes import ROUTES

STREAM: Final = "/v1/stream/{path}"
GROUP: Final = f"{STREAM}/_groups/{{group}}"
SUBSCRIPTIONS: Final = "/v1/stream/__ds/subscriptions"
SUBSCRIPTION: Final = f"{SUBSCRIPTIONS}/{{subscription}}"
DOCUMENT: Final = "/v1/yjs/{service}/docs/{path}"

# By route: commands, with the options that it takes.
COMMANDS: Final = {
    f"PUT {STREAM}": "create --version --unique-ids --id-pointer --keep; fork; set --keep",
    f"POST {STREAM}": "append --id --seq --producer --epoch --close; close",
    f"GET {STREAM}": "read --from --follow; tail",
    f"HEAD {STREAM}": "info",
    f"DELETE {STREAM}": "rm --purge",
    f"POST {STREAM}/_undelete": "undelete",
    f"POST {STREAM}/_clear": "clear",
    f"GET {STREAM}/_details": "info",
    f"GET {STREAM}/_position": "read --since --until",
    f"GET {STREAM}/_segments": "ranges --max-bytes",
    f"GET {STREAM}/_bulk": "read --details --format",
    f"GET {STREAM}/_groups": "group ls",
    "GET /v1/groups": "group ls",
    f"GET {GROUP}": "group info",
    f"PUT {GROUP}": "group create",
    f"DELETE {GROUP}": "group rm",
    f"POST {GROUP}/fetch": "consume",
    f"POST {GROUP}/ack": "consume",
    f"POST {GROUP}/nack": "consume --nack-delay",
    f"POST {GROUP}/extend": "consume",
    f"POST {GROUP}/reject": "consume --reject-code",
    f"POST {GROUP}/seek": "group seek",
    f"POST {GROUP}/pause": "group pause",
    f"POST {GROUP}/resume": "group resume",
    "POST /v1/transaction": "transaction",
    f"GET {STREAM}/_profile": "live profile",
    f"POST {STREAM}/_profile": "live profile --kind --touch",
    f"GET {STREAM}/touch/meta": "live status",
    f"POST {STREAM}/touch/wait": "live wait --where --cursor",
    f"POST {STREAM}/touch/templates/activate": "live activate --ttl",
    f"GET {STREAM}/_snapshots": "snapshot ls",
    f"GET {STREAM}/_snapshots/{{offset}}": "snapshot get",
    f"PUT {STREAM}/_snapshots/{{offset}}": "snapshot put",
    f"DELETE {STREAM}/_snapshots/{{offset}}": "snapshot rm",
    "GET /v1/stream/__ds/jwks.json": "subscription keys",
    f"GET {SUBSCRIPTIONS}": "subscription ls",
    f"GET {SUBSCRIPTION}": "subscription info",
    f"PUT {SUBSCRIPTION}": "subscription create",
    f"DELETE {SUBSCRIPTION}": "subscription rm",
    f"POST {SUBSCRIPTION}/streams": "subscription add",
    f"DELETE {SUBSCRIPTION}/streams/{{path}}": "subscription drop",
    f"POST {SUBSCRIPTION}/claim": "subscription claim",
    f"POST {SUBSCRIPTION}/ack": "subscription claim --ack",
    f"POST {SUBSCRIPTION}/release": "subscription claim",
    f"PUT {DOCUMENT}": "doc create",
    f"GET {DOCUMENT}": "doc show --as --part",
    f"DELETE {DOCUMENT}": "doc rm --purge",
    "POST /v1/proxy": "fetch",
    "GET /v1/proxy/{id}": "response read",
    "PATCH /v1/proxy/{id}": "response abort",
    "DELETE /v1/proxy/{id}": "response rm",
    "GET /v1/streams": "ls --prefix --deleted",
    "GET /healthz": "health --alive",
    "GET /readyz": "health",
    "GET /metrics": "api",
    "GET /v1/figures": "api",
    "GET /v1/whoami": "whoami",
    "GET /openapi.json": "api",
    "GET /": "api",
    "GET /errors/": "api",
    "GET /v1/pipelines": "pipeline ls; pipeline show",
    "GET /v1/tables": "api",
    "POST /v1/sql": "sql",
    "GET /v1/cluster": "cluster status",
    "POST /v1/cluster/drain": "cluster drain",
    "POST /v1/presign": "presign --expires",
}
REASONS: Final = {
    f"POST {SUBSCRIPTION}/callback": "webhooks report here, with the token that woke them",
    f"POST {DOCUMENT}": "updates are made by editors",
    f"HEAD {DOCUMENT}": "a probe for editors",
    "HEAD /v1/proxy/{id}": "`response read` says the same and more",
    "GET /console": "is for browsers",
    "GET /console/": "is for browsers",
    "GET /js/": "is for browsers",
    "POST /v1/pipelines": "pipelines say here how far they are",
    "POST /v1/cluster/move": "nodes ask each other",
    "GET /v1/cluster/feed": "nodes follow each other's streams",
    "GET /v1/cluster/hello": "nodes prove to each other what they are",
    "POST /v1/follow": "saves browsers connections; `tail A B` has one for each stream",
}


def test_every_route_has_a_command_or_a_reason() -> None:
    routes = {f"{route.method} {route.path}" for route in ROUTES}
    # HEAD beside GET is the same without a body.
    asked = {one for one in routes if not (one.startswith("HEAD") and f"GET{one[4:]}" in routes)}
    asked |= {one for one in routes if one in COMMANDS or one in REASONS}
    assert not COMMANDS.keys() & REASONS.keys()
    assert asked == COMMANDS.keys() | REASONS.keys()


@pytest.mark.parametrize(
    "use", sorted({use for text in COMMANDS.values() for use in text.split("; ")})
)
def test_and_the_command_is_there(use: str) -> None:
    words = use.split()
    command: Any = typer.main.get_command(app)
    for word in [word for word in words if not word.startswith("-")]:
        command = command.get_command(typer.Context(command), word)
        assert command is not None, f"no command {word!r} of {use!r}"
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known
    assert re.search(r"Examples:\s", command.help or "")
