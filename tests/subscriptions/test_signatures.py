"""Signatures and tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.subscriptions.errors import TokenInvalid
from headwater.core.subscriptions.signatures import SigningKey, make_token, read_token

SECRET = b"s" * 32
numbers = st.integers(0, 2**53 - 1)


def test_a_known_key_signs_as_others_do() -> None:
    """The key pair of RFC 8037, appendix A, whose thumbprint is given there as well."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = SigningKey(seed)
    assert key.jwk["x"] == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert key.kid == "ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    header = key.signature(b"{}", 1_700_000_000)
    assert header.startswith(f"t=1700000000,kid={key.kid},ed25519=")
    assert "=" not in header.rpartition("ed25519=")[2]


@given(numbers, numbers)
def test_a_token_is_good_for_its_subscription_and_generation(
    subscription_id: int, generation: int
) -> None:
    token = make_token(SECRET, subscription_id, generation)
    assert read_token(SECRET, subscription_id, token) == generation
    with pytest.raises(TokenInvalid):
        read_token(SECRET, subscription_id + 1, token)
    with pytest.raises(TokenInvalid):
        read_token(b"t" * 32, subscription_id, token)


@given(st.text(max_size=60) | st.from_regex(r"[0-9a-f]{1,20}\.[A-Za-z0-9_-]{0,60}"))
def test_nobody_makes_up_a_token(text: str) -> None:
    with pytest.raises(TokenInvalid):
        read_token(SECRET, 1, text)


@given(numbers, numbers)
def test_the_generation_of_a_token_cannot_be_changed(generation: int, other: int) -> None:
    token = make_token(SECRET, 1, generation)
    forged = f"{other:x}.{token.partition('.')[2]}"
    if other != generation:
        with pytest.raises(TokenInvalid):
            read_token(SECRET, 1, forged)


@pytest.mark.parametrize("spelling", ["0{}", " {}", "{} ", "+{}"])
def test_there_is_one_way_to_write_a_token(spelling: str) -> None:
    with pytest.raises(TokenInvalid):
        read_token(SECRET, 1, spelling.format(make_token(SECRET, 1, 5)))
