"""`GET /openapi.json`: the description of the routes in a form that tools understand."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from headwater import __version__
from headwater.core import offsets
from headwater.core.limits import PATH_BYTES_MAX, SEGMENT_CHARS_MAX
from headwater.http.access.rules import Need
from headwater.http.errors import RETRIED
from headwater.http.routes import ROUTES, Route, headers, schemas
from headwater.http.routes.route import JSON_TYPE, Answer, Parameter, Schema, ref

_ABOUT: Final = (
    "Durable streams. Every path answers OPTIONS with 204. A stream's path may have several "
    "segments with slashes between them, which OpenAPI cannot say."
)
_PATH_SCHEMAS: Final[dict[str, Schema]] = {
    "path": {
        "type": "string",
        "minLength": 1,
        "maxLength": PATH_BYTES_MAX,
        "pattern": "^[A-Za-z0-9\\-._~!$&'()*+,;=:@%/]+$",
    },
    "group": {
        "type": "string",
        "minLength": 1,
        "maxLength": SEGMENT_CHARS_MAX,
        "pattern": "^[A-Za-z0-9\\-.~!$&'()*+,;=:@%][A-Za-z0-9\\-._~!$&'()*+,;=:@%]*$",
    },
}
_PATH_SCHEMAS["service"] = {
    "type": "string",
    "minLength": 1,
    "maxLength": SEGMENT_CHARS_MAX,
    "pattern": "^[A-Za-z0-9_-]+$",
}
_PATH_SCHEMAS["subscription"] = _PATH_SCHEMAS["group"]
_PATH_SCHEMAS["offset"] = {"type": "string", "pattern": f"^(latest|{offsets.PATTERN})$"}
_PATH_SCHEMAS["id"] = {"type": "string", "pattern": "^[A-Za-z0-9_-]{24}$"}
_SECURITY: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key or a token."},
    "wake": {"type": "http", "scheme": "bearer", "description": "The token of a wake."},
}


@cache
def document() -> bytes:
    return msgspec.json.encode(describe())


def describe() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        item = paths.setdefault(route.path, _path_item(route.path))
        item[route.method.lower()] = _route(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headwater", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": schemas.components(), "securitySchemes": _SECURITY},
        # With access control, all but the public routes require a key or token.
        "security": [{}, {"bearer": []}],
    }


def _path_item(path: str) -> dict[str, Any]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if not names:
        return {}
    parameters = [_parameter(Parameter(n, "", _PATH_SCHEMAS[n], True), "path") for n in names]
    return {"parameters": parameters}


def _route(route: Route) -> dict[str, Any]:
    everywhere = headers.request("X-Request-Id")
    parameters = [_parameter(parameter, "query") for parameter in route.query]
    parameters += [
        _parameter(parameter, "header")
        for parameter in (*route.headers, *everywhere)
        # OpenAPI puts the types of bodies elsewhere, and forbids naming them here.
        if parameter.name not in ("Content-Type", "Authorization")
    ]
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.text,
        "parameters": parameters,
        "responses": {
            **{str(status): _refusal(route, status) for status in route.refusals},
            **{str(status): _answer(answer) for status, answer in route.answers.items()},
        },
    }
    if route.needs is Need.WAKE_TOKEN:
        described["security"] = [{"wake": []}]
    elif route.needs.is_public:
        described["security"] = []
    if route.body:
        content = {media: {"schema": schema} for media, schema in route.body.items()}
        described["requestBody"] = {"content": content, "required": not route.body_optional}
    return described


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    described = {
        "name": parameter.name,
        "in": place,
        "required": parameter.required,
        "schema": parameter.schema,
    }
    return {**described, "description": parameter.text} if parameter.text else described


def _answer(answer: Answer) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": answer.text,
        "headers": {name: _header(name) for name in (*answer.headers, "X-Request-Id")},
    }
    if answer.content:
        described["content"] = {
            media: {"schema": schema} for media, schema in answer.content.items()
        }
    return described


def _refusal(route: Route, status: int) -> dict[str, Any]:
    codes = route.refusals[status]
    names = ["X-Request-Id", "Link", *(["Retry-After"] if status in RETRIED else [])]
    described: dict[str, Any] = {
        "description": f"Error: {', '.join(codes)}.",
        "headers": {name: _header(name) for name in names},
    }
    if route.method != "HEAD":
        one_of = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
        described["content"] = {JSON_TYPE: {"schema": {"allOf": [ref("Error"), one_of]}}}
    return described


def _header(name: str) -> dict[str, Any]:
    return {"description": headers.RESPONSE[name], "schema": headers.RESPONSE_SCHEMA}
