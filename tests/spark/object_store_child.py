"""Pipelines with tables in an object store, in a process with credentials for it.

    python -m tests.spark.object_store_child URL PREFIX ROOT

Every run is that of a new machine: nothing but the object store remembers the one before it.
"""

from __future__ import annotations

import json
import sys

from headwater.client import Headwater
from pyspark_headwater.java import prepare_environment
from pyspark_headwater.pipelines.replay import replay
from pyspark_headwater.pipelines.reporting import noted
from pyspark_headwater.pipelines.running import Pipeline, run
from pyspark_headwater.tables import HeadwaterTables
from tests.spark.test_pipelines import gone, put
from tests.spark.world import local_session


def main(url: str, prefix: str, root: str) -> None:
    prepare_environment()
    spark = local_session("local[2]")
    users = f"{prefix}/users"
    rows: dict[str, list[int]] = {}
    with Headwater(url) as client:
        stream = client.stream(users)
        stream.ensure(content_type="application/json")
        for messages in ([put("a", {"n": 1}), put("b", {"n": 2})], [gone("a"), put("c", {"n": 3})]):
            stream.append_all(messages)
            for kind in ("archive", "materialize", "rollup"):
                job = Pipeline(kind, root, {"endpoint": url, "streamPattern": f"{prefix}/**"})
                run(spark, job, lambda one: rows.setdefault(one.kind, []).append(one.rows))
        run(spark, Pipeline("snapshot", root, {"endpoint": url, "stream": users}))
        tables = HeadwaterTables(spark, url, root)
        table = f"{root}/archive/{prefix}.users"
        replay(spark, table, {"endpoint": url, "stream": "copy"}, name="restore", version=1)
        found = {
            "rows": rows,
            "archived": tables.table(users).count(),
            "state": {row.key: row.n for row in tables.state(users, "user").collect()},
            "counted": sum(row.messages for row in tables.rollup().collect()),
            "snapshot": len(json.loads(stream.snapshots.get().data)),
            "copied": len([*client.stream("copy").read_json()]),
            "noted": [one.kind for one in noted(root)],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
