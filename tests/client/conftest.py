"""A server to test the client against, and both flavours of the client.

The server is Headwater's own, unless `HEADWATER_TEST_URL` names another one: the client has to work
with any server that speaks the protocol.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from headwater.client import AsyncHeadwater, AsyncStream, Headwater, RetryPolicy
from tests.client.flavours import in_threads
from tests.support.server import ServerProcess

IMPATIENT = RetryPolicy(base_delay_s=0.01, max_delay_s=0.05, give_up_after_s=5.0)


@pytest.fixture(scope="session")
def base_url() -> Iterator[str]:
    override = os.environ.get("HEADWATER_TEST_URL")
    if override:
        yield override
        return
    with ServerProcess("--memory") as server:
        yield server.url


@pytest.fixture(params=["async", "sync"])
async def client(request: pytest.FixtureRequest, base_url: str) -> AsyncIterator[AsyncHeadwater]:
    """A client; tests that use it run once with each flavour."""
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
