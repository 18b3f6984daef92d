"""How nodes of a cluster authenticate each other, without revealing anything to strangers.

All nodes share one secret, from their database. It is never sent.

- A node that connects to another first asks for a *proof*: it sends a random challenge, and the
  other answers with a keyed hash of the challenge and its own number. A stranger at a node's
  address cannot answer, nor can a node of another cluster, nor one that took over the address of a
  node that is gone. No client data is sent before that.
- It then presents a *pass* to the node that proved itself: a keyed hash of that node's number. It
  is valid for that node only. Numbers are never reused, so it ends with the node.

Only TLS protects against someone who can modify traffic between two nodes.
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
