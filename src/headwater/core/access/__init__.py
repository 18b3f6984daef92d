"""Access control: who may do what to which streams.

A *caller* (a key, a token or a signed address) has *grants*: four lists of patterns, for `read`,
`write`, `delete` and `admin`.

- `read` lets a caller read the streams whose names match, and see that they exist.
- `write` lets it create, append to and close them, and query their type and tail, which a writer
  needs. It does not let it read or delete.
- `delete` lets it delete them, clear them, and delete their snapshots.
- `admin` includes all of these. Operations on the server as a whole, not on a stream, need `admin`
  over everything, the pattern `**`.

Using a consumer group shows its messages to the caller and takes them from others. So it needs
`read` on the stream, and `write` on the stream or on the group by its own name,
`orders/_groups/kitchen`: that way a worker need not be allowed to append.

A forbidden request is refused before anything is looked up, so the answer does not reveal whether a
stream exists.
"""

from headwater.core.access.callers import Caller, Credential
from headwater.core.access.grants import Grants, Permission, parse_grants

__all__ = [
    "Caller",
    "Credential",
    "Grants",
    "Permission",
    "parse_grants",
]
