"""The metrics of this server, by subsystem, built with `observe.metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import CounterMetricFamily, InfoMetricFamily, Metric

from headwater import __version__
from headwater.core.histograms import SECONDS, Histogram
from headwater.core.responses.about import Reason
from headwater.http.observe.metrics import (
    PREFIX,
    Metrics,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    histograms,
)
from headwater.store.engine.figures import HistoryFigures, ReplicationFigures

if TYPE_CHECKING:
    from headwater.cluster.node import Node
    from headwater.documents.figures import Figures as DocumentFigures
    from headwater.http.access.gate import Gate
    from headwater.http.nodes.forwarding import ForwardFigures
    from headwater.http.resources.pipelines import PipelineReport, PipelineResource
    from headwater.http.wire.server import Server
    from headwater.responses.responses import Responses
    from headwater.service.feeds import Feeds
    from headwater.service.groups.operations import Groups
    from headwater.service.live.registry import Live
    from headwater.service.log import Log
    from headwater.service.subscriptions.operations import Subscriptions


def add_all(
    metrics: Metrics,
    log: Log,
    feeds: Feeds,
    groups: Groups,
    live: Live,
    subscriptions: Subscriptions,
    server: Server,
    gate: Gate | None,
    responses: Responses | None = None,
) -> None:
    """Add the metrics that every server has."""
    storage = Storage(log)
    metrics.add(lambda: of_build(log))
    metrics.add(lambda: of_writes(log))
    metrics.add(storage.collect, storage.prepare)
    metrics.add(lambda: of_reads(feeds))
    metrics.add(lambda: of_groups(groups))
    metrics.add(lambda: of_live(live))
    metrics.add(lambda: of_subscriptions(subscriptions))
    metrics.add(lambda: of_traffic(server))
    metrics.add(lambda: of_access(server, gate))
    metrics.add(lambda: of_responses(responses))


# Name, meaning, task of the log, and its figure; 0 for a task that this server does not run.
_HISTORY_COUNTERS: Final = (
    ("sealed_files", "History files written.", "sealing", "files"),
    ("sealed_bytes", "Size of history files written.", "sealing", "size_bytes"),
    ("seal_failures", "Failed attempts to seal.", "sealing", "failures"),
    ("compacted_files", "History files replaced by compaction.", "compacting", "files"),
    ("compacted_bytes", "Bytes copied by compaction.", "compacting", "size_bytes"),
    (
        "compaction_failures",
        "Failed attempts to compact history files.",
        "compacting",
        "failures",
    ),
    ("uploads", "History files uploaded.", "archiving", "uploads"),
    ("uploaded_bytes", "Size of history files uploaded.", "archiving", "uploaded_bytes"),
    ("upload_failures", "Failed attempts to upload history.", "archiving", "failures"),
)


def of_build(log: Log) -> Iterator[Metric]:
    about = {"version": __version__, "engine": log.engine.name}
    yield InfoMetricFamily(f"{PREFIX}build", "Version and engine of this server.", value=about)


def of_writes(log: Log) -> Iterator[Metric]:
    writer, figures = log.writer, log.writer.figures
    yield counter("appends", "Appends committed.", figures.appends)
    yield counter("appended_bytes", "Bytes committed, in stored form.", figures.appended_bytes)
    yield counter("appended_messages", "Messages committed.", figures.messages)
    yield histogram("commit_seconds", "Total time of a commit.", figures.seconds)
    yield histogram("commit_requests", "Requests answered by one commit.", figures.batch_requests)
    yield counter("commit_failures", "Commits that failed.", writer.failures)
    yield gauge("storage_full", "1 while the disk has no room for anything new.", writer.full)
    failures = {task.name: task.failures for task in log.watched()}
    failing = {task.name: int(task.is_failing) for task in log.watched()}
    yield counters("task_failures", "Failures of background tasks.", "task", failures)
    yield gauges("task_failing", "1 while this background task fails.", "task", failing)
    yield gauge("queue_bytes", "Writes waiting for a commit.", writer.queued_bytes)
    yield gauge(
        "queue_bytes_max", "Limit of waiting writes (429 beyond).", log.limits.queue_bytes_max
    )
    yield gauge("streams_in_memory", "Streams that are loaded.", log.streams_in_memory)
    yield gauge("hot_bytes", "Recent data kept in memory.", log.hot_bytes)


class Storage:
    """File sizes are read on a thread: a disk that hangs must not block the loop."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sync_seconds = Histogram(SECONDS)
        self._disk_bytes: dict[str, int] = {}
        self._history = HistoryFigures()
        self._replication = ReplicationFigures()

    async def prepare(self) -> None:
        figures = await self._log.in_thread(self._log.engine.figures)
        self._sync_seconds, self._disk_bytes = figures.sync_seconds, figures.disk_bytes
        self._history, self._replication = figures.history, figures.replication

    def collect(self) -> Iterator[Metric]:
        yield histogram(
            "sync_seconds", "Time to make a commit durable, mostly fsync.", self._sync_seconds
        )
        yield gauges("disk_bytes", "Size of the files, by part.", "part", self._disk_bytes)
        yield from self._of_history()
        copies = self._replication
        yield gauge("replicas", "Replicas that commits wait for (PostgreSQL).", copies.replicas)
        text = "What the slowest replica does not have on its disk yet."
        yield gauge("replication_lag_bytes", text, copies.lag_bytes)

    def _of_history(self) -> Iterator[Metric]:
        history, archiving = self._history, self._log.archiving
        files = {"here": history.local_files, "object storage": history.remote_files}
        sizes = {"here": history.local_bytes, "object storage": history.remote_bytes}
        waiting_bytes = history.waiting_bytes if archiving else 0
        yield gauges("history_files", "History files, by place.", "place", files)
        yield gauges("history_bytes", "Size of history files, by place.", "place", sizes)
        yield gauge(
            "history_waiting_bytes",
            "Size of history files that are not uploaded yet.",
            waiting_bytes,
        )
        for name, text, task, figure in _HISTORY_COUNTERS:
            yield counter(name, text, getattr(getattr(self._log, task), figure, 0))
        is_down = archiving is not None and archiving.is_failing
        yield gauge("history_store_down", "1 while object storage does not answer.", is_down)


