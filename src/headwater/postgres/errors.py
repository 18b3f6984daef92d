"""Errors between PostgreSQL and a stream, each with one line that says what to do.

    PostgresError
    ├── NotConnected       no connection, or it was lost
    ├── NotPrepared        a setting, a privilege, a slot or a publication is missing
    ├── SlotInUse          somebody else reads from the slot now
    ├── SlotLost           PostgreSQL has thrown away what the slot still needed
    ├── StreamUnfit        the stream cannot take the changes of this database
    └── BadMessage         PostgreSQL sent something that the protocol does not allow

`NotConnected` and `SlotInUse` are transient; the others need a person. No message ever contains a
password: driver messages go through `without_secret` first.
"""

from __future__ import annotations

from collections.abc import Iterable


class PostgresError(Exception):
    """Base of everything that this package raises on purpose."""


class NotConnected(PostgresError):
    """PostgreSQL cannot be reached, or no longer."""


class NotPrepared(PostgresError):
    """The database is not set up for this."""


class SlotInUse(PostgresError):
    """Only one reader at a time may use a replication slot."""


class SlotLost(PostgresError):
    """The slot exists, but changes after it are gone."""


class StreamUnfit(PostgresError):
    """The stream does not fit what is to be appended."""


class BadMessage(PostgresError):
    """Bytes that are not a message of the replication protocol."""


def without_secret(text: str, secrets: Iterable[str]) -> str:
    """One line of text in which no secret is left.

    >>> without_secret('wrong password "hush"', ["hush"])
    'wrong password "***"'
    """
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return " ".join(text.split())
