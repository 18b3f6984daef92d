"""The settings: the file, the environment, and whether a server would start with them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from headwater.cli.checkup.findings import Finding, hint, ok, problem
from headwater.cli.shell import DEBUG
from headwater.contexts import CONFIG_VARIABLE
from headwater.settings import Settings, load_settings
from headwater.settings.fields import explained

_PREFIX: Final = "HEADWATER_"
# Variables of ours that are no settings: those of clients, and what `consume` gives to commands.
_OTHERS: Final = frozenset(
    {CONFIG_VARIABLE, DEBUG, f"{_PREFIX}TOKEN", f"{_PREFIX}CA"}
    | {f"{_PREFIX}{n}" for n in ("STREAM", "GROUP", "OFFSET", "MESSAGE_ID", "DELIVERIES")}
)


def check(config: Path | None, flags: dict[str, Any]) -> tuple[Settings | None, list[Finding]]:
    """The settings that a server would have, if any, and what is to say about them."""
    findings = [*_file(config), *_environment()]
    if any(finding.level == "problem" for finding in findings):
        return None, findings
    try:
        settings = load_settings(config, flags)
        settings.limits()
    except ValidationError as error:
        return None, [*findings, *_invalid(error)]
    except ValueError as error:
        return None, [*findings, problem("settings", str(error), "change one of the two")]
    return settings, [*findings, ok("settings", "valid")]


def _file(config: Path | None) -> Iterator[Finding]:
    if config is None:
        return
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        advice = "name a file that this user can read"
        yield problem("file", f"{config} cannot be read: {error.strerror}", advice)
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        yield problem("file", f"{config} is not TOML: {error}", "correct the file")
        return
    unknown = [key for key in content if key not in Settings.model_fields]
    for key in unknown:
        yield problem("file", f"{config}: there is no setting {key!r}", _similar(key))
    if not unknown:
        yield ok("file", f"{config} has {len(content)} settings")


def _similar(name: str, known: Iterable[str] = Settings.model_fields) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else "`headwater serve --help` lists them all"


def _environment() -> Iterator[Finding]:
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in known | _OTHERS:
            yield hint("environment", f"{name} is no setting and is ignored", _similar(name, known))


def _invalid(error: ValidationError) -> Iterator[Finding]:
    for detail in error.errors():
        yield problem("settings", explained(detail), "correct the value")
