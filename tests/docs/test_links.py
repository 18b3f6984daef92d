"""Links between the pages lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, ROOT, Page

PAGES = sorted([*DOCS.glob("**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/*/*.md")])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    broken = [link for link in Page(path).links if not resolves(path, link)]
    assert broken == []


def resolves(page: Path, link: str) -> bool:
    if link.startswith(("http://", "https://", "mailto:")):
        return True
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or (target.suffix == ".md" and anchor in Page(target).anchors)
