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
import json
import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec
from urllib.parse import urlsplit

import typer

from headwater.cli.exits import CliError, explain, usage
from headwater.cli.shell import say
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


# --- Contexts: servers by name, with their tokens, in a file that only its owner can read ---------


CONFIG_VARIABLE: Final = "HEADWATER_CONFIG"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Context:
    """One server. The token is kept out of every representation."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    """A file of certificates that may vouch for it."""


@dataclass(slots=True)
class Config:
    """The content of the file."""

    current: str | None = None
    contexts: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        if name not in self.contexts:
            raise usage(f"there is no context {name!r}; see `headwater ctx ls`")
        return self.contexts[name]


def config_path() -> Path:
    """`$HEADWATER_CONFIG`, or the usual place for configuration."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "headwater" / "config.toml"


def check_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise usage(f"{name!r} is no name for a context; use up to 64 of A-Z a-z 0-9 _ -")
    return name


def load_config() -> Config:
    """Read the file; without one there are no contexts."""
    path = config_path()
    try:
        text = path.read_text()
    except FileNotFoundError:
        return Config()
    except UnicodeDecodeError:
        raise usage(f"{path} is not UTF-8 text; repair or remove it") from None
    try:
        config = _parse(tomllib.loads(text))
    except (AttributeError, CliError, KeyError, TypeError, ValueError) as error:
        raise usage(f"{path} is not a list of contexts ({error}); repair or remove it") from None
    _warn_if_exposed(path, config)
    return config


def save_config(config: Config) -> None:
    """Replace the file in one step, readable and writable by its owner alone."""
    path = config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Temporary files are made with mode 0600, so the tokens are never exposed in between.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_format(config))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _parse(document: dict[str, Any]) -> Config:
    contexts = {
        check_name(name): Context(
            _text(table["url"]),
            _optional_text(table.get("token")),
            _optional_text(table.get("ca")),
        )
        for name, table in document.get("contexts", {}).items()
    }
    current = _optional_text(document.get("current"))
    return Config(current if current in contexts else None, contexts)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("url, token and ca are text")
    return value


def _optional_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _format(config: Config) -> str:
    lines = ["# Written by `headwater ctx`."]
    if config.current is not None:
        lines.append(f"current = {_quoted(config.current)}")
    for name, context in sorted(config.contexts.items()):
        lines += ["", f"[contexts.{name}]", f"url = {_quoted(context.url)}"]
        if context.token is not None:
            lines.append(f"token = {_quoted(context.token)}")
        if context.ca is not None:
            lines.append(f"ca = {_quoted(context.ca)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # A JSON string is a TOML string, but for one character that TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _warn_if_exposed(path: Path, config: Config) -> None:
    exposed = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if exposed and any(context.token for context in config.contexts.values()):
        say(f"{path} holds tokens and others can read it; run `chmod 600 {path}`")
