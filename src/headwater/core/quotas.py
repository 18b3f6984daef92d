"""Quotas: how much one part of the namespace may hold.

A quota is written `tenants/*: streams=1000 bytes=10GiB producers=5000`; several are separated by
`;`. Before the colon is a sequence of segments, in which `*` matches any one. Every stream whose
path begins with such segments counts towards the *account* named by them: with `tenants/*`, the
streams `tenants/acme` and `tenants/acme/orders/eu` count towards `tenants/acme`, and each tenant
has its own account. `**` is one account for all streams. A stream may count towards several quotas,
and must satisfy all of them.

- `streams`: existing streams.
- `bytes`: the bytes they keep. A fork counts what was appended to it, not what it inherits, and a
  deleted stream that forks still need counts its bytes. Data dropped by retention does not count,
  nor do deleted streams that can be undeleted: of those, an account may hold the same amount again.
- `producers`: the producers that those streams know.

A change that would exceed a quota is refused as a whole; a change that frees space, such as a
deletion, never is. A change counts from when it is accepted, so that no two can take the last
place, and stops counting if it could not be committed.

In a cluster, no node knows what the others accept. The database counts what an account holds, and a
node uses that count for a second (`Estimate`): it may give away its share of a quarter of the free
space without asking again. Beyond that, the database counts again, and that decides. So sequential
changes meet the limit exactly; concurrent ones may exceed it by what the other nodes accept
meanwhile, within their shares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from headwater.core.errors import QuotaExceeded

_UNITS: Final = {
    "": 1,
    **{f"{unit}B": 1000**power for power, unit in enumerate(("k", "M", "G", "T"), 1)},
    **{f"{unit}iB": 1024**power for power, unit in enumerate(("K", "M", "G", "T"), 1)},
}
_LIMIT: Final = re.compile(r"(streams|bytes|producers)=([0-9]{1,15})([A-Za-z]{0,3})")
_SEGMENTS: Final = re.compile(
    r"\*\*|[A-Za-z0-9\-._~!$&'()*+,;=:@%]+(/[A-Za-z0-9\-._~!$&'()*+,;=@%]+)*"
)


@dataclass(frozen=True, slots=True)
class Quota:
    segments: tuple[str, ...]
    """Empty: all streams count towards one account."""
    limits: dict[str, int]

    def account_of(self, path: str) -> str | None:
        """The account that a stream counts towards; None if there is none."""
        given = path.split("/")[: len(self.segments)]
        if len(given) < len(self.segments):
            return None
        fits = all(own in ("*", one) for own, one in zip(self.segments, given, strict=True))
        return "/".join(given) if fits else None


def parse_quotas(setting: str) -> tuple[Quota, ...]:
    return tuple(_parse(text.strip()) for text in setting.split(";") if text.strip())


def _parse(text: str) -> Quota:
    where, _, rest = text.rpartition(":")
    limits = {}
    for word in rest.split():
        found = _LIMIT.fullmatch(word)
        if found is None or found[3] not in _UNITS or (found[3] and found[1] != "bytes"):
            raise ValueError(f"{word!r}: write streams=100, bytes=10GiB or producers=1000")
        limits[found[1]] = int(found[2]) * _UNITS[found[3]]
    if not limits or _SEGMENTS.fullmatch(where.strip()) is None:
        raise ValueError(f"{text!r} is not a quota; write tenants/*: streams=100 bytes=10GiB")
    segments = () if where.strip() == "**" else tuple(where.strip().split("/"))
    return Quota(segments, limits)


@dataclass(slots=True)
class Amount:
    """What one stream, one change or one account uses."""

    streams: int = 0
    bytes: int = 0
    producers: int = 0

    def add(self, other: Amount, times: int = 1) -> None:
        self.streams += times * other.streams
        self.bytes += times * other.bytes
        self.producers += times * other.producers


@dataclass(slots=True)
class _Account:
    key: tuple[int, str]
    """The index of the quota, and the account's name."""
    limits: dict[str, int]
    used: Amount = field(default_factory=Amount)
    holdings: int = 0


@dataclass(slots=True)
class _Holding:
    """A stream, and the accounts it counts towards."""

    accounts: tuple[_Account, ...]
    amount: Amount = field(default_factory=Amount)


