"""How nodes know each other."""

from __future__ import annotations

from headwater.core import peers

SECRET = b"s" * 64
CHALLENGE = b"0" * 32


def test_a_proof_is_good_for_one_challenge_one_node_and_one_cluster() -> None:
    proof = peers.proof(SECRET, CHALLENGE, 3)
    assert peers.is_proved(proof, SECRET, CHALLENGE, 3)
    assert not peers.is_proved(proof, SECRET, CHALLENGE, 4)
    assert not peers.is_proved(proof, SECRET, b"1" * 32, 3)
    assert not peers.is_proved(proof, b"t" * 64, CHALLENGE, 3)
    assert not peers.is_proved(b"", SECRET, CHALLENGE, 3)


def test_a_pass_is_good_for_one_node_and_no_challenge_gets_one() -> None:
    passes = {peers.pass_for(SECRET, node_id) for node_id in range(50)}
    assert len(passes) == 50
    assert peers.proof(SECRET, b"", 3) not in passes
    assert SECRET not in passes


def test_what_a_challenge_looks_like() -> None:
    assert peers.is_challenge(CHALLENGE)
    for wrong in (b"", b"0" * 31, b"0" * 33, b"G" * 32, b"0" * 31 + b"\n"):
        assert not peers.is_challenge(wrong)
