"""The permissions that routes need.

Every route says what it needs; one that says nothing is for administrators. A rule sees the request
before its body is read. If a body or a header names further streams (the source of a fork, a
dead-letter stream, the parts of a transaction), the handler checks those with `Request.demand`
before it does anything.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from headwater.core.access import Caller, Permission
from headwater.core.responses.about import path_of
from headwater.http.messages import Request
from headwater.http.queries import query_of

Args = tuple[str, ...]
"""The values of a route's path parameters. The first is the stream, if there is one."""


class Need(Enum):
    NOTHING = "nothing"
    WAKE_TOKEN = "the token of the wake"
    """A webhook or worker authenticates with the token of its wake."""
    KNOWN = "any valid key or token"
    """The answer may depend on the caller."""
    READ = "read"
    READ_OR_WRITE = "read or write"
    """A writer has to know the type of the stream, and learns its tail anyway."""
    WRITE = "write"
    DELETE = "delete"
    DELETE_AND_WRITE = "delete and write"
    """Undoing a deletion also creates a stream."""
    GROUP = "read, and write on the stream or the group"
    READ_OR_GROUP = "read; with live, as the rest of a group"
    """Inspecting a group is a read; receiving its messages by push is using it."""
    MAKE_RESPONSE = "write on the streams of responses"
    RESPONSE = "the signature of the address, or read on the stream of the response"
    RESPONSE_KEY = "read or write on the stream of the response"
    DELETE_RESPONSE = "delete on the stream of the response"
    SIGNATURE = "the signature of the address"
    ADMIN = "admin over **"

    @property
    def is_public(self) -> bool:
        """Whether the gate admits everyone."""
        return self in (Need.NOTHING, Need.WAKE_TOKEN, Need.SIGNATURE)

    def lets_pass(self, request: Request) -> bool:
        """Whether the gate admits a request from anyone: it authenticates in another way."""
        return self.is_public or (self is Need.RESPONSE and b"signature=" in request.query)


def _read_or_write(request: Request, args: Args, caller: Caller) -> None:
    if not caller.grants.allow(Permission.WRITE, args[0]):
        caller.demand(Permission.READ, args[0])


def _delete_and_write(request: Request, args: Args, caller: Caller) -> None:
    caller.demand(Permission.DELETE, args[0])
    caller.demand(Permission.WRITE, args[0])


def _group(request: Request, args: Args, caller: Caller) -> None:
    caller.demand_group(args[0], args[1])


def _read_or_group(request: Request, args: Args, caller: Caller) -> None:
    if "live" in query_of(request):
        _group(request, args, caller)
    else:
        caller.demand(Permission.READ, args[0])


def _make_response(request: Request, args: Args, caller: Caller) -> None:
    # The name is not chosen yet, so the caller must be allowed to write any of them.
    caller.demand(Permission.WRITE, path_of("new"))


def _response_key(request: Request, args: Args, caller: Caller) -> None:
    _read_or_write(request, (path_of(args[0]),), caller)


_RULES: Final[dict[Need, Callable[[Request, Args, Caller], None]]] = {
    Need.NOTHING: lambda request, args, caller: None,
    Need.WAKE_TOKEN: lambda request, args, caller: None,
    Need.KNOWN: lambda request, args, caller: None,
    Need.READ: lambda request, args, caller: caller.demand(Permission.READ, args[0]),
    Need.READ_OR_WRITE: _read_or_write,
    Need.WRITE: lambda request, args, caller: caller.demand(Permission.WRITE, args[0]),
    Need.DELETE: lambda request, args, caller: caller.demand(Permission.DELETE, args[0]),
    Need.DELETE_AND_WRITE: _delete_and_write,
    Need.GROUP: _group,
    Need.READ_OR_GROUP: _read_or_group,
    Need.MAKE_RESPONSE: _make_response,
    Need.RESPONSE: lambda request, args, caller: caller.demand(Permission.READ, path_of(args[0])),
    Need.RESPONSE_KEY: _response_key,
    Need.DELETE_RESPONSE: lambda request, args, caller: caller.demand(
        Permission.DELETE, path_of(args[0])
    ),
    Need.SIGNATURE: lambda request, args, caller: None,
    Need.ADMIN: lambda request, args, caller: caller.demand_server(),
}


def permit(request: Request, need: Need, args: Args, caller: Caller) -> None:
    """Raise `Forbidden` if the caller may not."""
    _RULES[need](request, args, caller)
