"""The server that a command talks to. `headwater.contexts` decides which one that is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, Final, ParamSpec

import httpx
import typer

from headwater.cli.exits import usage
from headwater.cli.failures import explain
from headwater.cli.server_options import OPTIONS
from headwater.cli.shell import say
from headwater.client import AsyncHeadwater, Headwater, HeadwaterError, RetryPolicy, Timeouts
from headwater.contexts import Server, check_ca, find_server

# How long a command keeps trying: one that a person waits for, and one with work in progress.
QUICK_S: Final = 2.0
PATIENT_S: Final = 60.0

P = ParamSpec("P")


class Target(Server):
    """A server, and how to talk to it."""

    __slots__ = ()

    @contextmanager
    def connect(
        self,
        *,
        patience_s: float = QUICK_S,
        timeout_s: float | None = None,
        stream: str | None = None,
        group: str | None = None,
    ) -> Iterator[Headwater]:
        """A client; its failures are explained for people."""
        options = self._options(patience_s)
        if timeout_s is not None:
            options["timeouts"] = Timeouts(connect_s=timeout_s, answer_s=timeout_s)
        try:
            with Headwater(self.url, **options) as client:
                yield client
        except HeadwaterError as error:
            raise explain(error, url=self.url, stream=stream, group=group) from error
        except httpx.InvalidURL as error:
            raise usage(f"this cannot be part of an address: {error}") from error
        except UnicodeError as error:
            # The host name is invalid. Other encoding errors explain themselves.
            if isinstance(error, UnicodeEncodeError | UnicodeDecodeError):
                raise
            raise usage(f"{self.url!r} is not the address of a host: {error}") from error
        except ValueError as error:
            # The client refused it before sending anything: an invalid header.
            if type(error) is not ValueError:
                raise
            raise usage(str(error)) from error

    def connect_async(self, *, patience_s: float = QUICK_S) -> AsyncHeadwater:
        """An asyncio client, for commands that do many things at a time."""
        return AsyncHeadwater(self.url, **self._options(patience_s))

    def _options(self, patience_s: float) -> dict[str, Any]:
        return {
            "headers": {"Authorization": self.authorization} if self.authorization else None,
            "retry": RetryPolicy(give_up_after_s=patience_s),
            # Certificates take a while to load, and plain connections do not need them.
            "verify": self.url.startswith("https:") and (check_ca(self.ca) or True),
        }


def find_target(
    url: str | None, token: str | None, context: str | None, ca: str | None = None
) -> Target:
    """The server chosen by flags, environment and contexts."""
    server = find_server(url, token, context, ca, warn=say)
    return Target(server.url, server.authorization, server.ca)


def with_target(
    command: Callable[Concatenate[Target, P], None],
) -> Callable[..., None]:
    """Give a command the options that choose a server, and pass it the result as a `Target`.

    The options are also accepted before the command's name.
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
        # Typer has checked the values against the signature below.
        command(target, **values)  # type: ignore[call-arg]

    # `inspect` reads it, but no stub declares it.
    with_options.__signature__ = inspect.Signature(chosen)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in chosen}
    return with_options
