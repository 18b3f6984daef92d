"""The scenarios, by their names for ``--only``, in the order in which they run."""

from benchmarks.scenarios import (
    append,
    catchup,
    client,
    cluster,
    documents,
    editor,
    endurance,
    fanout,
    groups,
    history,
    latency,
    queries,
    spark,
    startup,
)
from benchmarks.scenarios.base import Scenario

SCENARIOS: dict[str, Scenario] = {
    "append": append.steps,
    "latency": latency.steps,
    "fanout": fanout.steps,
    "catchup": catchup.steps,
    "editor": editor.steps,
    "documents": documents.steps,
    "groups": groups.steps,
    "cluster": cluster.steps,
    "spark": spark.steps,
    "queries": queries.steps,
    "history": history.steps,
    "startup": startup.steps,
    "client": client.steps,
    "endurance": endurance.steps,
}
ASKED_FOR = ("endurance",)
"""Only run if named explicitly, because they take so long."""
