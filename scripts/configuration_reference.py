"""The table of docs/reference/configuration.md, from the settings themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from headwater.settings import Settings
from scripts.markers import replaced

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "configuration.md"

_HEAD = "| Flag | Environment | TOML key | Default | Meaning |\n| --- | --- | --- | --- | --- |\n"
_BINARY_UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def generate() -> dict[Path, str]:
    """The page with its current table."""
    return {PAGE: replaced(PAGE, {"settings": table()})}


def table() -> str:
    rows = [_row(name, info) for name, info in Settings.model_fields.items()]
    return _HEAD + "".join(rows)


def _row(name: str, info: FieldInfo) -> str:
    prefix = Settings.model_config.get("env_prefix", "")
    cells = (
        _flags(name, info),
        f"`{prefix}{name.upper()}`",
        f"`{name}`",
        _default(name, info.default),
        " ".join([info.description or "", *_bounds(info)]),
    )
    return f"| {' | '.join(cells)} |\n"


def _flags(name: str, info: FieldInfo) -> str:
    flag = name.replace("_", "-")
    return f"`--{flag}`, `--no-{flag}`" if info.annotation is bool else f"`--{flag}`"


def _default(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value == "":
        return "none"
    readable = _readable(name, value) if isinstance(value, int) else None
    return f"`{value}` ({readable})" if readable else f"`{value}`"


def _readable(name: str, value: int) -> str | None:
    """A size or a time in a unit that people would use; None if it is already in one."""
    if "_bytes" in name:
        for size, unit in _BINARY_UNITS:
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
    if name.endswith("_ms") and value >= 1000:
        return f"{value / 1000:g} s"
    return None


def _bounds(info: FieldInfo) -> list[str]:
    """Which values a setting accepts, as a sentence."""
    kind: Any = info.annotation
    if get_origin(kind) is Literal:
        choices = [f"`{choice}`" for choice in get_args(kind)]
        return [f"One of {', '.join(choices[:-1])} and {choices[-1]}."]
    least = next((bound.ge for bound in info.metadata if isinstance(bound, Ge)), None)
    most = next((bound.le for bound in info.metadata if isinstance(bound, Le)), None)
    if least is not None and most is not None:
        return [f"From {least} to {most}."]
    return [] if least is None else [f"At least {least}."]


if __name__ == "__main__":
    raise SystemExit("run make generate, or python -m scripts.generate")
