"""Who may do what with which streams.

A *caller* (a key, a token or a signed address) has *grants*: four lists of patterns, for `read`,
`write`, `delete` and `admin`.

- `read` lets a caller read the streams whose names match, and see that they are there.
- `write` lets it create, append to and close them, and ask for their type and their end, which a
  writer has to know. It lets it neither read nor delete.
- `delete` lets it delete them, and what is kept of them.
- `admin` is all of these. What belongs to the server as a whole and not to a stream needs `admin`
  over everything, the pattern `**`.

Using a consumer group shows its messages to the caller and takes them from others. So it needs
`read` on the stream, and `write` on the stream or on the group by its own name,
`orders/_groups/kitchen`: a worker can be kept from appending.

What a caller may not do is refused before anything is looked up. Whether a stream is there makes
no difference to the answer.
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
