"""Creating a stream.

A PUT to a new path creates a stream; `ensure` covers a PUT to an existing one. A path whose stream
was deleted but still has forks cannot be created. A body becomes the first append; a stream may be
created closed.
"""

from __future__ import annotations

from headwater.core import content_types
from headwater.core.content import Content, IsKnown, nothing_known, read_content
from headwater.core.decisions.access import is_taken
from headwater.core.decisions.commands import Create, CreateReply, ForkPoint
from headwater.core.decisions.ensure import confirm, ensure
from headwater.core.decisions.remove import remove
from headwater.core.errors import (
    ContentTypeMismatch,
    InvalidHeader,
    PathReserved,
)
from headwater.core.json_mode import MESSAGES_ANY
from headwater.core.lineage import Lineage
from headwater.core.mutations import Decision, StreamDecision
from headwater.core.stream import (
    Closed,
    Created,
    ForkCounted,
    Mutation,
    StreamConfig,
    StreamState,
)
from headwater.core.unique_ids import UniqueIds


def decide_create(
    existing: StreamState | None,
    ancestors: tuple[StreamState, ...],
    command: Create,
    fork_point: ForkPoint | None,
    new_id: int,
    now_ms: int,
    is_known: IsKnown = nothing_known,
    messages_max: int = MESSAGES_ANY,
) -> StreamDecision[CreateReply]:
    """Decide on a PUT. `ancestors` are the sources of the existing stream, nearest first.

    A fork point is needed only when the path is free; see `is_taken`.
    """
    if existing is not None and is_taken(existing, now_ms):
        if existing.soft_deleted or existing.is_expired(now_ms):
            raise PathReserved(command.path)
        if command.version is not None:
            return ensure(existing, command, now_ms)
        return confirm(existing, command)
    config = _configure(command, fork_point, new_id, now_ms)
    state = StreamState.created(config)
    mutations: list[Mutation] = [Created(config, command.beside, command.shard)]
    if existing is not None and not existing.deleted:
        mutations = [*remove(existing, now_ms, ancestors), *mutations]
    if fork_point is not None:
        mutations.append(ForkCounted(fork_point.source.config.id, +1))
    next_position = state.tail
    if command.body:
        content = _content(config, command, messages_max)
        if content.ids:
            content = content.without_duplicates(config, is_known)
        if content.body:
            append = content.append_to(state, now_ms)
            mutations.append(append)
            next_position = append.end
    if command.closed:
        mutations.append(Closed(config.id, now_ms))
    token = state.token(next_position)
    reply = CreateReply(True, config.content_type, token, command.closed, config)
    return Decision(reply, tuple(mutations))


def expected_config(command: Create) -> StreamConfig:
    """How the body of a PUT is read if it creates a stream that is not a fork."""
    content_type = command.content_type or content_types.DEFAULT
    return StreamConfig(0, command.path, content_type, 0, unique_ids=command.unique_ids)


def _content(config: StreamConfig, command: Create, messages_max: int) -> Content:
    if command.prepared is not None and command.prepared.fits(config):
        return command.prepared.content()
    return read_content(
        config, command.body, command.message_id, creating=True, messages_max=messages_max
    )


def _configure(
    command: Create, fork_point: ForkPoint | None, new_id: int, now_ms: int
) -> StreamConfig:
    if fork_point is None:
        content_type = command.content_type or content_types.DEFAULT
        content_types.check_content_type(content_type)
        lineage = Lineage(new_id)
        return StreamConfig(
            new_id,
            command.path,
            content_type,
            now_ms,
            command.lifetime,
            lineage=lineage,
            version=command.version or 0,
            description=command.description,
            unique_ids=_check_unique_ids(command.unique_ids, content_type),
            retention=command.retention,
            relaxed=command.relaxed,
        )
    source = fork_point.source.config
    content_type = command.content_type or source.content_type
    if not content_types.is_same(content_type, source.content_type):
        raise ContentTypeMismatch(source.content_type, content_type)
    inherits_lifetime = command.lifetime.is_forever
    return StreamConfig(
        id=new_id,
        path=command.path,
        content_type=content_type,
        created_at_ms=now_ms,
        lifetime=source.lifetime if inherits_lifetime else command.lifetime,
        lifetime_inherited=inherits_lifetime,
        lineage=Lineage(new_id, source.lineage.cut_at(fork_point.position)),
        source_id=source.id,
        fork=command.fork,
        base_messages=fork_point.messages,
        version=command.version or 0,
        description=command.description,
        unique_ids=source.unique_ids,
        retention=command.retention,
        relaxed=command.relaxed,
        profile=source.profile,
        kept_from=source.kept_from,
    )


def _check_unique_ids(rule: UniqueIds | None, content_type: str) -> UniqueIds | None:
    if rule is not None and rule.pointer is not None and not content_types.is_json(content_type):
        raise InvalidHeader("Stream-Id-Pointer", "only application/json streams can use one")
    return rule
