"""A subscription in the hands of a test: streams that come, grow and go, and a clock."""

from __future__ import annotations

from threading import RLock

from headwater.core.lineage import Lineage
from headwater.core.subscriptions import decisions
from headwater.core.subscriptions.config import SubscriptionConfig, Webhook
from headwater.core.subscriptions.decisions import Changes, Proof
from headwater.core.subscriptions.signatures import make_token, read_token
from headwater.core.subscriptions.state import (
    StoredSubscription,
    StreamTail,
    SubscriptionCreated,
    SubscriptionRecord,
    SubscriptionState,
    evolve,
)
from headwater.store.memory.subscriptions import Subscriptions

SECRET = b"s" * 32
NOW = 1_700_000_000_000


def webhook_config(**changes: object) -> SubscriptionConfig:
    fields: dict[str, object] = {
        "type": "webhook",
        "pattern": "in/*",
        "webhook": Webhook("https://example.com/"),
        "lease_ttl_ms": 5_000,
    }
    return SubscriptionConfig(**(fields | changes))  # type: ignore[arg-type]


def pull_config(**changes: object) -> SubscriptionConfig:
    fields: dict[str, object] = {
        "type": "pull-wake",
        "pattern": "in/*",
        "wake_stream": "in/wakes",
        "lease_ttl_ms": 5_000,
    }
    return SubscriptionConfig(**(fields | changes))  # type: ignore[arg-type]


class Model:
    """A state, and beside it what an engine would have stored of it."""

    def __init__(self, config: SubscriptionConfig | None = None) -> None:
        record = SubscriptionRecord(1, "sub", NOW, "http://localhost")
        self.state = SubscriptionState(record, config or webhook_config())
        self.streams: dict[str, StreamTail] = {}
        self.now_ms = NOW
        self.stored = Subscriptions(RLock())
        self._ids = iter(range(1, 1_000_000))
        self._wakes = iter(range(1, 1_000_000))
        named = decisions.decide_link(self.state, self.state.config.streams, {})
        for change in named:
            evolve(self.state, change)
        marks = tuple(link.mark() for link in self.state.links.values())
        self.stored.apply(SubscriptionCreated(record, self.state.config, marks))

    # ── Streams ──────────────────────────────────────────────────────────────────────────────

    def create(self, path: str, tail: int = 0) -> None:
        stream = StreamTail(path, Lineage(next(self._ids)), tail)
        self.streams[path] = stream
        if path in self.state.links or self.state.globs(path):
            self.state.appeared(stream)

    def append(self, path: str, size: int = 10) -> str:
        """The stream grows; the offset of its new end."""
        stream = self.streams[path]
        stream = self.streams[path] = stream._replace(tail=stream.tail + size)
        link = self.state.links.get(path)
        if link is not None:
            self.state.grew(link, stream.lineage.own, stream.tail)
        return self.tail(path)

    def delete(self, path: str) -> None:
        stream = self.streams.pop(path)
        self.state.vanished(path, stream.lineage.own)

    def tail(self, path: str) -> str:
        stream = self.streams[path]
        return str(stream.lineage.offset_at(stream.tail))

    # ── The subscription ─────────────────────────────────────────────────────────────────────

    def store(self, changes: Changes) -> Changes:
        for change in changes:
            evolve(self.state, change)
            self.stored.apply(change)
        return changes

    def wake_id(self) -> str:
        return f"w{next(self._wakes)}"

    def begin(self) -> Changes:
        return self.store(decisions.decide_begin(self.state, self.wake_id(), self.now_ms))

    def delivered(self) -> Changes:
        wake = self.state.wake
        return self.store(decisions.decide_delivered(self.state, wake.wake_id, self.now_ms))

    def failed(self, dice: float = 0.5) -> Changes:
        wake = self.state.wake
        return self.store(decisions.decide_failed(self.state, wake.wake_id, dice, self.now_ms))

    def lapse(self) -> Changes:
        return self.store(decisions.decide_lapse(self.state, self.wake_id(), self.now_ms))

    def claim(self, worker: str = "me") -> Changes:
        return self.store(decisions.decide_claim(self.state, worker, self.now_ms))

    def proof(self) -> Proof:
        wake = self.state.wake
        token = make_token(SECRET, 1, wake.generation)
        return Proof(read_token(SECRET, 1, token), wake.generation, wake.wake_id)

    def settle(
        self, *acks: tuple[str, str], proof: Proof | None = None, done: bool = False
    ) -> bool:
        settled = decisions.decide_settle(
            self.state,
            proof or self.proof(),
            [decisions.Ack(*ack) for ack in acks],
            done=done,
            next_id=self.wake_id(),
            now_ms=self.now_ms,
        )
        self.store(list(settled.mutations))
        return settled.reply

    def release(self, proof: Proof | None = None) -> bool:
        settled = decisions.decide_release(
            self.state, proof or self.proof(), self.wake_id(), self.now_ms
        )
        self.store(list(settled.mutations))
        return settled.reply

    def reloaded(self) -> SubscriptionState:
        """What a restart would make of what is stored."""
        (found,) = self.stored.load(None)
        assert isinstance(found, StoredSubscription)
        state = SubscriptionState(found.record, found.config, found.wake)
        state.restore(found.marks, self.streams.values())
        return state
