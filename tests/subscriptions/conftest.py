"""Servers and receivers for tests over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.subscriptions.api import Api
from tests.subscriptions.receiver import TAKEN, Answer, Received, Receiver
from tests.support.engines import SERVED, serving

StartReceiver = Callable[..., Receiver]


@pytest.fixture(scope="module", params=SERVED)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(request.param, tmp_path_factory.mktemp("subscriptions")) as server:
        api = Api(server.url)
        yield api
        api.http.close()


@pytest.fixture
def receive() -> Iterator[StartReceiver]:
    with ExitStack() as stack:

        def start(answer: Answer | Callable[[Received], Answer] = TAKEN) -> Receiver:
            return stack.enter_context(Receiver(answer))

        yield start