def of_reads(feeds: Feeds) -> Iterator[Metric]:
    figures = feeds.figures
    yield counters("reads", "Reads of streams, by kind.", "kind", figures.reads)
    yield gauges("readers", "Live readers now, by kind.", "kind", feeds.readers)
    yield gauge(
        "readers_catching_up", "Event readers that are reading from disk.", feeds.catching_up
    )
    yield counter("events", "Events sent to event readers.", figures.events)
    yield counter("event_bytes", "Bytes sent to event readers.", figures.event_bytes)
    yield histogram(
        "delivery_seconds",
        "Time from a commit until it was sent to all event readers at the tail of its stream.",
        figures.delivery_seconds,
    )


def of_groups(groups: Groups) -> Iterator[Metric]:
    figures = groups.figures
    yield gauge("groups_in_memory", "Consumer groups that are loaded.", figures.loaded)
    yield gauge("group_in_flight", "Messages that members hold now.", figures.in_flight)
    yield gauge(
        "group_outstanding",
        "Messages that were delivered or returned and are not settled.",
        figures.outstanding,
    )
    yield gauge(
        "group_lag_messages",
        "Unsettled messages in the group that has the most. Each scrape looks at 2,000 "
        "groups, so with more it is late.",
        groups.lag_survey.look(),
    )
    yield gauge("group_waiting_members", "Members waiting for messages.", figures.waiting)
    yield counter("group_deliveries", "Messages delivered.", figures.deliveries)
    yield counter("group_redeliveries", "Messages delivered again.", figures.redeliveries)
    yield counters("group_settled", "Receipts used, by action.", "outcome", figures.settled)
    yield counter("group_dead_letters", "Messages that were given up.", figures.dead_letters)


