"""A route, and the vocabulary to describe it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.core import content_types, errors
from headwater.core.limits import LIST_PAGE_MAX
from headwater.core.responses import errors as response_errors
from headwater.core.subscriptions import errors as subscription_errors
from headwater.http import answers, messages
from headwater.http.access.rules import Need
from headwater.http.dialects import Dialect
from headwater.http.errors import status_of
from headwater.http.paths import PROBES
from headwater.http.queries import PAGE_DEFAULT

if TYPE_CHECKING:
    from headwater.http.resources.assembly import Resources

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "string", "enum": ["true"]}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
COUNT: Final[Schema] = {"type": "integer", "minimum": 1}
ANY_TYPE: Final = "*/*"
JSON_TYPE: Final = content_types.JSON
EVENTS_TYPE: Final = answers.EVENTS_TYPE
STREAM: Final = "/v1/stream/{path}"
DOCUMENT: Final = "/v1/yjs/{service}/docs/{path}"

Reply = messages.Answer | messages.Deferred | Awaitable[messages.Answer]
Handler = Callable[..., Reply]
"""Takes the request, and the values of the path's names."""

# Codes that only HTTP has. Those of the core get their status from its error classes.
HTTP_ERRORS: Final = {
    "malformed_http": 400,
    "not_found": 404,
    "method_not_allowed": 405,
    "headers_too_large": 431,
    "too_many_headers": 431,
    "internal_error": 500,
    "too_many_connections": 503,
}
# Possible for any request.
ALWAYS: Final = (
    "malformed_http",
    "headers_too_large",
    "too_many_headers",
    "body_too_large",
    "internal_error",
    "storage_unavailable",
    "storage_full",
    "outcome_unknown",
    "owned_elsewhere",
    "too_many_connections",
    "unknown_host",
)
# Possible if access control or rate limits apply.
GUARDED: Final = ("unauthorized", "forbidden", "rate_exceeded")
# Possible for requests that wait for data.
WAITING: Final = ("too_many_readers_of_caller", "buffers_full")


class Parameter(msgspec.Struct, frozen=True):
    name: str
    text: str
    schema: Schema = msgspec.field(default_factory=lambda: TEXT)
    required: bool = False


class Answer(msgspec.Struct, frozen=True):
    text: str
    headers: tuple[str, ...] = ()
    """Names of response headers; `HEADERS` says what they mean."""
    content: dict[str, Schema] = {}
    """By media type."""


class Route(msgspec.Struct, frozen=True):
    method: str
    path: str
    text: str
    handler: Callable[[Resources], Handler | None]
    """The handler among the resources of a server; None if this server has no such resource."""
    answers: dict[int, Answer]
    needs: Need = Need.ADMIN
    errors: tuple[str, ...] = ()
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    body: dict[str, Schema] = {}
    """By media type. If empty, a body that is sent is ignored."""
    holds_data: bool = False
    """Whether the body is stored, or contains what is to be stored, and may be as large as that."""
    body_optional: bool = False
    elsewhere: dict[str, int] = {}
    """Codes that may have this status here besides their usual one."""
    waits: bool = False
    """Whether it can wait for data."""
    dialect: Dialect | None = None
    """The dialect of its errors, if not the usual one."""

    @property
    def name(self) -> str:
        words = [word for word in self.path.replace("{", "").replace("}", "").split("/") if word]
        if words and self.path.endswith("/"):
            words.append("index")
        return "-".join([self.method.lower(), *(word.strip("_") for word in words)])

    @property
    def takes_only_json(self) -> bool:
        return set(self.body) == {JSON_TYPE}

    @property
    def refusals(self) -> dict[int, list[str]]:
        """Error codes by status, as the client gets them."""
        if self.dialect is None:
            return self.codes
        known = [(code, status) for status, codes in self.codes.items() for code in codes]
        found: dict[int, list[str]] = {}
        spelled = {self.dialect.spell(*one) for one in known}
        if self.method in self.dialect.keyless:
            spelled.add((self.dialect.keyless[self.method], 401))
        for code, status in sorted(spelled):
            found.setdefault(status, []).append(code)
        return dict(sorted(found.items()))

    @property
    def codes(self) -> dict[int, list[str]]:
        """Error codes by status."""
        found: dict[int, list[str]] = {}
        codes = [*self.errors, *ALWAYS]
        if not self.needs.is_public:
            codes += GUARDED
        elif self.path not in PROBES:
            codes.append("rate_exceeded")
        if self.body:
            codes.append("bodies_full")
        if self.waits:
            codes += WAITING
        if self.takes_only_json:
            codes.append("json_required")
        if self.method not in ("GET", "HEAD") or self.needs is Need.READ_OR_GROUP:
            codes.append("cross_site")
        if self.method == "GET" and self.path not in PROBES:
            codes.append("buffers_full")
        known = [(code, STATUS_BY_CODE[code]) for code in codes]
        for code, status in sorted({*known, *self.elsewhere.items()}):
            found.setdefault(status, []).append(code)
        return dict(sorted(found.items()))


def _core_codes() -> dict[str, int]:
    modules = (errors, subscription_errors, response_errors)
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return {
        kind.code: status_of(kind)
        for kind in kinds
        # Of two errors with one code, the first determines its usual status.
        if issubclass(kind, errors.StreamError) and kind is not subscription_errors.AckConflict
    }


STATUS_BY_CODE: Final = _core_codes() | HTTP_ERRORS


def whole(least: int, most: int, **more: int) -> Schema:
    """An integer between two bounds; `default` applies if it is absent."""
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def obj(required: dict[str, Schema], **optional: Schema) -> Schema:
    """A JSON object. Answers may get more fields later, so others are not forbidden."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
    }


def listing(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def page(things: str, name: str) -> tuple[Parameter, ...]:
    """The query of a list; see `queries.page_of`."""
    limit = whole(1, LIST_PAGE_MAX, default=PAGE_DEFAULT)
    return (
        Parameter("prefix", f"Only {things} whose {name} begins with this."),
        Parameter("after", f"Only {things} whose {name} sorts after this."),
        Parameter("limit", "At most this many.", limit),
    )


def with_head(get: Route) -> tuple[Route, Route]:
    """A GET and its HEAD, which answers the same without a body."""
    answers = {
        status: msgspec.structs.replace(answer, content={})
        for status, answer in get.answers.items()
    }
    text = f"The headers of: {get.text[0].lower()}{get.text[1:]}"
    return get, msgspec.structs.replace(get, method="HEAD", text=text, answers=answers)
