"""What pipelines say about themselves."""

from __future__ import annotations

import json

import pytest

from tests.http.client import Client, error_code

PIPELINES = "/v1/pipelines"
REPORT = {
    "name": "archive-orders",
    "kind": "archive",
    "batch": 3,
    "rows": 1200,
    "rows_per_s": 412.5,
    "batch_ms": 900,
    "lag_messages": 7,
    "lag_s": 0.4,
}


def report(client: Client, **changes: object) -> int:
    body = json.dumps({**REPORT, **changes}).encode()
    return client.send("POST", PIPELINES, body=body).status


def test_the_last_report_of_each_is_shown(client: Client) -> None:
    assert report(client, name="b", batch=1) == 204
    assert report(client, name="a") == 204
    assert report(client, name="b", batch=2, lag_s=None, lag_messages=None) == 204
    shown = [one for one in client.json(PIPELINES)["pipelines"] if one["name"] in "ab"]
    assert [(one["name"], one["batch"], one["lag_s"]) for one in shown] == [
        ("a", 3, 0.4),
        ("b", 2, None),
    ]
    assert all(one["reported"] > 1_700_000_000_000 for one in shown)


def test_metrics_to_alert_on(client: Client) -> None:
    report(client, name="late", lag_messages=9, lag_s=31.5, state="paused", quarantined=4)
    report(client, name="broken", lag_messages=None, error="no", state="failing")
    lines = client.send("GET", "/metrics").body.decode().splitlines()
    for figure in (
        'pipeline_lag_messages{pipeline="late"} 9.0',
        'pipeline_lag_seconds{pipeline="late"} 31.5',
        'pipeline_paused{pipeline="late"} 1.0',
        'pipeline_quarantined_messages{pipeline="late"} 4.0',
        'pipeline_failing{pipeline="late"} 0.0',
        'pipeline_failing{pipeline="broken"} 1.0',
        'pipeline_lag_messages{pipeline="broken"} 0.0',
    ):
        assert f"headwater_{figure}" in lines
    (at,) = (one for one in lines if 'reported_timestamp_seconds{pipeline="late"}' in one)
    assert float(at.split()[1]) > 1_700_000_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "confused"},
        {"on_error": "panic"},
        {"quarantined": -1},
        {"name": ""},
        {"name": "x" * 201},
        {"rows": -1},
        {"batch": "one"},
        {"lag_s": "soon"},
    ],
)
def test_what_is_no_report_is_refused(client: Client, wrong: dict[str, object]) -> None:
    body = json.dumps({**REPORT, **wrong}).encode()
    assert error_code(client.send("POST", PIPELINES, body=body)) == "invalid_body"


def test_only_so_many_are_kept(client: Client) -> None:
    for number in range(1_005):
        report(client, name=f"p{number:04}")
    names = [one["name"] for one in client.json(PIPELINES)["pipelines"]]
    assert len(names) == 1_000
    assert names[-1] == "p1004"
    assert "p0004" not in names
