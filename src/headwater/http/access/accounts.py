"""Rate limits: an account for each caller, or for each address if callers are unknown."""

from __future__ import annotations

import math
from collections import OrderedDict
from time import monotonic
from typing import Final

from headwater.core.errors import RateExceeded
from headwater.core.limits import Limits
from headwater.core.rates import Account

ACCOUNTS_MAX: Final = 50_000
_LOOK_AT: Final = 64


class Accounts:
    def __init__(self, limits: Limits) -> None:
        self.refusals = 0
        self._limits = limits
        self._accounts: OrderedDict[str, tuple[Account, Account]] = OrderedDict()

    @property
    def counts_bytes(self) -> bool:
        return bool(self._limits.bytes_per_s_max)

    def __len__(self) -> int:
        return len(self._accounts)

    def charge_request(self, name: str, size: int) -> None:
        """Admit a request, or say how long it has to wait."""
        now = monotonic()
        requests, data = self._of(name, now)
        wait_s = max(requests.wait_s(now), data.wait_s(now))
        if wait_s > 0:
            self.refusals += 1
            raise RateExceeded(math.ceil(wait_s))
        requests.charge(1, now)
        data.charge(size, now)

    def charge_bytes(self, name: str, size: int) -> None:
        """Charge the size of an answer."""
        now = monotonic()
        self._of(name, now)[1].charge(size, now)

    def _of(self, name: str, now: float) -> tuple[Account, Account]:
        pair = self._accounts.get(name)
        if pair is None:
            limits = self._limits
            pair = Account(limits.requests_per_s_max, now), Account(limits.bytes_per_s_max, now)
            self._accounts[name] = pair
            if len(self._accounts) > ACCOUNTS_MAX:
                self._forget_some(now)
        else:
            self._accounts.move_to_end(name)
        return pair

    def _forget_some(self, now: float) -> None:
        """Drop full accounts, which hold no information, or else the least recently used."""
        oldest = [name for name, _ in zip(self._accounts, range(_LOOK_AT), strict=False)]
        idle = [name for name in oldest if all(a.is_full(now) for a in self._accounts[name])]
        for name in idle or oldest[:1]:
            del self._accounts[name]
