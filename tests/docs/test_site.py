"""The pages make a site: every page has its place in it, and every docstring can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", DOCS, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert {path for path in pages if (tmp_path / path).exists()} == pages
    assert (tmp_path / "searchindex.js").exists()
    assert "AsyncHeadwater" in (tmp_path / "api.html").read_text()
