"""Write the table of settings in docs/reference/configuration.md from the settings themselves.

`python scripts/configuration_reference.py` rewrites what stands between the two markers;
`--check` writes nothing and fails if the page is not what this script would write.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from headwater.settings import Settings

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "configuration.md"
BEGIN = "<!-- settings: written by scripts/configuration_reference.py, do not edit -->"
END = "<!-- settings: end -->"

_HEAD = "| Flag | Environment | TOML key | Default | Meaning |\n| --- | --- | --- | --- | --- |\n"
_BINARY_UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


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
    """A size or a time in a unit that a person would use; nothing if it is one already."""
    if "_bytes" in name:
        for size, unit in _BINARY_UNITS:
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
    if name.endswith("_ms") and value >= 1000:
        return f"{value / 1000:g} s"
    return None


def _bounds(info: FieldInfo) -> list[str]:
    """What values a setting takes, as a sentence."""
    kind: Any = info.annotation
    if get_origin(kind) is Literal:
        choices = [f"`{choice}`" for choice in get_args(kind)]
        return [f"One of {', '.join(choices[:-1])} and {choices[-1]}."]
    least = next((bound.ge for bound in info.metadata if isinstance(bound, Ge)), None)
    most = next((bound.le for bound in info.metadata if isinstance(bound, Le)), None)
    if least is not None and most is not None:
        return [f"From {least} to {most}."]
    return [] if least is None else [f"At least {least}."]


def with_table(page: str) -> str:
    """The page with the table between its markers replaced by the current one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has lost one of its markers:\n  {BEGIN}\n  {END}")
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    arguments = parser.parse_args()
    old = PAGE.read_text(encoding="utf-8")
    new = with_table(old)
    if old == new:
        return 0
    if arguments.check:
        print(f"{PAGE} is out of date: run python {sys.argv[0]}", file=sys.stderr)
        return 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
