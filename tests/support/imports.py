"""Workers that import the tests for each other.

All workers import all tests, and pytest rewrites the assertions of each before it is compiled. In a
fresh clone that is half the time until the first test runs. So each worker starts with its own
share, and the others find the compiled result in its cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest


def import_share(config: pytest.Config) -> None:
    """Import the tests that no other worker starts with."""
    workerinput: dict[str, object] | None = getattr(config, "workerinput", None)
    if workerinput is None:
        return
    number = int(str(workerinput["workerid"]).removeprefix("gw"))
    files = sorted(_tests(Path(argument.partition("::")[0]) for argument in config.args))
    for file in files[number :: int(str(workerinput["workercount"]))]:
        # Errors are reported when the module is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


def _tests(places: Iterable[Path]) -> set[Path]:
    found: set[Path] = set()
    for place in places:
        below = place.resolve()
        found |= {below} if below.is_file() else set(below.rglob("test_*.py"))
    return {file for file in found if "node_modules" not in file.parts}
