"""The configuration reference says what the settings are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.settings import Settings, load_settings
from tests.docs.markdown import CONFIGURATION, HTTP_REFERENCE, Page, code_spans


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)


def example_file(directory: Path) -> Path:
    block = next(block for block in Page(CONFIGURATION).blocks if block.language == "toml")
    path = directory / "headwater.toml"
    path.write_text(block.text)
    return path


def test_every_flag_of_the_command_is_there() -> None:
    """Asks the command itself, in case it makes its flags in another way than the table does."""
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "serve", "--help-all"],
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=True,
    )
    flags = set(re.findall(r"(?<!\S)--[a-z][a-z-]+", done.stdout)) - {"--help", "--help-all"}
    assert "--port" in flags
    documented = set(re.findall(r"--[a-z][a-z-]+", Page(CONFIGURATION).text))
    assert flags - documented == set()
    assert documented - flags == set()


def test_every_setting_named_in_the_http_reference_exists() -> None:
    names = re.findall(r"`([a-z_]+_(?:max|ms|window|origin))`", Page(HTTP_REFERENCE).text)
    assert names
    assert set(names) <= set(Settings.model_fields)


def test_limits_in_the_http_reference_are_the_defaults() -> None:
    units = {"KiB": 1024, "MiB": 1024**2, "s": 1000}
    for _, limit, setting, _ in Page(HTTP_REFERENCE).table("Limits"):
        number, _, unit = limit.partition(" ")
        (name,) = code_spans(setting)
        assert int(number) * units.get(unit, 1) == Settings.model_fields[name].default, name


def test_the_example_file_is_valid(tmp_path: Path) -> None:
    settings = load_settings(example_file(tmp_path), {})
    assert (settings.port, settings.cors_origin) == (8080, "https://app.example.com")
    settings.limits()


def test_flags_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = example_file(tmp_path)
    monkeypatch.setenv("HEADWATER_PORT", "9090")
    monkeypatch.setenv("HEADWATER_LOG_LEVEL", "debug")
    settings = load_settings(path, {"port": 7070})
    assert (settings.port, settings.log_level, settings.log_format) == (7070, "debug", "json")
    assert settings.linger_ms == Settings.model_fields["linger_ms"].default
