"""Every setting of the server, with its default, once.

A setting can come from a command line flag, an environment variable (`HEADWATER_` and its name in
capitals) or a TOML file, in that order of precedence. The flags of `headwater serve` and the
configuration reference are made from `Settings`. Each module here holds the settings of one
concern, with what they must satisfy; `origins` says where a setting came from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from headwater.settings.access import AccessSettings
from headwater.settings.bounds import BoundSettings
from headwater.settings.documents import DocumentSettings
from headwater.settings.fields import NUMBER_MAX
from headwater.settings.origins import ENV_PREFIX, UnknownSetting, read_file, similar, variable_of
from headwater.settings.outbound import OutboundSettings
from headwater.settings.server import ServerSettings
from headwater.settings.storage import StorageSettings


# The reference lists settings from the last of these to the first.
class Settings(
    DocumentSettings,
    OutboundSettings,
    BoundSettings,
    AccessSettings,
    StorageSettings,
    ServerSettings,
):
    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    @property
    def allows_local_webhooks(self) -> bool:
        if self.webhook_local != "auto":
            return self.webhook_local == "allow"
        return self.listens_on_loopback and not self.public_url

    @field_validator("*", mode="before")
    @classmethod
    def _check_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """true is not 1, and an address is not a port."""
        if cls.model_fields[info.field_name or ""].annotation is not int:
            return value
        if isinstance(value, bool):
            raise ValueError("must be a whole number")
        if isinstance(value, str) and value.startswith("tcp://"):
            raise ValueError(
                "must be a whole number, and is the address of a service: give the pod "
                "enableServiceLinks: false, or Kubernetes sets this variable for a service "
                "called headwater"
            )
        return value

    @field_validator("*")
    @classmethod
    def _check_values(cls, value: Any) -> Any:
        """No file, host or address has characters that cannot be printed, and no number is larger
        than what every engine and format can hold."""
        if isinstance(value, str | Path) and not str(value).isprintable():
            raise ValueError("has a character that cannot be printed")
        if isinstance(value, int) and value > NUMBER_MAX:
            raise ValueError(f"must be at most {NUMBER_MAX}")
        return value


def load_settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    """Settings from flags, environment and an optional TOML file."""
    content = {} if config is None else read_file(config)
    for name in content:
        if name not in Settings.model_fields:
            advice = similar(name, Settings.model_fields)
            raise UnknownSetting(f"{config}: {name}: no such setting; {advice}")
    file = {name: value for name, value in content.items() if variable_of(name) is None}
    return Settings(**file | flags)
