"""The settings: the file, the environment, and whether a server would start with them."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from headwater.cli.checkup.findings import Finding, hint, ok, problem
from headwater.cli.shell import DEBUG
from headwater.contexts import CONFIG_VARIABLE
from headwater.settings import Settings, load_settings
from headwater.settings.fields import explained
from headwater.settings.origins import ENV_PREFIX, read_file, similar, told

# Our variables that are not settings: those of clients, and those that `consume` sets.
_OTHERS: Final = frozenset(
    {CONFIG_VARIABLE, DEBUG, f"{ENV_PREFIX}TOKEN", f"{ENV_PREFIX}CA"}
    | {f"{ENV_PREFIX}{n}" for n in ("STREAM", "GROUP", "OFFSET", "MESSAGE_ID", "DELIVERIES")}
)
# What Kubernetes sets in every pod for a service called headwater.
_SERVICE: Final = re.compile(
    rf"{ENV_PREFIX}(.+_)?(SERVICE_(HOST|PORT(_.+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.+)?)?)"
)


def check(config: Path | None, flags: dict[str, Any]) -> tuple[Settings | None, list[Finding]]:
    """The settings that a server would have, if any, and the findings about them."""
    findings = [*_file(config), *_environment()]
    if any(finding.level == "problem" for finding in findings):
        return None, findings
    try:
        settings = load_settings(config, flags)
        settings.limits()
    except ValidationError as error:
        return None, [*findings, *_invalid(error)]
    except ValueError as error:
        advice = "change one of the two"
        return None, [*findings, problem("settings", told(error, config, flags), advice)]
    return settings, [*findings, ok("settings", "valid")]


def _file(config: Path | None) -> Iterator[Finding]:
    if config is None:
        return
    try:
        content = read_file(config)
    except OSError as error:
        advice = "name a file that this user can read"
        yield problem("file", f"{config} cannot be read: {error.strerror}", advice)
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        yield problem("file", f"{config} is not TOML: {error}", "correct the file")
        return
    unknown = [key for key in content if key not in Settings.model_fields]
    for key in unknown:
        yield problem(
            "file", f"{config}: there is no setting {key!r}", similar(key, Settings.model_fields)
        )
    if not unknown:
        yield ok("file", f"{config} has {len(content)} settings")


def unknown_variables() -> Iterator[tuple[str, str]]:
    """Variables that look like settings but are not, and what to do about each."""
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in sorted(os.environ):
        capitals = name.upper()
        if not capitals.startswith(ENV_PREFIX) or capitals in known | _OTHERS:
            continue
        if not _SERVICE.fullmatch(capitals):
            yield name, similar(capitals, known)


def _environment() -> Iterator[Finding]:
    for name, advice in unknown_variables():
        yield hint("environment", f"{name} is not a setting and is ignored", advice)


def _invalid(error: ValidationError) -> Iterator[Finding]:
    for detail in error.errors():
        yield problem("settings", explained(detail), "correct the value")
