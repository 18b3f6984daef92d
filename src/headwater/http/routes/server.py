"""The server as a whole."""

from __future__ import annotations

from typing import Final

from headwater.http.access.rules import Need
from headwater.http.access.whoami import whoami
from headwater.http.answers import FEED_TYPE
from headwater.http.error_pages import error_page
from headwater.http.routes import headers
from headwater.http.routes.route import (
    EVENTS_TYPE,
    FLAG,
    JSON_TYPE,
    TEXT,
    WHOLE,
    Answer,
    Parameter,
    Route,
    Schema,
    obj,
    page,
    ref,
    with_head,
)
from headwater.http.routes.streams import STREAM_ERRORS

_PLAIN: Final = {"text/plain": TEXT}
_PROBLEMS: Final[Schema] = {"type": "object", "additionalProperties": TEXT}
_LIST = Route(
    "GET",
    "/v1/streams",
    "The streams of this server, by path.",
    lambda on: on.catalog.index,
    {200: Answer("A page of them.", content={JSON_TYPE: ref("StreamList")})},
    needs=Need.KNOWN,
    errors=("invalid_query", "data_corrupt"),
    query=(
        *page("streams", "path"),
        Parameter("deleted", "`true` for deleted streams that can be undeleted.", FLAG),
    ),
)
_HEALTHZ = Route(
    "GET",
    "/healthz",
    "Is the process alive.",
    lambda on: on.about.health,
    {200: Answer("It is.", content={JSON_TYPE: obj({"status": TEXT})})},
    needs=Need.NOTHING,
)
_READYZ = Route(
    "GET",
    "/readyz",
    "Can it use its storage.",
    lambda on: on.about.ready,
    {
        200: Answer(
            "It can; `problems` says what else does not work at present.",
            content={JSON_TYPE: obj({"status": TEXT}, problems=_PROBLEMS)},
        )
    },
    needs=Need.NOTHING,
    errors=("data_corrupt",),
)
_METRICS = Route(
    "GET",
    "/metrics",
    "Figures for Prometheus.",
    lambda on: on.metrics.handle,
    {
        200: Answer(
            "The figures.", content={"text/plain": TEXT, "application/openmetrics-text": TEXT}
        )
    },
    needs=Need.ADMIN,
)
_OPENAPI = Route(
    "GET",
    "/openapi.json",
    "This description.",
    lambda on: on.about.openapi,
    {200: Answer("OpenAPI 3.1.", content={JSON_TYPE: {"type": "object"}})},
    needs=Need.NOTHING,
)
_SIGN = Route(
    "POST",
    "/v1/presign",
    "An address that reads one stream without a token. Only with access control.",
    lambda on: on.signing.sign if on.signing else None,
    {200: Answer("The address.", content={JSON_TYPE: obj({"url": TEXT, "expires_at_ms": WHOLE})})},
    needs=Need.KNOWN,
    errors=("invalid_path", "invalid_body", "invalid_request", "not_found"),
    body={JSON_TYPE: ref("SignBody")},
)
_INDEX = Route(
    "GET",
    "/",
    "A few lines of text that name the above.",
    lambda on: on.about.index,
    {
        200: Answer("The text.", content={"text/plain": TEXT}),
        303: Answer("To the console, for browsers."),
    },
    needs=Need.NOTHING,
)

_ERRORS = Route(
    "GET",
    "/errors/",
    "What an error code means, and what to do. Its code follows this path; without one, all codes.",
    lambda on: error_page,
    {200: Answer("The page.", content={"text/plain": TEXT})},
    needs=Need.NOTHING,
    errors=("not_found",),
)

_CONSOLE = Route(
    "GET",
    "/console/",
    "The server in a browser. Its parts are below this path.",
    lambda on: on.console.part if on.console else None,
    {
        200: Answer("The page.", content={"text/html": TEXT}),
        304: Answer("It has not changed."),
    },
    needs=Need.NOTHING,
    headers=headers.request("If-None-Match"),
)

_CONSOLE_BY_NAME = Route(
    "GET",
    "/console",
    "To the console, for people who leave out the slash.",
    lambda on: on.console.move if on.console else None,
    {308: Answer("Where it is.")},
    needs=Need.NOTHING,
)

_PIPELINES = Route(
    "GET",
    "/v1/pipelines",
    "How far pipelines are, as they last said.",
    lambda on: on.pipelines.index,
    {200: Answer("What they said, and when.", content={JSON_TYPE: ref("Pipelines")})},
    needs=Need.ADMIN,
)
_REPORT = Route(
    "POST",
    "/v1/pipelines",
    "A pipeline says how far it is. Kept in memory, for people to look at.",
    lambda on: on.pipelines.report,
    {204: Answer("Noted.")},
    needs=Need.KNOWN,
    errors=("invalid_body",),
    body={JSON_TYPE: ref("PipelineReport")},
)