# Name, meaning, and the figure of a pipeline, given the time of its report.
_PIPELINE_GAUGES: Final[tuple[tuple[str, str, Callable[[int, PipelineReport], float]], ...]] = (
    ("lag_messages", "Messages not processed yet.", lambda _, one: one.lag_messages or 0),
    ("lag_seconds", "Age of the oldest unprocessed message.", lambda _, one: one.lag_s or 0),
    ("failing", "1 from an error until the next batch.", lambda _, one: one.error is not None),
    ("paused", "1 while the pipeline is paused.", lambda _, one: one.state == "paused"),
    ("quarantined_messages", "Messages in quarantine.", lambda _, one: one.quarantined or 0),
    (
        "reported_timestamp_seconds",
        "When the pipeline last reported; it does every five seconds.",
        lambda at_ms, _: at_ms / 1000,
    ),
)


def of_pipelines(pipelines: PipelineResource) -> Iterator[Metric]:
    latest = pipelines.latest()
    for name, text, figure in _PIPELINE_GAUGES:
        values = {one.name: figure(at_ms, one) for at_ms, one in latest}
        yield gauges(f"pipeline_{name}", text, "pipeline", values)


def of_live(live: Live) -> Iterator[Metric]:
    figures = live.figures
    lag, totals = figures.count(), figures.totals
    yield gauges(
        "live_streams",
        "Streams that queries wait on, by touch mode.",
        "mode",
        figures.modes,
    )
    yield gauge("live_waiters", "Waiting queries.", live.waiters)
    yield gauge("live_waiters_max", "Limit of waiting queries (429 beyond).", live.waiters_max)
    yield gauge("live_lag_messages", "Unprocessed messages on the stream that has the most.", lag)
    yield gauge("live_templates", "Query shapes that are followed.", figures.templates)
    yield counter("live_changes", "Changes processed.", totals.changes)
    yield counter("live_touches", "Row keys touched by changes.", totals.fine_touches)
    yield counter(
        "live_coarse_changes",
        "Changes that touched only their table or template.",
        totals.fallback_changes,
    )
    outcomes = {"touched": totals.touched, "timeout": totals.timeouts, "stale": totals.stale}
    yield counters("live_waits", "Waits that ended, by outcome.", "outcome", outcomes)


def of_subscriptions(subscriptions: Subscriptions) -> Iterator[Metric]:
    figures, webhooks = subscriptions.figures, subscriptions.webhooks
    phases = {phase.name.lower(): count for phase, count in figures.phases.items()}
    yield gauges("subscriptions", "Subscriptions, by the state of their wake.", "state", phases)
    yield gauge(
        "subscriptions_failing",
        "Subscriptions whose last wake could not be announced.",
        figures.failing,
    )
    yield gauge(
        "subscription_pending_streams",
        "Streams with unacknowledged messages, over all subscriptions.",
        figures.pending,
    )
    yield counter("wakes_offered", "Wakes appended to wake streams.", subscriptions.wakes_offered)
    yield counters("webhooks", "Requests to webhooks, by outcome.", "outcome", webhooks.posted)
    yield histogram("webhook_seconds", "Time of a request to a webhook.", webhooks.seconds)


def of_documents(figures: DocumentFigures) -> Iterator[Metric]:
    compacting, workers = figures.running()
    yield counter("document_compactions", "Documents compacted.", figures.compactions)
    yield counter("document_read_bytes", "Bytes read to load documents.", figures.read_bytes)
    yield counter("document_snapshot_bytes", "Size of the snapshots.", figures.written_bytes)
    yield counters(
        "document_compactions_stopped",
        "Documents that cannot be compacted, by reason.",
        "reason",
        figures.stopped,
    )
    yield gauge("document_compacting", "Documents being compacted, or waiting for it.", compacting)
    yield gauge("document_workers", "Processes that are loading a document.", workers)
    yield histogram("document_compaction_seconds", "Time of a compaction.", figures.seconds)


