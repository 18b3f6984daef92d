"""From a request's target to its resource, looked up once.

A resource is all routes of one path. The table determines both which route answers and which
permission that needs, so no resource can be reached around its permission. Paths in the table mean:

- one without a name in braces is that very target, and if it ends with `/`, everything below it;
- `/v1/stream/{path}` is a stream. Its path has any number of segments, so what comes after it
  (`_details`, `_groups/{group}/ack`, …) is matched from the end, the longest first;
- `/v1/yjs/{service}/docs/{path}` is a document, whose path has any number of segments too. Its
  permissions are those of its stream;
- below `/v1/stream/__ds/`, `/v1/proxy/` and the like, names are single segments, and only a
  `{path}` at the end may have more.

Any other target has no routes, which only administrators are told.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from headwater.core.documents.addresses import stream_of
from headwater.core.errors import InvalidPath
from headwater.core.limits import CONTROL_BODY_BYTES_MAX
from headwater.core.paths import CONTROL_ROOT
from headwater.http.access.rules import Args, Need
from headwater.http.paths import (
    DOCUMENTS_ROOT,
    PROXY_ROOT,
    STREAM_ALIAS,
    STREAM_ROOT,
    SUBSCRIPTIONS_ROOT,
    TARGET_BYTES_MAX,
    decode_path,
    decode_segments,
    origin_form,
)
from headwater.http.routes import ROUTES
from headwater.http.routes.route import DOCUMENT, STREAM, Route

_METHODS: Final = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE")


class Resource:
    """All routes of one path, by method."""

    __slots__ = (
        "allow",
        "dialect",
        "is_control",
        "is_document",
        "is_reserved_name",
        "otherwise",
        "path",
        "routes",
    )

    def __init__(self, path: str, routes: dict[str, Route]) -> None:
        self.path = path
        self.routes = routes
        known = [method for method in _METHODS if method in routes]
        self.allow = ", ".join([*known, "OPTIONS"])
        self.is_control = path.startswith(f"{STREAM}/")
        """Whether it belongs to a stream, at a path that no stream can have."""
        self.is_reserved_name = path.startswith(f"{STREAM}/_")
        """Whether a PUT is an attempt to give a stream a reserved name."""
        self.is_document = path == DOCUMENT
        self.dialect = next((one.dialect for one in routes.values() if one.dialect), None)
        """The dialect of its errors, if not the usual one."""
        self.otherwise = self._otherwise()
        """The permission a caller needs to learn that there is no such method."""

    def _otherwise(self) -> Need:
        if self.path.startswith(STREAM):
            return Need.READ_OR_WRITE
        needs = {route.needs for route in self.routes.values()}
        if needs == {Need.NOTHING}:
            return Need.NOTHING
        return Need.KNOWN if needs else Need.ADMIN


NOWHERE: Final = Resource("other", {})
RESERVED: Final = Resource("other", {})
"""A name reserved for future use."""


class Match(NamedTuple):
    resource: Resource
    args: Args = ()

    @property
    def subject(self) -> Args:
        """What the permission is checked for: the stream first, if there is one."""
        return (stream_of(*self.args),) if self.resource.is_document else self.args

    def need(self, method: str) -> Need:
        route = self.resource.routes.get(method)
        return self.resource.otherwise if route is None else route.needs

    def body_bytes_max(self, method: str, most: int) -> int:
        """How large a body may be; 0 if nothing would read it."""
        route = self.resource.routes.get(method)
        if route is None or not route.body:
            return 0
        return most if route.holds_data else min(most, CONTROL_BODY_BYTES_MAX)


def _resources() -> dict[str, Resource]:
    by_path: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = route
    return {path: Resource(path, routes) for path, routes in by_path.items()}


RESOURCES: Final = _resources()
STREAM_RESOURCE: Final = RESOURCES[STREAM]
_DOCUMENT_RESOURCE: Final = RESOURCES[DOCUMENT]
_FIXED: Final = {path.encode(): one for path, one in RESOURCES.items() if "{" not in path}
_TREES: Final = [(path, one) for path, one in _FIXED.items() if path[1:].endswith(b"/")]


def _below(root: str) -> list[tuple[list[str], Resource]]:
    """Resources below a root by what follows it, the longest first."""
    found = [
        (path.removeprefix(root).split("/"), one)
        for path, one in RESOURCES.items()
        if path.startswith(root)
    ]
    return sorted(found, key=lambda pair: -len(pair[0]))


_OF_STREAMS: Final = _below(f"{STREAM}/")
_OF_SUBSCRIPTIONS: Final = _below(SUBSCRIPTIONS_ROOT.decode())
_LAYER_ROOTS: Final = (PROXY_ROOT,)
_OF_LAYERS: Final = [(root, _below(root.decode())) for root in _LAYER_ROOTS]


def locate(target: bytes, documents_root: bytes = DOCUMENTS_ROOT) -> Match:
    if len(target) > TARGET_BYTES_MAX:
        # This is before authentication, and decoding takes longer than sending.
        raise InvalidPath("no path is as long as this one")
    target = target if target[:1] == b"/" else origin_form(target)
    if target.startswith(STREAM_ROOT):
        return _locate_stream(target[len(STREAM_ROOT) :])
    if target.startswith(STREAM_ALIAS) and target != STREAM_ALIAS:
        return _locate_stream(target[len(STREAM_ALIAS) :])
    resource = _FIXED.get(target)
    if resource is not None:
        return Match(resource)
    if target.startswith(documents_root):
        return _document(target[len(documents_root) :])
    for root, tree in _TREES:
        if target.startswith(root):
            return Match(tree, (target[len(root) :].decode("latin-1"),))
    for root, templates in _OF_LAYERS:
        if target.startswith(root):
            return _find(templates, decode_segments(target[len(root) :])) or Match(NOWHERE)
    return Match(NOWHERE)


def _document(raw: bytes) -> Match:
    # Names are ASCII, so other bytes need not be understood to be refused.
    service, docs, path = unquote_to_bytes(raw).decode("latin-1").partition("/docs/")
    return Match(_DOCUMENT_RESOURCE, (service, path)) if docs else Match(NOWHERE)


_RESERVED_ROOT: Final = f"{CONTROL_ROOT}/".encode()


def _locate_stream(raw: bytes) -> Match:
    if raw.startswith(_RESERVED_ROOT):
        return _reserved(decode_segments(raw[len(_RESERVED_ROOT) :]))
    path = decode_path(raw)
    if "/_" in path or "/touch/" in path or path.startswith(CONTROL_ROOT):
        return (_known_control if len(path) <= _KNOWN_CHARS_MAX else _control)(path)
    return Match(STREAM_RESOURCE, (path,))


def _control(path: str) -> Match:
    """A control resource of a stream."""
    segments = path.split("/")
    if segments[0] == CONTROL_ROOT:
        return Match(RESERVED)
    for template, resource in _OF_STREAMS:
        rest = len(segments) - len(template)
        if rest > 0:
            args = _fit(template, segments[rest:])
            if args is not None:
                return Match(resource, ("/".join(segments[:rest]), *args))
    return Match(STREAM_RESOURCE, (path,))


# Members of a group repeat the same requests. Strangers can send anything.
_KNOWN_CHARS_MAX: Final = 512
_known_control = lru_cache(maxsize=1024)(_control)


def _reserved(segments: list[str]) -> Match:
    is_known = any(template[0] == segments[0] for template, _ in _OF_SUBSCRIPTIONS)
    return _find(_OF_SUBSCRIPTIONS, segments) or Match(NOWHERE if is_known else RESERVED)


def _find(templates: list[tuple[list[str], Resource]], segments: list[str]) -> Match | None:
    for template, resource in templates:
        given = segments
        if template[-1] == "{path}" and len(segments) > len(template):
            # A stream's path may come as it is or with its slashes encoded.
            given = [*segments[: len(template) - 1], "/".join(segments[len(template) - 1 :])]
        args = _fit(template, given) if len(template) == len(given) else None
        if args is not None:
            return Match(resource, args)
    return None


def _fit(template: list[str], segments: list[str]) -> Args | None:
    """The segments that fill the names of a template, if the others match."""
    args: list[str] = []
    for part, segment in zip(template, segments, strict=True):
        if part[0] == "{":
            args.append(segment)
        elif part != segment:
            return None
    return tuple(args)
