"""How nodes of a cluster know each other, without telling a stranger anything of use.

All nodes have one secret, from their database. It is never sent.

- Who connects to a node asks for a *proof* first: it sends a random challenge, and the node answers
  with what only the secret makes of the challenge and the node's number. A stranger at the address
  of a node cannot answer, nor can a node of another cluster, nor one that has taken the address of
  a node that is gone. Until then nothing of any client has been sent.
- Whoever has proved itself is shown a *pass*: what the secret makes of the number of that node. It
  opens that node only. Numbers are never given out twice, so it ends with the node.

Against somebody who can change what is sent between two nodes, only TLS helps.
"""

from __future__ import annotations

import re
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Final

CHALLENGE_BYTES: Final = 16
_CHALLENGE: Final = re.compile(rb"[0-9a-f]{32}")


def is_challenge(text: bytes) -> bool:
    return _CHALLENGE.fullmatch(text) is not None


def proof(secret: bytes, challenge: bytes, node_id: int) -> bytes:
    return _made_of(secret, b"proof", challenge, node_id)


def pass_for(secret: bytes, node_id: int) -> bytes:
    return _made_of(secret, b"pass", b"", node_id)


def is_proved(found: bytes, secret: bytes, challenge: bytes, node_id: int) -> bool:
    return compare_digest(found, proof(secret, challenge, node_id))


def _made_of(secret: bytes, what: bytes, challenge: bytes, node_id: int) -> bytes:
    return digest(secret, b"headwater %b %d %b" % (what, node_id, challenge), sha256).hex().encode()
