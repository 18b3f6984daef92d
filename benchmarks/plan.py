"""How much a run measures. Every count and every duration is bounded here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024


@dataclass(frozen=True)
class Plan:
    """The sizes of one run: ``FULL`` for figures, ``QUICK`` to check that everything works."""

    name: str

    # (streams, connections)
    append_loads: tuple[tuple[int, int], ...]
    append_warmup_seconds: float
    append_seconds: float

    # (readers, appends per second). The rate is low enough for every server to keep up, so that the
    # figure is the time of a delivery and not the length of a queue.
    latency_readers: tuple[tuple[int, float], ...]
    latency_seconds: float

    fanout_readers: tuple[int, ...]
    fanout_seconds: float

    catchup_bytes: int
    catchup_connections: tuple[int, ...]

    startup_streams: int
    startup_idle_seconds: float

    editor_documents: int
    editors_per_document: int
    edits_per_second: float
    editor_seconds: float
    # How many documents there are; editors and edits are as above.
    documents_counts: tuple[int, ...]

    client_read_bytes: int
    client_follow_bytes: int
    client_produce_messages: int
    client_memory_bytes: int

    groups_messages: int
    groups_consumers: tuple[int, ...]
    groups_unsynced_consumers: tuple[int, ...]
    groups_many: int
    groups_warmup_seconds: float
    groups_seconds: float
    groups_latency_rate: float

    # (streams, changes per second on each)
    queries_streams: tuple[tuple[int, float], ...]
    queries_waiters: int
    queries_seconds: float
    queries_settle_seconds: float

    history_readers: tuple[int, ...]
    history_seconds: float
    history_long_messages: int
    history_append_rounds: int
    history_append_seconds: float

    spark_messages: int
    spark_rounds: int
    spark_latency_samples: int

    # Durable, and in memory.
    endurance_seconds: tuple[float, float]

    spark_message_bytes: int = 220
    message_bytes: int = 200
    append_bulk_messages: int = 5_000
    # With 256 readers the reference needs half a minute for this, and gives up after a whole one.
    history_bytes: int = 8 * MIB
    history_short_messages: int = 100_000
    history_samples: int = 390
    catchup_batch_messages: int = 1_000
    settle_seconds: float = 2.0
    live_warmup_seconds: float = 1.0
    live_drain_seconds: float = 5.0
    prepare_seconds_max: float = 180.0

    repetitions: int = 1
    repeated: Mapping[str, int] = field(default_factory=dict)
    """Scenarios that are measured more often, because their subjects are close."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """About how long a repetition of a scenario takes, with every peer, on two quiet cores."""

    def repetitions_of(self, scenario: str) -> int:
        return self.repeated.get(scenario, self.repetitions)

    def minutes(self, scenario: str) -> float:
        return self.repetitions_of(scenario) * self.seconds[scenario] / 60


FULL_SECONDS = {
    "append": 75,
    "latency": 80,
    "fanout": 75,
    "catchup": 80,
    "editor": 150,
    "documents": 200,
    "groups": 240,
    "cluster": 180,
    "spark": 200,
    "queries": 200,
    "history": 220,
    "startup": 120,
    "client": 240,
    "endurance": 950,
}

FULL = Plan(
    name="full",
    repeated={"append": 3, "fanout": 3},
    append_loads=((1, 64), (16, 64), (1_000, 64), (16, 256)),
    append_warmup_seconds=1.0,
    append_seconds=3.0,
    latency_readers=((1, 50.0), (100, 10.0)),
    latency_seconds=8.0,
    fanout_readers=(1_000, 5_000),
    fanout_seconds=5.0,
    catchup_bytes=256 * MIB,
    catchup_connections=(1, 4),
    startup_streams=100_000,
    startup_idle_seconds=5.0,
    editor_documents=200,
    editors_per_document=5,
    edits_per_second=8.0,
    editor_seconds=20.0,
    documents_counts=(20, 200),
    client_read_bytes=64 * MIB,
    client_follow_bytes=64 * MIB,
    client_produce_messages=200_000,
    client_memory_bytes=1024 * MIB,
    groups_messages=500_000,
    groups_consumers=(1, 8, 64),
    groups_unsynced_consumers=(64,),
    groups_many=1_000,
    groups_warmup_seconds=0.3,
    groups_seconds=2.0,
    groups_latency_rate=1_000.0,
    queries_streams=((1, 20.0), (10, 10.0), (30, 10.0)),
    queries_waiters=10_000,
    queries_seconds=6.0,
    queries_settle_seconds=60.0,
    history_readers=(1, 16, 256),
    history_seconds=4.0,
    history_long_messages=10_000_000,
    history_append_rounds=3,
    history_append_seconds=4.0,
    spark_messages=1_000_000,
    spark_rounds=4,
    spark_latency_samples=45,
    endurance_seconds=(600.0, 300.0),
    seconds=FULL_SECONDS,
)

QUICK = Plan(
    name="quick",
    append_loads=((1, 64), (16, 64), (1_000, 64), (16, 256)),
    append_warmup_seconds=0.3,
    append_seconds=1.0,
    latency_readers=((1, 50.0), (100, 10.0)),
    latency_seconds=2.0,
    fanout_readers=(1_000,),
    fanout_seconds=2.0,
    catchup_bytes=32 * MIB,
    catchup_connections=(1, 4),
    startup_streams=5_000,
    startup_idle_seconds=1.0,
    editor_documents=200,
    editors_per_document=5,
    edits_per_second=8.0,
    editor_seconds=5.0,
    documents_counts=(20, 200),
    client_read_bytes=8 * MIB,
    client_follow_bytes=8 * MIB,
    client_produce_messages=20_000,
    client_memory_bytes=64 * MIB,
    groups_messages=100_000,
    groups_consumers=(1, 8, 64),
    groups_unsynced_consumers=(64,),
    groups_many=1_000,
    groups_warmup_seconds=0.1,
    groups_seconds=1.0,
    groups_latency_rate=1_000.0,
    queries_streams=((1, 20.0), (10, 10.0), (30, 10.0)),
    queries_waiters=2_000,
    queries_seconds=2.0,
    queries_settle_seconds=10.0,
    history_readers=(1, 16, 256),
    history_seconds=2.0,
    history_long_messages=1_000_000,
    history_append_rounds=5,
    history_append_seconds=2.0,
    spark_messages=200_000,
    spark_rounds=2,
    spark_latency_samples=15,
    endurance_seconds=(10.0, 10.0),
    seconds={name: seconds / 4 for name, seconds in FULL_SECONDS.items()},
    settle_seconds=1.0,
    live_warmup_seconds=0.5,
    live_drain_seconds=2.0,
)
