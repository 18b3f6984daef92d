"""Write every file that is made from the code: `make generate`.

`--check` writes nothing and fails if a file is not up to date. Each module in `GENERATORS` has a
function `generate` that returns the text of each of its files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import pages
from scripts import (
    cli_reference,
    configuration_reference,
    error_reference,
    make_sync,
    metrics_reference,
)

GENERATORS = (
    make_sync,
    cli_reference,
    configuration_reference,
    metrics_reference,
    error_reference,
    pages,
)


def generate() -> dict[Path, str]:
    """The text of every generated file."""
    return {path: text for module in GENERATORS for path, text in module.generate().items()}


def stale() -> dict[Path, str]:
    """The files that are out of date, with the text they should have."""
    return {path: text for path, text in generate().items() if _current(path) != text}


def _current(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    check = parser.parse_args().check
    for path, text in (outdated := stale()).items():
        if check:
            print(f"{path} is out of date: run make generate", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
