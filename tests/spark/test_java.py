"""A Java where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_headwater.java import bundled_java_home, prepare_environment


def test_the_bundled_java_starts_with_what_spark_asks_for(tmp_path: Path) -> None:
    java = bundled_java_home(tmp_path / "home") / "bin" / "java"
    arguments = ("--add-modules=jdk.incubator.vector", "-Dtext=two words", "-version")
    ran = subprocess.run([java, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "version" in ran.stderr


def test_it_is_used_only_where_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("JAVA_HOME", "/some/java")
    prepare_environment(tmp_path / "home")
    assert os.environ["JAVA_HOME"] == "/some/java"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    prepare_environment(tmp_path / "home")
    assert os.environ["JAVA_HOME"] == str(tmp_path / "home")
    monkeypatch.delenv("JAVA_HOME")
