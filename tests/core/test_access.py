"""Grants, keys, signed addresses and rates: the pure part of access."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.access import Caller, Credential, Grants, Permission, parse_grants, signed
from headwater.core.access.grants import GrantsText, read_only
from headwater.core.access.keys import (
    KeyBook,
    KeyRecord,
    digest_of,
    format_key,
    id_of,
    proves,
)
from headwater.core.errors import Forbidden, InvalidRequest
from headwater.core.limits import PATTERNS_MAX, SIGNED_SECONDS_MAX
from headwater.core.patterns import InvalidPattern
from headwater.core.rates import Account

READ, WRITE, DELETE = Permission.READ, Permission.WRITE, Permission.DELETE


# ── Grants ───────────────────────────────────────────────────────────────────────────────────


def test_no_permission_includes_another_and_admin_is_all() -> None:
    grants = parse_grants({"read": ["r"], "write": ["w"], "delete": ["d"], "admin": ["a/**"]})
    allowed = {
        (permission, name)
        for permission in (READ, WRITE, DELETE)
        for name in ("r", "w", "d", "a/x", "a")
        if grants.allow(permission, name)
    }
    of_admin = {(READ, "a/x"), (WRITE, "a/x"), (DELETE, "a/x")}
    assert allowed == {(READ, "r"), (WRITE, "w"), (DELETE, "d"), *of_admin}


def test_keys_of_the_first_version_may_delete_what_they_may_write() -> None:
    old = GrantsText(read=["r"], write=["w", "x/**"])
    book = KeyBook([KeyRecord("0" * 12, "0" * 64, 0, old)], version=1)
    assert book.current().keys[0].grants == GrantsText(["r"], ["w", "x/**"], ["w", "x/**"])
    assert book.current().version == 2
    assert book.current().current() == book.current()
    new = KeyBook([KeyRecord("0" * 12, "0" * 64, 0, old)])
    assert new.current() is new


@pytest.mark.parametrize(
    "grants, may",
    [
        ({"read": ["s"]}, False),
        ({"write": ["s"]}, False),
        ({"write": ["s/_groups/g"]}, False),
        ({"read": ["s"], "write": ["s"]}, True),
        ({"read": ["s"], "write": ["s/_groups/g"]}, True),
        ({"read": ["s"], "write": ["s/_groups/*"]}, True),
        ({"read": ["s"], "write": ["s/_groups/h"]}, False),
        ({"admin": ["s"]}, True),
    ],
)
def test_using_a_group_needs_reading_and_writing_it(
    grants: dict[str, list[str]], may: bool
) -> None:
    assert parse_grants(grants).allow_group("s", "g") is may


@pytest.mark.parametrize("pattern, may", [("**", True), (">", True), ("*", False), ("a/**", False)])
def test_the_server_needs_admin_over_everything(pattern: str, may: bool) -> None:
    assert parse_grants({"admin": [pattern]}).administer_server is may
    assert not parse_grants({"read": [pattern], "write": [pattern]}).administer_server


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "read",
        {"reads": ["a"]},
        {"read": "a"},
        {"read": [1]},
        {"read": ["a*"]},
        {"read": ["a"] * (PATTERNS_MAX + 1)},
    ],
)
def test_what_are_no_grants(value: object) -> None:
    with pytest.raises(InvalidPattern):
        parse_grants(value)


def test_prefixes_are_sorted_and_none_is_inside_another() -> None:
    grants = parse_grants({"read": ["b/**", "a", "b/c/*"], "admin": ["ab/*", "b.x"]})
    assert grants.readable_prefixes() == ["a", "b.x", "b/"]
    assert parse_grants({"read": ["*", "a"]}).readable_prefixes() == [""]
    assert Grants().readable_prefixes() == []


# ── Callers ──────────────────────────────────────────────────────────────────────────────────


def test_a_caller_ends_at_its_moment_and_with_its_credential() -> None:
    caller = Caller("c", Grants(), Credential(), expires_at_ms=100)
    assert caller.is_valid(99)
    assert not caller.is_valid(100)
    lasting = Caller("c", Grants(), Credential())
    assert lasting.is_valid(10**15)
    lasting.credential.ended = True
    assert not lasting.is_valid(0)


def test_a_refusal_says_what_is_lacking_and_not_where() -> None:
    caller = Caller("c", parse_grants({"read": ["public"]}), Credential())
    with pytest.raises(Forbidden) as refusal:
        caller.demand(WRITE, "secret-name")
    assert refusal.value.permission == "write"
    assert "secret-name" not in refusal.value.message


# ── Keys ─────────────────────────────────────────────────────────────────────────────────────


def record_of(key: str, key_id: str) -> KeyRecord:
    return KeyRecord(key_id, digest_of(key), 0, parse_grants({"read": ["a"]}).text())


def test_a_key_proves_itself_and_no_other() -> None:
    key_id, key = format_key(b"\x01" * 6, b"\x02" * 32)
    other_id, other = format_key(b"\x01" * 6, b"\x03" * 32)
    assert key_id == other_id == id_of(key)
    assert proves(key, record_of(key, key_id))
    assert not proves(other, record_of(key, key_id))
    assert not proves(key, None)


@pytest.mark.parametrize("token", ["", "hw_", "hw_0123456789ab_", "hw_xyz_" + "a" * 43, "Bearer"])
def test_what_is_no_key_has_no_id(token: str) -> None:
    assert id_of(token) is None


def test_a_record_shows_nothing_of_the_key() -> None:
    key_id, key = format_key(b"\x01" * 6, b"\x02" * 32)
    record = record_of(key, key_id)
    assert record.digest not in repr(record)
    assert key not in repr(record)


# ── Signed addresses ─────────────────────────────────────────────────────────────────────────

SECRET = b"s" * 32


@given(st.text(min_size=1), st.integers(0, 10**12), st.sampled_from(["", "0123456789ab"]))
def test_what_was_signed_is_recognised(path: str, expires: int, key_id: str) -> None:
    signature = signed.sign(SECRET, path, expires, key_id)
    claim = signed.Claim(str(expires), key_id, signature)
    assert signed.verify(SECRET, path, claim) == expires
    assert signed.verify(b"t" * 32, path, claim) is None
    assert signed.verify(SECRET, path + "x", claim) is None
    assert signed.verify(SECRET, path, claim._replace(expires=str(expires + 1))) is None
    assert signed.verify(SECRET, path, claim._replace(key_id="ffffffffffff")) is None


@given(st.text(), st.text(), st.text())
def test_anything_else_is_refused_and_does_no_harm(expires: str, key: str, sign: str) -> None:
    assert signed.verify(SECRET, "a", signed.Claim(expires, key, sign)) is None


def test_parts_cannot_be_shifted_between_fields() -> None:
    assert signed.sign(SECRET, "bc", 1, "a") != signed.sign(SECRET, "c", 1, "ab")
    assert signed.sign(SECRET, "2c", 1, "") != signed.sign(SECRET, "c", 12, "")


@pytest.mark.parametrize("seconds", [0, -1, SIGNED_SECONDS_MAX + 1])
def test_how_long_an_address_can_last(seconds: int) -> None:
    with pytest.raises(InvalidRequest):
        signed.check_duration(seconds)
    assert signed.check_duration(SIGNED_SECONDS_MAX) == SIGNED_SECONDS_MAX


def test_an_address_reads_one_stream() -> None:
    grants = read_only("a.*")
    assert grants.allow(READ, "a.*")
    assert not grants.allow(READ, "a.b")
    assert not grants.allow(WRITE, "a.*")


# ── Rates ────────────────────────────────────────────────────────────────────────────────────


def test_a_burst_and_then_one_at_a_time() -> None:
    account = Account(2, now_s=0.0)
    for _ in range(2):
        assert account.wait_s(0.0) == 0
        account.charge(1, 0.0)
    assert account.wait_s(0.0) == 0.5
    assert account.wait_s(0.25) == 0.25
    assert account.wait_s(0.5) == 0


def test_an_overdraft_is_paid_back() -> None:
    account = Account(100, now_s=0.0)
    account.charge(1_100, 0.0)
    assert account.wait_s(0.0) == pytest.approx(10.01)
    assert not account.is_full(10.5)
    assert account.is_full(11.0)


def test_without_a_rate_there_is_no_limit() -> None:
    account = Account(0, now_s=0.0)
    account.charge(10**9, 0.0)
    assert account.wait_s(0.0) == 0
    assert account.is_full(0.0)


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 5000)), max_size=30),
)
def test_waiting_as_long_as_told_is_always_enough(
    rate: int, steps: list[tuple[float, float]]
) -> None:
    account, now = Account(rate, 0.0), 0.0
    for pause, cost in steps:
        now += pause
        wait = account.wait_s(now)
        if wait:
            now += wait + 1e-6
            assert account.wait_s(now) == 0
        account.charge(cost, now)


@given(st.integers(1, 100), st.lists(st.floats(0, 3), max_size=50))
def test_nobody_gets_more_than_the_rate_and_one_burst(rate: int, pauses: list[float]) -> None:
    account, now, served = Account(rate, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        while not account.wait_s(now):
            account.charge(1, now)
            served += 1
    assert served <= rate + rate * now + 1e-6
