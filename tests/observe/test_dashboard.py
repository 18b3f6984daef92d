"""The dashboard and the pages name figures that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.markdown import DOCS, ROOT
from tests.observe.figures import Figures, names_of
from tests.support.server import ServerProcess

DASHBOARD = ROOT / "deploy" / "grafana" / "headwater.json"
REFERENCE = DOCS / "reference" / "metrics.md"
PRODUCTION = DOCS / "howto" / "production.md"
NAME = re.compile(r"\b(?:headwater|process)_[a-z_]+\b")
LABEL = re.compile(r"by \(([a-z, ]+)\)")


@pytest.fixture(scope="module")
def figures(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Figures:
    httpx.get(f"{server.url}/v1/stream/missing")
    figures_of_one = {"batch": 0, "rows": 0, "rows_per_s": 0, "batch_ms": 0}
    pipeline = {"name": "archive-orders", "kind": "archive", **figures_of_one}
    httpx.post(f"{server.url}/v1/pipelines", json=pipeline).raise_for_status()
    return Figures.of(server.url)


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def expressions() -> Iterator[str]:
    board = dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def test_every_name_on_the_dashboard_exists(figures: Figures) -> None:
    used = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(used) > 20
    assert used - figures.sample_names == set()


def test_every_figure_of_ours_is_on_the_dashboard(figures: Figures) -> None:
    used = {name for expression in expressions() for name in NAME.findall(expression)}
    ours = {name: f for name, f in figures.families.items() if name.startswith("headwater_")}
    assert [name for name, family in ours.items() if used.isdisjoint(names_of(family))] == []


def test_labels_on_the_dashboard_exist(figures: Figures) -> None:
    known = {label for f in figures.families.values() for s in f.samples for label in s.labels}
    for expression in expressions():
        for labels in LABEL.findall(expression):
            assert set(labels.split(", ")) <= known, expression


def test_panels_have_their_own_number_and_place() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


@pytest.mark.parametrize("page", [REFERENCE, PRODUCTION], ids=lambda page: page.name)
def test_pages_name_only_what_exists(figures: Figures, page: Path) -> None:
    families = set(figures.families) | figures.sample_names
    named = set(NAME.findall(page.read_text(encoding="utf-8"))) - {"process_"}
    assert named
    assert named - families == set()
