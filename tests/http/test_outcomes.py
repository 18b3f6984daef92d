"""Failed requests: what they held is free at once, not when the collector comes by."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from headwater.core.errors import InvalidJson
from headwater.http.messages import Request
from headwater.http.wire.outcomes import as_is, outcome


class Body:
    """Stands for something large."""


@pytest.mark.parametrize("expected", [True, False], ids=["refused", "unexpected"])
async def test_nothing_is_kept_of_a_failed_request(expected: bool) -> None:
    body = Body()
    kept = weakref.ref(body)

    async def handle(body: Body) -> None:
        try:
            raise KeyError("the cause")
        except KeyError:
            assert body is not None
            raise (InvalidJson("not valid") if expected else RuntimeError("a mistake")) from None

    gc.disable()
    try:
        task = asyncio.create_task(handle(body))
        await asyncio.wait([task])
        response = outcome(task, as_is, Request("POST", b"/", b"", {}))
        del task, body
        assert kept() is None
    finally:
        gc.enable()
    assert getattr(response, "status", None) == (400 if expected else 500)
