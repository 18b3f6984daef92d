"""A server to test the client against, and both flavours of the client.

The server is Headwater's own, unless `HEADWATER_TEST_URL` names another one: the client has to work
with any server that speaks the protocol.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

import headwater
from headwater.client import AsyncHeadwater, AsyncStream, Headwater, RetryPolicy
from headwater.core.limits import Limits
from tests.client.flavours import in_threads
from tests.support.server import ServerProcess

served = pytest.mark.parametrize("client", ["async", "sync"], indirect=True)
"""For tests that need a server: others connect to it too, or it connects to them."""
IMPATIENT = RetryPolicy(base_delay_s=0.01, max_delay_s=0.05, give_up_after_s=5.0)


@pytest.fixture(scope="session")
def base_url() -> Iterator[str]:
    override = os.environ.get("HEADWATER_TEST_URL")
    if override:
        yield override
        return
    with ServerProcess("--memory") as server:
        yield server.url


@pytest.fixture(params=["async", "sync", "embedded"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[AsyncHeadwater]:
    """A client; tests that use it run once with each flavour, and with a log in this process."""
    if request.param == "embedded":
        async with headwater.open(memory=True, limits=Limits(undelete_grace_s=3_600)) as log:
            yield log
        return
    base_url = request.getfixturevalue("base_url")
    if request.param == "async":
        async with AsyncHeadwater(base_url, retry=IMPATIENT) as client:
            yield client
    else:
        with Headwater(base_url, retry=IMPATIENT) as blocking:
            yield in_threads(blocking)


@pytest.fixture
def new_path() -> str:
    """A path that no other test uses."""
    return f"test/{uuid.uuid4().hex}"


@pytest.fixture
def stream(client: AsyncHeadwater, new_path: str) -> AsyncStream:
    """A handle for a stream that does not exist yet."""
    return client.stream(new_path)


@pytest.fixture
async def json_stream(stream: AsyncStream) -> AsyncStream:
    await stream.create(content_type="application/json")
    return stream


@pytest.fixture
async def text_stream(stream: AsyncStream) -> AsyncStream:
    await stream.create(content_type="text/plain")
    return stream
