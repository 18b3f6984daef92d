"""Whatever fits the description gets an answer that fits it too, and never a 5xx.

Schemathesis makes the requests. A few streams and a group are there for them to meet.
`OPENAPI_EXAMPLES=500 pytest tests/observe/test_openapi_answers.py` makes more of them.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headwater.http.routes import openapi
from tests.http.client import JSON, TEXT, Client
from tests.support import seeds
from tests.support.server import ServerProcess

EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "0"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Waits that somebody asks for would be waited for.
WAIT_MS_MAX = 20
HASTY = ("--long-poll-timeout-ms", "20", "--sse-lifetime-ms", "100", "--producer-wait-ms", "2")

LIVE = b'{"profile": {"kind": "state-protocol", "touch": {"enabled": true}}}'
SUBSCRIPTION = b'{"type": "pull-wake", "pattern": "json", "wake_stream": "wakes"}'

Case = schemathesis.Case[Any]
schema = schemathesis.openapi.from_dict(openapi.describe())


@pytest.fixture(scope="module")
def target() -> Any:
    with ServerProcess("--memory", "--documents", *HASTY) as server:
        client = Client(server)
        client.put("texts", TEXT, b"first")
        client.put("closed", {**TEXT, "Stream-Closed": "true"}, b"only")
        client.put("json", JSON, b'[{"id": 1}, {"id": 2}]')
        client.send("PUT", "/v1/stream/json/_groups/g", JSON, b"{}")
        client.put("live", JSON)
        client.send("POST", "/v1/stream/live/_profile", JSON, LIVE)
        client.send("PUT", "/v1/stream/__ds/subscriptions/s", JSON, SUBSCRIPTION)
        client.send("PUT", "/v1/yjs/notes/docs/a")
        yield server
        assert server.is_running
        assert "Traceback" not in server.stderr


@schema.parametrize()
@settings(
    max_examples=EXAMPLES or 12,
    derandomize=not (EXAMPLES or seeds.EXPLORED),
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_answers_fit_the_description(case: Case, target: ServerProcess) -> None:
    _meet_something(case)
    _be_brief(case)
    answer = case.call(base_url=target.url)
    case.validate_response(answer, checks=CHECKS)


def _meet_something(case: Case) -> None:
    """Most paths would lead nowhere: let some lead to what is there."""
    parameters = case.path_parameters or {}
    things = {"path": ["texts", "closed", "json", "live"], "group": ["g"], "subscription": ["s"]}
    for name, known in things.items():
        value = parameters.get(name)
        if isinstance(value, str) and (choice := len(value) % 5) < 4:
            parameters[name] = known[choice % len(known)]


def _be_brief(case: Case) -> None:
    body: Any = case.body
    if isinstance(body, dict) and isinstance(body.get("wait_ms"), int):
        body["wait_ms"] = min(body["wait_ms"], WAIT_MS_MAX)
    if isinstance(body, dict) and case.operation.path.endswith("touch/wait"):
        wait_ms = body.setdefault("timeoutMs", WAIT_MS_MAX)
        if isinstance(wait_ms, int):
            body["timeoutMs"] = min(wait_ms, WAIT_MS_MAX)