_TABLES = Route(
    "GET",
    "/v1/tables",
    "The tables that pipelines keep next to this server.",
    lambda on: on.tables.index,
    {200: Answer("The tables.", content={JSON_TYPE: ref("Tables")})},
    needs=Need.ADMIN,
    errors=("not_found", "invalid_query", "too_busy"),
)
_SQL = Route(
    "POST",
    "/v1/sql",
    "A question to these tables, in SQL.",
    lambda on: on.tables.sql,
    {200: Answer("The first 1,000 rows of the answer.", content={JSON_TYPE: ref("Rows")})},
    needs=Need.ADMIN,
    errors=("not_found", "invalid_body", "invalid_query", "too_busy"),
    body={JSON_TYPE: ref("SqlBody")},
)
_FIGURES = Route(
    "GET",
    "/v1/figures",
    "The last hour in figures, for charts.",
    lambda on: on.figures.handle,
    {200: Answer("Points in order of time.", content={JSON_TYPE: ref("Figures")})},
    needs=Need.ADMIN,
    errors=("invalid_query",),
    query=(Parameter("since", "Only points after this moment, in ms since 1970.", WHOLE),),
)
_WHOAMI = Route(
    "GET",
    "/v1/whoami",
    "Who is calling, and what they may do.",
    lambda on: whoami,
    {200: Answer("The caller.", content={JSON_TYPE: ref("Caller")})},
    needs=Need.KNOWN,
    errors=("invalid_path", "invalid_query"),
    query=(Parameter("stream", "The path of a stream, to learn what is allowed on it."),),
)

_CLUSTER = Route(
    "GET",
    "/v1/cluster",
    "The nodes that share a database, and what each of them owns. Only in a cluster.",
    lambda on: on.cluster.index,
    {200: Answer("Nodes, shards and leases.", content={JSON_TYPE: ref("Cluster")})},
    needs=Need.ADMIN,
    errors=("not_found",),
)
_DRAIN = Route(
    "POST",
    "/v1/cluster/drain",
    "Let a node hand over everything that it owns, or have its share again. Only in a cluster.",
    lambda on: on.cluster.drain,
    {204: Answer("It begins at once; `GET /v1/cluster` shows how far it is.")},
    needs=Need.ADMIN,
    errors=("invalid_body", "not_found"),
    body={JSON_TYPE: ref("DrainBody")},
)
_FOLLOW = Route(
    "POST",
    "/v1/follow",
    "Follow several streams over one connection.",
    lambda on: on.follow.run,
    {200: Answer("Events of all of them.", content={EVENTS_TYPE: {}})},
    needs=Need.KNOWN,
    errors=("invalid_body",),
    body={JSON_TYPE: ref("FollowBody")},
    waits=True,
)
_MODULE = Route(
    "GET",
    "/js/",
    "The browser module. Its files are below this path.",
    lambda on: on.module.file,
    {
        200: Answer("The names of the files.", content={"text/plain": TEXT}),
        304: Answer("It has not changed."),
    },
    needs=Need.NOTHING,
    headers=headers.request("If-None-Match", "Accept-Encoding"),
)

_MOVE = Route(
    "POST",
    "/v1/cluster/move",
    "Let the node that is asked hand one of its shards over to another node. Only in a cluster.",
    lambda on: on.cluster.move,
    {204: Answer("It has.")},
    needs=Need.ADMIN,
    errors=("invalid_body", "not_found"),
    body={JSON_TYPE: ref("MoveBody")},
)

_HELLO = Route(
    "GET",
    "/v1/cluster/hello",
    "Proves to another node that this is the one it is looking for. Only in a cluster.",
    lambda on: on.cluster.hello,
    {200: Answer("What the secret of the cluster makes of the challenge.", content=_PLAIN)},
    needs=Need.NOTHING,
    errors=("invalid_query", "not_found"),
    query=(Parameter("challenge", "32 hexadecimal digits, at random.", required=True),),
)
_FEED = Route(
    "GET",
    "/v1/cluster/feed",
    "By what another node follows a stream of this one for all its readers, or hears which streams "
    "have changed. Only in a cluster.",
    lambda on: on.cluster.feed,
    {200: Answer("What is new, or where the stream ends.", content={FEED_TYPE: {}})},
    needs=Need.ADMIN,
    errors=("invalid_query", "invalid_offset", *STREAM_ERRORS, "not_found"),
    query=(
        Parameter("stream", "The path of the stream."),
        Parameter("hints", "`true` for a hint of every stream that changes.", FLAG),
        Parameter("after", "The offset to begin at; the tail if it is left out."),
        Parameter("live", "`true` to stay connected.", FLAG),
    ),
    waits=True,
)

_LOOKED_AT: Final = (
    _LIST,
    _HEALTHZ,
    _READYZ,
    _METRICS,
    _FIGURES,
    _WHOAMI,
    _OPENAPI,
    _INDEX,
    _ERRORS,
    _CONSOLE,
    _CONSOLE_BY_NAME,
    _MODULE,
    _PIPELINES,
    _TABLES,
    _CLUSTER,
)
_CHANGES: Final = (_SIGN, _REPORT, _SQL, _DRAIN, _MOVE, _FOLLOW, _FEED, _HELLO)
ROUTES: Final = (*(one for get in _LOOKED_AT for one in with_head(get)), *_CHANGES)
