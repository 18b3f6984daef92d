"""Every setting of the server, with its default, once.

A setting can come from a command line flag, an environment variable (`HEADWATER_` and its name in
capitals) or a TOML file, in that order of precedence. The flags of `headwater serve` and the
configuration reference are made from `Settings`. Each module here holds the settings of one
concern, with what they must satisfy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from headwater.settings.access import AccessSettings
from headwater.settings.bounds import BoundSettings
from headwater.settings.documents import DocumentSettings
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
    model_config = SettingsConfigDict(env_prefix="HEADWATER_", extra="forbid", frozen=True)

    @property
    def allows_local_webhooks(self) -> bool:
        if self.webhook_local != "auto":
            return self.webhook_local == "allow"
        return self.listens_on_loopback and not self.public_url

    @field_validator("*")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        """No file, host or address has characters that cannot be printed."""
        if isinstance(value, str | Path) and not str(value).isprintable():
            raise ValueError("has a character that cannot be printed")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        toml = TomlConfigSettingsSource(settings_cls)
        return init_settings, env_settings, toml


def load_settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    """Settings from flags, environment and an optional TOML file."""

    class WithFile(Settings):
        model_config = SettingsConfigDict(toml_file=config)

    return WithFile(**flags)
