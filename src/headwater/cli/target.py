"""Which server a command talks to, and with what credentials.

The address comes from the first of: `--url`, `--context`, `STREAM_URL`, the current context, and
`http://127.0.0.1:4437`. The token comes from the first of: `--token`, the context named by
`--context`, `HEADWATER_TOKEN`, `STREAM_AUTH`, and the current context if the address is its own. So
the token of a context is never sent to any other address than the context's. Who may vouch for the
server comes from the first of: `--ca`, the context named by `--context`, `HEADWATER_CA`, and the
current context, as for the token.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Concatenate, Final, ParamSpec
from urllib.parse import urlsplit

import typer

from headwater.cli.context_file import load_config
from headwater.cli.exits import explain, usage
from headwater.client import AsyncHeadwater, Headwater, HeadwaterError, RetryPolicy, Timeouts

DEFAULT_URL: Final = "http://127.0.0.1:4437"
URL_VARIABLE: Final = "STREAM_URL"
TOKEN_VARIABLES: Final = ("HEADWATER_TOKEN", "STREAM_AUTH")
CA_VARIABLE: Final = "HEADWATER_CA"

# How long a command that a person waits for keeps trying, and one that has work under way.
QUICK_S: Final = 2.0
PATIENT_S: Final = 60.0

P = ParamSpec("P")

PANEL = "Server"
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=f"Address of the server; also ${URL_VARIABLE}. Without either: {DEFAULT_URL}.",
        rich_help_panel=PANEL,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="Bearer token, or a whole Authorization value; also "
        f"{' or '.join(f'${name}' for name in TOKEN_VARIABLES)}.",
        rich_help_panel=PANEL,
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="A server set up with `headwater ctx add`.",
        rich_help_panel=PANEL,
    ),
]
Ca = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help=f"Certificates that may vouch for the server, in PEM; also ${CA_VARIABLE}.",
        rich_help_panel=PANEL,
    ),
]
OPTIONS: Final = {"url": Url, "token": Token, "context": ContextName, "ca": Ca}


@dataclass(frozen=True, slots=True)
class Target:
    """A server, the value of the Authorization header for it, and who vouches for it."""

    url: str
    authorization: str | None = field(default=None, repr=False)
    ca: str | None = None

    @contextmanager
    def connect(
        self,
        *,
        patience_s: float = QUICK_S,
        timeout_s: float | None = None,
        stream: str | None = None,
        group: str | None = None,
    ) -> Iterator[Headwater]:
        """A client; its failures come out as what they mean to a person."""
        options = self._options(patience_s)
        if timeout_s is not None:
            options["timeouts"] = Timeouts(connect_s=timeout_s, answer_s=timeout_s)
        try:
            with Headwater(self.url, **options) as client:
                yield client
        except HeadwaterError as error:
            raise explain(error, url=self.url, stream=stream, group=group) from error

    def connect_async(self, *, patience_s: float = QUICK_S) -> AsyncHeadwater:
        """A client for asyncio, for the command that does many things at a time."""
        return AsyncHeadwater(self.url, **self._options(patience_s))

    def _options(self, patience_s: float) -> dict[str, Any]:
        return {
            "headers": {"Authorization": self.authorization} if self.authorization else None,
            "retry": RetryPolicy(give_up_after_s=patience_s),
            # Certificates take a while to load, and plain connections have no use for them.
            "verify": self.url.startswith("https:") and (check_ca(self.ca) or True),
        }


def find_target(
    url: str | None, token: str | None, context: str | None, ca: str | None = None
) -> Target:
    """Put together what flags, environment and contexts say."""
    if url and context:
        raise usage("give --url or --context, not both")
    from_environment = os.environ.get(URL_VARIABLE)
    if not context:
        token = token or next(filter(None, map(os.environ.get, TOKEN_VARIABLES)), None)
        ca = ca or os.environ.get(CA_VARIABLE)
    if url or (from_environment and not context):
        return Target(check_url(url or from_environment or ""), authorization(token), ca)
    config = load_config()
    name = context or config.current
    if name is None:
        return Target(DEFAULT_URL, authorization(token), ca)
    known = config.get(name)
    return Target(check_url(known.url), authorization(token or known.token), ca or known.ca)


def check_ca(ca: str | None) -> str | None:
    if ca and not os.access(ca, os.R_OK):
        raise usage(f"cannot read the certificates in {ca}; check --ca")
    return ca or None


def check_url(url: str) -> str:
    """An address that can be connected to and shown: no credentials in it."""
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        raise usage(f"{url!r} is not an address; write http://HOST:PORT") from None
    if parts.username is not None or parts.password is not None:
        raise usage("the address holds credentials; leave them out and use --token instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        raise usage(f"{url!r} is not an http(s) address; write http://HOST:PORT")
    if parts.query or parts.fragment:
        raise usage(f"{url!r} has a query or a fragment; write http://HOST:PORT")
    return url.rstrip("/")


def authorization(token: str | None) -> str | None:
    """The header for a token; a value with a scheme of its own ("Basic …") is taken as it is."""
    if not token or not token.strip():
        return None
    value = token.strip() if " " in token.strip() else f"Bearer {token.strip()}"
    if not (value.isascii() and value.isprintable()):
        raise usage("the token has characters that no token has; check how it was copied")
    return value


def with_target(
    command: Callable[Concatenate[Target, P], None],
) -> Callable[..., None]:
    """Give a command the options that choose a server, and hand it the result as a `Target`.

    The options are understood in front of the command's name as well.
    """
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    chosen = [
        inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
        *(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
            for name, annotation in OPTIONS.items()
        ),
    ]

    @functools.wraps(command)
    def with_options(ctx: typer.Context, **values: Any) -> None:
        chosen = {name: values.pop(name) or ctx.find_root().params.get(name) for name in OPTIONS}
        target = find_target(**chosen)
        command(target, **values)  # type: ignore[call-arg]

    with_options.__signature__ = inspect.Signature(chosen)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in chosen}
    return with_options
