"""What a node answers while it does not know whether another one has taken over."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core.errors import StorageUnavailable
from headwater.http.messages import Request, Response
from headwater.http.nodes.leases import Leased
from headwater.http.wire.outcomes import resolved


class LostLease:
    is_good = False

    def renew(self) -> None:
        raise StorageUnavailable("the database is away")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/stream/a"])
async def test_without_a_lease_a_node_speaks_only_of_itself(path: str) -> None:
    known = Response(200, [])
    leased = Leased(lambda _: known, LostLease(), asyncio.to_thread)
    answer = leased(Request("GET", path.encode(), b"", {}))
    if path.startswith("/v1/"):
        with pytest.raises(StorageUnavailable):
            await resolved(answer)
    else:
        assert await resolved(answer) is known