class Ledger:
    """What every account holds. Every operation takes constant time."""

    def __init__(self, quotas: tuple[Quota, ...]) -> None:
        self._quotas = quotas
        self._accounts: dict[tuple[int, str], _Account] = {}
        self._holdings: dict[int, _Holding] = {}

    def open(self, stream_id: int, path: str) -> None:
        """Add a stream. It counts once something is charged to it."""
        accounts = []
        for number, quota in enumerate(self._quotas):
            name = quota.account_of(path)
            if name is not None:
                key = (number, name)
                account = self._accounts.setdefault(key, _Account(key, quota.limits))
                account.holdings += 1
                accounts.append(account)
        if accounts:
            self._holdings[stream_id] = _Holding(tuple(accounts))

    def admit(self, stream_id: int, amount: Amount) -> None:
        """Charge a stream for a change, or raise the quota that it would exceed."""
        holding = self._holdings.get(stream_id)
        if holding is None:
            return
        for account in holding.accounts:
            for kind, limit in account.limits.items():
                more = getattr(amount, kind)
                if more > 0 and getattr(account.used, kind) + more > limit:
                    raise QuotaExceeded(kind, account.key[1], limit)
        self.charge(stream_id, amount)

    def charge(self, stream_id: int, amount: Amount, times: int = 1) -> None:
        holding = self._holdings.get(stream_id)
        if holding is not None:
            holding.amount.add(amount, times)
            for account in holding.accounts:
                account.used.add(amount, times)

    def keeps(self, stream_id: int, size: int) -> None:
        """A stream keeps at most this many bytes from now on."""
        holding = self._holdings.get(stream_id)
        if holding is not None and holding.amount.bytes > size:
            self.charge(stream_id, Amount(bytes=size - holding.amount.bytes))

    def forget_producers(self, stream_id: int, count: int) -> None:
        """A stream knows `count` fewer producers."""
        holding = self._holdings.get(stream_id)
        if holding is not None:
            # A deleted stream no longer counts its producers.
            self.charge(stream_id, Amount(producers=min(count, holding.amount.producers)), -1)

    def hide(self, stream_id: int) -> None:
        """A stream is deleted, but its forks still need what it holds."""
        holding = self._holdings.get(stream_id)
        if holding is not None:
            gone = Amount(holding.amount.streams, 0, holding.amount.producers)
            self.charge(stream_id, gone, -1)

    def close(self, stream_id: int) -> None:
        """A stream is gone, and no longer counts."""
        holding = self._holdings.pop(stream_id, None)
        if holding is None:
            return
        for account in holding.accounts:
            account.used.add(holding.amount, -1)
            account.holdings -= 1
            if not account.holdings:
                del self._accounts[account.key]

    def held(self, stream_id: int) -> int:
        """How many bytes a stream counts for."""
        holding = self._holdings.get(stream_id)
        return 0 if holding is None else holding.amount.bytes

    def used(self, number: int, name: str) -> Amount:
        """What an account of a quota holds."""
        account = self._accounts.get((number, name))
        return Amount() if account is None else account.used


GOOD_FOR_S: Final = 1.0
LONG_S: Final = 0.1
REST: Final = 10
SHARE: Final = 4
"""All nodes together may give away one part in this many of the free space without asking."""


class Estimate:
    """What an account holds in a cluster, as one node knows it."""

    def __init__(self, limits: dict[str, int], account: str = "") -> None:
        self._limits = limits
        self._account = account
        self._total = Amount()
        self._kept_bytes = 0
        self._since = Amount()
        """What this node accepted since the count, or had in flight during it."""
        self._uncommitted = Amount()
        self._good_until_s = self._refusing_until_s = -1.0
        self._is_decisive = False

    def asking(self) -> None:
        """The database is about to count. It may or may not see changes in flight."""
        self._since = Amount()
        self._since.add(self._uncommitted)

    def counted(self, total: Amount, kept_bytes: int, now_s: float, took_s: float) -> None:
        """The database has counted, which took `took_s`; it is not asked again all the time."""
        self._total, self._kept_bytes = total, kept_bytes
        self._good_until_s = now_s + max(GOOD_FOR_S, REST * took_s)
        self._refusing_until_s = now_s + REST * took_s if took_s > LONG_S else now_s
        self._is_decisive = True

    def admits(self, more: Amount, nodes: int, now_s: float) -> bool:
        """Whether a change may be made; False if the database has to count first. Raises
        QuotaExceeded if it may not.
        """
        for kind, limit in self._limits.items():
            wanted = getattr(more, kind)
            if wanted <= 0:
                continue
            given = getattr(self._since, kind) + wanted
            room = limit - getattr(self._total, kind)
            if now_s < self._good_until_s and given <= room // (SHARE * nodes):
                continue
            if now_s >= self._good_until_s or not self._is_decisive:
                return False
            if given > room:
                # The next one may come after a deletion.
                self._is_decisive = now_s < self._refusing_until_s
                raise QuotaExceeded(kind, self._account, limit)
        return True

    def accept(self, more: Amount) -> None:
        # A count decides once. After that, others may have used the free space it showed.
        self._is_decisive = False
        self._since.add(more)
        self._uncommitted.add(more)

    def settle(self, amount: Amount) -> None:
        """An accepted change was committed, or never will be."""
        self._uncommitted.add(amount, -1)

    def may_keep(self, size: int) -> bool:
        """Whether this much deleted data may be kept: as much as the account may hold."""
        limit = self._limits.get("bytes")
        return limit is None or self._kept_bytes + size <= limit
