"""How a run of all tests begins: see `tests.support.imports` and `tests.support.java`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import imports, java

ROOT = Path(__file__).parents[2]


def share(number: int, *places: str) -> None:
    given = {"workerid": f"gw{number}", "workercount": 3}
    config: Any = SimpleNamespace(rootpath=ROOT, args=[*places], workerinput=given)
    imports.import_share(config)


def test_every_file_is_in_one_share(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(imports, "import_module", imported.append)
    places = (str(ROOT / "tests/groups"), str(ROOT / "tests/core/test_offsets.py::test_x"))
    for number in range(3):
        before = len(imported)
        share(number, *places)
        assert len(imported) > before
    there = {f"tests.groups.{file.stem}" for file in (ROOT / "tests/groups").glob("test_*.py")}
    assert sorted(imported) == sorted({*there, "tests.core.test_offsets"})


def test_a_file_that_cannot_be_imported_is_left_to_its_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(imports, "import_module", fail)
    share(0, str(ROOT / "tests/groups"))


def test_java_gets_what_makes_it_start_quickly_and_then_what_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text('#!/bin/sh\necho "$@"\n')
    real.chmod(0o755)
    for variable, value in (("JAVA_HOME", str(tmp_path / "real")), ("PATH", str(real.parent))):
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv(variable, value)
        home = java.make_home(tmp_path / variable)
        assert home is not None
        command = [str(home / "bin" / "java"), "-cp", "a b"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert said.endswith("-XX:+UseSerialGC -cp a b\n")


def test_without_a_java_nothing_is_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.make_home(tmp_path / "home") is None
