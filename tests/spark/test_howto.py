"""What the page about Spark shows works."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.client import snippets
from tests.spark.world import ROOT, World

GUIDE = ROOT / "docs" / "howto" / "spark.md"


def test_the_guide(spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """All snippets of the page, in one go, in the session that runs."""
    page = GUIDE.read_text().replace("shop/", f"{world.prefix}/")
    page = page.replace("shop.orders", world.table("orders"))
    page = page.replace("hw_shop_", f"hw_{world.prefix.replace('-', '_')}_")
    blocks = snippets.fenced(page)
    assert len(blocks) >= 11
    program = "\n".join(blocks).replace(snippets.SERVER, world.url)
    # Classes of the main program travel to workers by value.
    namespace: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(program, str(GUIDE), "exec"), namespace)
    finally:
        namespace["client"].close()
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    shown = capsys.readouterr().out
    assert "'gross': 4.76" in shown
    assert "|2026-01-01 12:00:00|   /|    2|" in shown
    assert "|cake|  NULL|4.0|" in shown
    assert "{'item': 'tea', 'price': 3.5}" in shown
    assert shown.rstrip().endswith("6")


def test_the_notebook(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """All cells, from top to bottom."""
    notebook = json.loads((ROOT / "examples" / "spark.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 6
    assert all(not cell.get("outputs") for cell in notebook["cells"])
    program = "\n".join(cells).replace(snippets.SERVER, world.url)
    exec(compile(program.replace("notebook/", f"{world.prefix}/"), "spark.ipynb", "exec"), {})
    shown = capsys.readouterr().out
    for line in ("100 large orders", "301 orders", "301 messages counted"):
        assert line in shown
