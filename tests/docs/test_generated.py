"""Everything that is made from the code is what the code makes of it now."""

from __future__ import annotations

from scripts.generate import GENERATORS, generate, stale


def test_generated_files_are_current() -> None:
    assert [path.name for path in stale()] == [], "run make generate"


def test_no_two_generators_write_the_same_file() -> None:
    written = [path for module in GENERATORS for path in module.generate()]
    assert len(written) == len(generate())
