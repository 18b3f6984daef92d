"""Tables in an object store, with nothing but what pip installs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater.cli.tables.lake import ask, rows_of
from tests.spark.world import ROOT, run_to_end
from tests.support.object_storage import ObjectStorage


def test_every_pipeline_and_sql(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ObjectStorage() as store:
        root = "s3://history/lake"
        command = [sys.executable, "-m", "tests.spark.object_store_child", url, "stored", root]
        environment = {**store.environment, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        printed = run_to_end(command, tmp_path, environment)
        found = json.loads(printed.splitlines()[-1])
        # The second run of each pipeline read only what was new.
        assert found.pop("rows") == {kind: [2, 2] for kind in ("archive", "materialize", "rollup")}
        assert found == {
            "archived": 4,
            "state": {"b": 2, "c": 3},
            "counted": 4,
            "snapshot": 2,
            "copied": 4,
            "noted": ["archive", "materialize", "rollup"],
        }
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        (row,) = rows_of(ask(root, "SELECT count(*), sum(n) FROM state_stored_users_user"))
        assert row == (2, 5)
        assert DeltaTable(f"{root}/archive/stored.users").version() >= 2
    assert [*tmp_path.iterdir()] == []
