"""A PUT to a stream that already exists.

A plain PUT confirms: everything it asks for must match the stream, including whether it is open or
closed, or it is a conflict that names the difference.

Ensure, a PUT with a version number, compares versions first:

- older: nothing changes, and the answer shows the configuration in force;
- equal: what is asked for must match, or it is a conflict that names the differences;
- newer: the requested settings take effect.

The settings are TTL or expiry, retention, durability, description and the answer to duplicates
(`fail` or `succeed`). What a stream holds follows from its content type, from whether and where its
messages have ids, and from its source: no version can change those. Closed is no setting either: a
request for a closed stream has to find one, any other request does not care.

A shorter retention drops data, and an earlier expiry drops all of it. That amounts to deleting, so
a caller that may not delete may not make a stream keep less.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.core import content_types
from headwater.core.decisions.commands import Create, CreateReply
from headwater.core.errors import ConfigConflict, Forbidden
from headwater.core.mutations import Decision, StreamDecision
from headwater.core.retention import KEEP_ALL
from headwater.core.stream import Reconfigured, StreamConfig, StreamState


def confirm(existing: StreamState, command: Create) -> StreamDecision[CreateReply]:
    config = existing.config
    wanted = command.content_type or (None if command.fork else content_types.DEFAULT)
    different = [*_fixed(config, command, wanted), *_settings(config, command)]
    if command.closed != existing.closed:
        different.append("open or closed state")
    return _agree(existing, different)


def ensure(existing: StreamState, command: Create, now_ms: int) -> StreamDecision[CreateReply]:
    config, version = existing.config, command.version
    assert version is not None
    if version < config.version:
        return _agree(existing, [])
    fixed = _fixed(config, command, command.content_type)
    if version == config.version:
        different = [*fixed, *_settings(config, command), *_description(config, command)]
        if command.closed and not existing.closed:
            different.append("open or closed state")
        return _agree(existing, different)
    if fixed:
        raise ConfigConflict(f"{_listed(fixed)}, which no version can change")
    newer = replace(
        config,
        version=version,
        lifetime=command.lifetime,
        lifetime_inherited=False,
        description=command.description,
        retention=command.retention,
        unique_ids=command.unique_ids or config.unique_ids,
        relaxed=command.relaxed,
    )
    if not command.may_drop and _keeps_less(newer, config):
        raise Forbidden("delete")
    reply = _agree(existing, []).reply
    return Decision(
        CreateReply(False, reply.content_type, reply.next_offset, reply.closed, newer),
        (Reconfigured(config.id, now_ms, newer),),
    )


def _keeps_less(newer: StreamConfig, config: StreamConfig) -> bool:
    retention, before = newer.retention or KEEP_ALL, config.retention or KEEP_ALL
    return retention.drops_more_than(before) or newer.lifetime.may_end_before(config.lifetime)


def _agree(existing: StreamState, different: list[str]) -> StreamDecision[CreateReply]:
    if different:
        raise ConfigConflict(_listed(different))
    config = existing.config
    return Decision(
        CreateReply(False, config.content_type, existing.tail_token, existing.closed, config)
    )


def _fixed(config: StreamConfig, command: Create, content_type: str | None) -> list[str]:
    """The fixed properties that differ from what is asked for."""
    different: list[str] = []
    if command.fork != config.fork:
        different.append("fork source or offset")
    if content_type is not None and not content_types.is_same(content_type, config.content_type):
        different.append("content type")
    wanted, there = command.unique_ids, config.unique_ids
    if wanted is None and command.fork is not None:
        return different
    if (wanted is None) != (there is None):
        different.append("unique id checking")
    elif wanted is not None and there is not None and wanted.pointer != there.pointer:
        different.append("id pointer")
    return different


def _settings(config: StreamConfig, command: Create) -> list[str]:
    """The settings that differ from what is asked for."""
    different: list[str] = []
    forever = command.lifetime.is_forever
    inherited = command.fork is not None and forever and config.lifetime_inherited
    if not inherited and not command.lifetime.same_as(config.lifetime):
        different.append("Stream-TTL or Stream-Expires-At")
    if command.retention != config.retention:
        different.append("retention")
    if command.relaxed != config.relaxed:
        different.append("durability")
    wanted, there = command.unique_ids, config.unique_ids
    if wanted is not None and there is not None and wanted.mode != there.mode:
        different.append("answer to duplicate ids")
    return different


def _description(config: StreamConfig, command: Create) -> list[str]:
    return ["description"] if command.description != config.description else []


def _listed(different: list[str]) -> str:
    return " and ".join(different)
