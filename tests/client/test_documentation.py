"""What the documentation shows works."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from headwater import client as api
from headwater.client import AsyncHeadwater, Headwater
from tests.client import snippets

HOWTO = Path(__file__).parent.parent.parent / "docs" / "howto"
GUIDE = HOWTO / "client.md"
MODULES = [f"{api.__name__}.{module.name}" for module in pkgutil.iter_modules(api.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    results = doctest.testmod(importlib.import_module(name), optionflags=options)
    assert results.failed == 0


def test_the_guide_names_every_public_class_it_uses() -> None:
    page = GUIDE.read_text()
    for name in ("Headwater", "RetryPolicy", "Timeouts", "MaterializedState", "AsyncHeadwater"):
        assert name in page


EXAMPLES = [
    pytest.param(code, id=f"{owner.__name__}-{number}")
    for owner in (
        api,
        *(api.Headwater, api.Stream, api.Reader, api.Producer),
        *(api.Group, api.Consumer, api.Message, api.Transaction, api.Subscription, api.Claim),
        *(api.AsyncHeadwater, api.AsyncStream, api.AsyncReader, api.AsyncProducer),
        *(api.AsyncGroup, api.AsyncConsumer, api.AsyncMessage, api.AsyncTransaction),
        *(api.LiveStream, api.AsyncLiveStream),
        *(api.AsyncSubscription, api.AsyncClaim, api.MaterializedState),
    )
    for number, code in enumerate(snippets.indented(owner.__doc__ or ""))
]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("code", EXAMPLES)
async def test_examples_in_docstrings(code: str, base_url: str, new_path: str) -> None:
    code = code.replace('"orders"', f'"{new_path}"').replace('"greetings"', f'"{new_path}"')
    subscription = f"sub-{new_path.replace('/', '-')}"
    code = code.replace('"mail"', f'"{subscription}"')
    is_async = "async" in code or "await" in code

    async def async_handle(message: Any) -> None: ...

    with Headwater(base_url) as blocking:
        stream = blocking.stream(f"{new_path}-example")
        stream.create(content_type="application/json")
        record = {"type": "t", "key": "k", "value": 1, "headers": {"operation": "insert"}}
        saved_position = stream.append(record).next_offset
        stream.append(record)
        stream.group("workers").ensure()
        if "claim" in code:
            wakes = f"{new_path}-wakes"
            blocking.subscription(subscription).create(pattern=new_path, wake_stream=wakes)
            blocking.stream(new_path).create(content_type="application/json", data=1)
        if "transaction" in code:
            blocking.stream(new_path).ensure(content_type="application/json")
        namespace: dict[str, Any] = {
            "Headwater": Headwater,
            "AsyncHeadwater": AsyncHeadwater,
            "saved_position": saved_position,
            "orders": [{"id": 1}, {"id": 2}],
            "save": lambda text: None,
            "state": api.MaterializedState(),
            "handle": async_handle if is_async else lambda message: None,
        }
        if "producer" not in code:
            stream.close()
        if not is_async:
            namespace |= {"client": blocking, "stream": stream}
            await asyncio.to_thread(run_blocking, code, base_url, namespace)
            return
        async with AsyncHeadwater(base_url) as client:
            namespace |= {"client": client, "stream": client.stream(stream.path)}
            await snippets.run(code, base_url, namespace)


def run_blocking(code: str, url: str, namespace: dict[str, Any]) -> None:
    exec(code.replace(snippets.SERVER, url), namespace)
