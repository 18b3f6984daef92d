"""The smallest thing that can run the decisions of `core`: states in a dict, and nothing else.

It does for one command after the other what the service does for many at once: find the states,
measure a fork, decide, fold the mutations into the states. No clock, no engine, no event loop.
`CommittedStreams` also passes the mutations to an engine, one commit per command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from headwater.core import decisions
from headwater.core.decisions import Append, AppendReply, Create, CreateReply, ForkPoint
from headwater.core.errors import UnknownOffset
from headwater.core.lineage import ForkRequest, Span, measure_sub_offset
from headwater.core.mutations import Decision, StreamDecision
from headwater.core.retention import locate
from headwater.core.stream import Appended, Created, Mutation, StreamState, evolve
from headwater.store.engine import Engine

R = TypeVar("R")


class DecidedStreams:
    def __init__(self) -> None:
        self.by_path: dict[str, StreamState] = {}
        self.by_id: dict[int, StreamState] = {}
        self.appends: dict[int, list[Appended]] = {}
        self.next_id = 1
        self.last_mutations: Sequence[Mutation] = ()

    # ── Commands ─────────────────────────────────────────────────────────────────────────────

    def create(self, command: Create, now_ms: int) -> CreateReply:
        existing = self.by_path.get(command.path)
        point = None
        if command.fork is not None and not decisions.is_taken(existing, now_ms):
            point = self._measure(command.fork, now_ms)
        ancestors = self.ancestors(existing) if existing else ()
        decision = decisions.decide_create(
            existing, ancestors, command, point, self.next_id, now_ms
        )
        return self._commit(decision)

    def append(self, path: str, command: Append, now_ms: int) -> AppendReply:
        state = decisions.require(self.by_path.get(path), path, now_ms)
        return self._commit(decisions.decide_append(state, command, now_ms))

    def delete(self, path: str, now_ms: int) -> None:
        state = decisions.require(self.by_path.get(path), path, now_ms)
        return self._commit(decisions.decide_delete(state, self.ancestors(state), now_ms))

    def expire(self, path: str, now_ms: int) -> bool:
        state = self.by_path.get(path)
        if state is None:
            self.last_mutations = ()
            return False
        return self._commit(decisions.decide_expire(state, self.ancestors(state), now_ms))

    def trim(self, path: str, position: int, now_ms: int) -> bool:
        state = decisions.require(self.by_path.get(path), path, now_ms)
        return self._commit(decisions.decide_trim(state, position, now_ms))

    def touch(self, path: str, now_ms: int) -> None:
        state = decisions.require(self.by_path.get(path), path, now_ms)
        state.touched_at_ms = max(state.touched_at_ms, now_ms)
        due = decisions.decide_touch(state, now_ms)
        self._commit(Decision(None, (due,) if due else ()))

    # ── Reading ──────────────────────────────────────────────────────────────────────────────

    def content(self, state: StreamState) -> bytes:
        return b"".join(map(self.read, state.config.lineage.spans(0, state.tail)))

    def read(self, span: Span) -> bytes:
        run = b"".join(append.body for append in self.appends[span.run])
        base = self.appends[span.run][0].start
        return run[span.start - base : span.end - base]

    def positions(self, state: StreamState) -> list[int]:
        """The valid offsets of the stream: between two appends."""
        found = {0, state.tail}
        for run, _, end in state.config.lineage.spans(0, state.tail):
            for append in self.appends[run]:
                found |= {position for position in (append.start, append.end) if position <= end}
            found.add(end)
        return sorted(found)

    def ancestors(self, state: StreamState) -> tuple[StreamState, ...]:
        found: list[StreamState] = []
        while state.config.source_id is not None and state.config.source_id in self.by_id:
            state = self.by_id[state.config.source_id]
            found.append(state)
        return tuple(found)

    # ── Inside ───────────────────────────────────────────────────────────────────────────────

    def _measure(self, fork: ForkRequest, now_ms: int) -> ForkPoint:
        source = decisions.require_source(self.by_path.get(fork.source), fork.source, now_ms)
        lineage, json = source.config.lineage, source.config.is_json
        lineage.locate(fork.anchor(), source.tail)
        position = locate(source.config, fork.anchor(), source.tail)
        if position == source.tail:
            measure_sub_offset(None, fork.sub_offset, json=json)
            return ForkPoint(source, position, source.messages)
        span = lineage.spans(position, source.tail)[0]
        for append in self.appends[span.run]:
            if append.start <= position < append.end:
                body = append.body[: span.end - append.start]
                size, count = measure_sub_offset(body, fork.sub_offset, json=json)
                return ForkPoint(source, append.start + size, append.first_message + count)
        raise UnknownOffset(str(lineage.offset_at(position)))

    def _commit(self, decision: StreamDecision[R]) -> R:
        self.last_mutations = decision.mutations
        for mutation in decision.mutations:
            if isinstance(mutation, Created):
                state = StreamState.created(mutation.config)
                self.by_path[state.config.path] = self.by_id[state.config.id] = state
                self.appends[state.config.id] = []
                self.next_id = state.config.id + 1
                continue
            state = self.by_id[mutation.stream_id]
            evolve(state, mutation)
            if isinstance(mutation, Appended):
                self.appends[state.config.id].append(mutation)
            if state.deleted:
                del self.by_id[state.config.id], self.appends[state.config.id]
                if self.by_path[state.config.path] is state:
                    del self.by_path[state.config.path]
        return decision.reply


class CommittedStreams(DecidedStreams):
    """The same, with an engine that stores every decision."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine

    def _commit(self, decision: StreamDecision[R]) -> R:
        reply = super()._commit(decision)
        self.engine.commit(decision.mutations)
        return reply
