"""Servers with documents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.documents.editing import Documents
from tests.support.engines import serving

COMPACT_BYTES = 2_000
SETTINGS = (
    *("--documents", "--documents-compact-bytes", str(COMPACT_BYTES)),
    *("--long-poll-timeout-ms", "150"),
)


@pytest.fixture(scope="session", params=["memory", "sqlite", "history", "postgresql", "cluster"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Documents]:
    with serving(request.param, tmp_path_factory.mktemp("documents"), *SETTINGS) as server:
        yield Documents(server)


@pytest.fixture
def documents(shared: Documents) -> Iterator[Documents]:
    """A server that other tests use too, on each engine in turn."""
    before = len(shared.server.stderr)
    yield shared
    said = shared.server.stderr[before:]
    assert "Traceback" not in said, said
    assert "unexpected_error" not in said, said
    assert shared.server.is_running