def of_cluster(
    node: Node | None, forwards: ForwardFigures | None, relays: Sized | None
) -> Iterator[Metric]:
    """Zeros where there is no cluster."""
    nodes, shards = (len(node.seen.nodes), len(node.shards)) if node else (0, 0)
    yield gauge("cluster_nodes", "Nodes of the cluster that this one sees.", nodes)
    yield gauge("cluster_shards", "Shards that this node owns.", shards)
    good = node is not None and node.is_good
    yield gauge(
        "cluster_lease_good", "1 while no other node can have taken over from this one.", good
    )
    taken, handed = (node.takeovers, node.handed_over) if node else (0, 0)
    yield counter("cluster_takeovers", "Nodes that this one found to be gone.", taken)
    yield counter("cluster_handovers", "Shards that this node handed over.", handed)
    followed = len(relays) if relays is not None else 0
    yield gauge("cluster_relays", "Streams of other nodes that readers follow here.", followed)
    for name, text in _FORWARDS:
        yield counter(f"cluster_{name}", text, getattr(forwards, name, 0))


_FORWARDS: Final = (
    ("forwarded", "Requests forwarded to the node that owns their stream."),
    ("waited", "Forwarded requests that had to wait for an owner."),
    ("received", "Requests received from other nodes."),
    ("history_reads", "Reads of other nodes' streams answered here, from object storage."),
)


def of_access(server: Server, gate: Gate | None) -> Iterator[Metric]:
    accounts, readers = gate.accounts if gate else None, server.readers
    refusals = {
        "unauthorized": gate.unauthorized if gate else 0,
        "forbidden": gate.forbidden if gate else 0,
        "rate": accounts.refusals if accounts else 0,
        "readers": readers.refusals,
        "connections": server.refused_connections,
        "bodies": server.bodies.refusals,
    }
    yield counters("refusals", "Callers turned away, by reason.", "reason", refusals)
    yield gauge("rate_accounts", "Callers whose rate is tracked.", len(accounts or ()))
    yield gauge("live_reads", "Event streams and waiting requests.", readers.live)
    yield gauge("body_bytes", "Bodies of requests in progress, in memory.", server.bodies.bytes)
    yield gauge(
        "unread_bytes", "Data sent to slow peers that they have not read.", readers.buffered_bytes
    )


def of_traffic(server: Server) -> Iterator[Metric]:
    traffic = server.traffic
    yield gauge("connections", "Open connections.", server.connections)
    yield gauge("connections_max", "How many connections may be open.", server.connections_max)
    yield counter("connections_opened", "Connections accepted.", traffic.connections)
    yield counter(
        "readers_cut_off",
        "Event readers cut off because they did not read.",
        server.readers.cut_off,
    )
    requests = CounterMetricFamily(
        f"{PREFIX}requests",
        "Requests answered, by method, route and status.",
        labels=["method", "route", "status"],
    )
    seconds: dict[tuple[str, ...], Histogram] = {}
    for (method, route, status), tally in list(traffic.tallies.items()):
        requests.add_metric([method, route, str(status)], tally.requests)
        seconds.setdefault((method, route), Histogram(SECONDS)).add(tally)
    yield requests
    yield histograms(
        "request_seconds",
        "Time to answer a request, except requests that wait for new data.",
        ("method", "route"),
        {key: seen for key, seen in seconds.items() if seen.count},
    )
    yield counters(
        "errors",
        "Errors answered, by code, except 404s to HEAD.",
        "code",
        traffic.errors,
    )


def of_responses(responses: Responses | None) -> Iterator[Metric]:
    ended = {"complete": 0, **{reason.value: 0 for reason in Reason}}
    yield gauge(
        "responses_under_way",
        "Requests to upstreams in progress.",
        responses.under_way if responses else 0,
    )
    yield counters(
        "responses",
        "Durable responses that have ended.",
        "end",
        responses.ended if responses else ended,
    )
    yield counter(
        "responses_refused",
        "Requests for a durable response that were refused or failed.",
        responses.refused if responses else 0,
    )
    yield counter(
        "responses_bytes",
        "Bytes of durable responses that have ended.",
        responses.received_bytes if responses else 0,
    )
