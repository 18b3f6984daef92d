"""The scenarios, by the name that ``--only`` takes, in the order in which they run."""

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
    "startup": startup.steps,
    "editor": editor.steps,
    "documents": documents.steps,
    "client": client.steps,
    "groups": groups.steps,
    "queries": queries.steps,
    "history": history.steps,
    "cluster": cluster.steps,
    "spark": spark.steps,
    "endurance": endurance.steps,
}
