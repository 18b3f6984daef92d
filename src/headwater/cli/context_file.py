"""Contexts: servers by name, with their tokens, in a file that only its owner can read."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headwater.cli.exits import CliError, usage
from headwater.cli.shell import say

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
