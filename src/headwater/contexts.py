"""Which server to talk to, and with what credentials. The command line and the client agree on it.

The address comes from the first of: an address that is given, a context that is named,
`STREAM_URL`, the current context, and `http://127.0.0.1:4437`. The token comes from the first of:
one that is given, the context that is named, `HEADWATER_TOKEN`, `STREAM_AUTH`, and the current
context if the address is its own. So the token of a context is never sent to any other address than
the context's. Who may vouch for the server comes from the first of: a file that is given, the
context that is named, `HEADWATER_CA`, and the current context, as for the token.

Contexts are servers by name, with their tokens, in a file that only its owner can read.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

DEFAULT_URL: Final = "http://127.0.0.1:4437"
URL_VARIABLE: Final = "STREAM_URL"
TOKEN_VARIABLES: Final = ("HEADWATER_TOKEN", "STREAM_AUTH")
CA_VARIABLE: Final = "HEADWATER_CA"
CONFIG_VARIABLE: Final = "HEADWATER_CONFIG"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ContextError(ValueError):
    """What was given, or is in the environment or the file, names no server."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server, the value of the Authorization header for it, and who vouches for it."""

    url: str
    authorization: str | None = field(default=None, repr=False)
    ca: str | None = None


def find_server(
    url: str | None = None,
    token: str | None = None,
    context: str | None = None,
    ca: str | None = None,
    *,
    warn: Callable[[str], None] = warnings.warn,
) -> Server:
    """Put together what is given, what the environment says and what contexts say."""
    if url and context:
        raise ContextError("give an address or a context, not both")
    from_environment = os.environ.get(URL_VARIABLE)
    if not context:
        token = token or next(filter(None, map(os.environ.get, TOKEN_VARIABLES)), None)
        ca = ca or os.environ.get(CA_VARIABLE)
    if url or (from_environment and not context):
        return Server(check_url(url or from_environment or ""), authorization(token), ca)
    contexts = load(warn)
    name = context or contexts.current
    if name is None:
        return Server(DEFAULT_URL, authorization(token), ca)
    known = contexts.get(name)
    return Server(check_url(known.url), authorization(token or known.token), ca or known.ca)


def check_ca(ca: str | None) -> str | None:
    if ca and not os.access(ca, os.R_OK):
        raise ContextError(f"cannot read the certificates in {ca}")
    return ca or None


def check_url(url: str) -> str:
    """An address that can be connected to and shown: no credentials in it."""
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        raise ContextError(f"{url!r} is not an address; write http://HOST:PORT") from None
    if parts.username is not None or parts.password is not None:
        raise ContextError("the address holds credentials; leave them out and give a token instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        raise ContextError(f"{url!r} is not an http(s) address; write http://HOST:PORT")
    if parts.query or parts.fragment:
        raise ContextError(f"{url!r} has a query or a fragment; write http://HOST:PORT")
    return url.rstrip("/")


def authorization(token: str | None) -> str | None:
    """The header for a token; a value with a scheme of its own ("Basic …") is taken as it is."""
    if not token or not token.strip():
        return None
    value = token.strip() if " " in token.strip() else f"Bearer {token.strip()}"
    if not (value.isascii() and value.isprintable()):
        raise ContextError("the token has characters that no token has; check how it was copied")
    return value


@dataclass(frozen=True, slots=True)
class Context:
    """One server. The token is kept out of every representation."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    """A file of certificates that may vouch for it."""


@dataclass(slots=True)
class Contexts:
    """The content of the file."""

    current: str | None = None
    by_name: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        if name not in self.by_name:
            raise ContextError(f"there is no context {name!r}; see `headwater ctx ls`")
        return self.by_name[name]


def file_path() -> Path:
    """`$HEADWATER_CONFIG`, or the usual place for configuration."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "headwater" / "config.toml"


def check_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ContextError(f"{name!r} is no name for a context; use up to 64 of A-Z a-z 0-9 _ -")
    return name


def load(warn: Callable[[str], None] = warnings.warn) -> Contexts:
    """Read the file; without one there are no contexts. `warn` is told what is unsafe about it."""
    path = file_path()
    try:
        text = path.read_text()
    except FileNotFoundError:
        return Contexts()
    except UnicodeDecodeError:
        raise ContextError(f"{path} is not UTF-8 text; repair or remove it") from None
    try:
        contexts = _parse(tomllib.loads(text))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"{path} is not a list of contexts ({error}); repair or remove it"
        raise ContextError(problem) from None
    if _is_exposed(path) and any(context.token for context in contexts.by_name.values()):
        warn(f"{path} holds tokens and others can read it; run `chmod 600 {path}`")
    return contexts


def _is_exposed(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def save(contexts: Contexts) -> None:
    """Replace the file in one step, readable and writable by its owner alone."""
    path = file_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Temporary files are made with mode 0600, so the tokens are never exposed in between.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_format(contexts))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _parse(document: dict[str, Any]) -> Contexts:
    by_name = {
        check_name(name): Context(
            _text(table["url"]),
            _optional_text(table.get("token")),
            _optional_text(table.get("ca")),
        )
        for name, table in document.get("contexts", {}).items()
    }
    current = _optional_text(document.get("current"))
    return Contexts(current if current in by_name else None, by_name)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("url, token and ca are text")
    return value


def _optional_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _format(contexts: Contexts) -> str:
    lines = ["# Written by `headwater ctx`."]
    if contexts.current is not None:
        lines.append(f"current = {_quoted(contexts.current)}")
    for name, context in sorted(contexts.by_name.items()):
        lines += ["", f"[contexts.{name}]", f"url = {_quoted(context.url)}"]
        if context.token is not None:
            lines.append(f"token = {_quoted(context.token)}")
        if context.ca is not None:
            lines.append(f"ca = {_quoted(context.ca)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # A JSON string is a TOML string, but for one character that TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
