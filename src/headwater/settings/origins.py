"""Where a setting came from, for whoever has to correct it.

A flag wins over the environment, and that over the file; see `headwater.settings`. What is wrong
with a setting names the place: somebody who looks at a command line does not see what a unit file
or an image has put into the environment.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from headwater.settings.fields import explained

ENV_PREFIX: Final = "HEADWATER_"
_WORD: Final = re.compile(r"[a-z][a-z0-9_]*")


class UnknownSetting(ValueError):
    """A file has a key that is no setting; the message says which, and where."""


def read_file(path: Path) -> dict[str, Any]:
    """A TOML file of settings. Some editors begin a file with a byte order mark."""
    return tomllib.loads(path.read_bytes().decode("utf-8-sig"))


def variable_of(name: str) -> str | None:
    """The variable in the environment that sets this; it may be in small letters."""
    wanted = f"{ENV_PREFIX}{name}".upper()
    return next((variable for variable in os.environ if variable.upper() == wanted), None)


def origin(name: str, config: Path | None, flags: Mapping[str, Any]) -> str | None:
    """What gave the setting its value; None if nothing did."""
    if name in flags:
        return f"--{name.replace('_', '-')}"
    if variable := variable_of(name):
        return variable
    if config is not None and name in read_file(config):
        return str(config)
    return None


def told(error: ValidationError | ValueError, config: Path | None, flags: Mapping[str, Any]) -> str:
    """The first thing that is wrong with the settings, and where all that it names came from."""
    words = str(error)
    named: list[str] = []
    if isinstance(error, UnknownSetting):
        return words
    if isinstance(error, ValidationError):
        detail = error.errors()[0]
        words, named = explained(detail), [str(part) for part in detail["loc"][:1]]
    # What is wrong with several together names them.
    names = named or list(dict.fromkeys(_WORD.findall(words)))
    places = [(name, place) for name in names if (place := origin(name, config, flags))]
    if len(places) == 1:
        return f"{words} (set by {places[0][1]})"
    told_by = ", ".join(f"{name} by {place}" for name, place in places)
    return f"{words} (set: {told_by})" if places else words


def similar(name: str, known: Iterable[str]) -> str:
    """What to do about a name that no setting has."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else "`headwater serve --help-all` lists them all"
