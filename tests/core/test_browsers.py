"""Which requests of web pages are let through."""

from __future__ import annotations

import pytest

from headwater.core.browsers import is_foreign, is_own_host, parse_hosts, parse_origins


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:4437",
        "10.0.0.7:80",
        "[::1]",
        "[::1]:4437",
        "localhost",
        "LOCALHOST:1",
    ],
)
def test_addresses_and_localhost_are_this_server(host: str) -> None:
    assert is_own_host(host, ())


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "evil.example:4437", "127.0.0.1.evil.example"),
        *("localhost.evil.example", "localhost:80:80", "[::1", "::1", "127.0.0.1@evil"),
        *("1", "0x7f000001", "localhost."),
    ],
)
def test_names_are_not_unless_they_were_set_up(host: str) -> None:
    assert not is_own_host(host, ())
    assert not is_own_host(host, {"streams.example"})


def test_a_name_that_was_set_up() -> None:
    names = parse_hosts("Streams.example, other")
    assert names is not None
    assert is_own_host("streams.EXAMPLE:8080", names)
    assert not is_own_host("x.streams.example", names)
    assert parse_hosts("*") is None


@pytest.mark.parametrize("setting", ["a b", "a:80", "https://a", "a,*"])
def test_what_is_no_name(setting: str) -> None:
    with pytest.raises(ValueError, match="not a host name"):
        parse_hosts(setting)


HOST, OWN, OTHER = "127.0.0.1:4437", "http://127.0.0.1:4437", "http://evil.example"


@pytest.mark.parametrize(
    "origin, site, foreign",
    [
        (OWN, None, False),
        (OWN, "same-origin", False),
        # Behind a proxy that does TLS, the browser knows better.
        ("https://streams.example", "same-origin", False),
        (OTHER, None, True),
        (OTHER, "cross-site", True),
        ("http://127.0.0.1:9999", "same-site", True),
        ("http://127.0.0.1:9999", None, True),
        ("null", None, True),
        (None, "cross-site", True),
        (None, "none", False),
        ("https://app.example", "cross-site", False),
        ("https://app.example", None, False),
    ],
)
def test_foreign_pages(origin: str | None, site: str | None, foreign: bool) -> None:
    known = parse_origins("https://app.example")
    assert known is not None
    assert is_foreign(origin, site, HOST, known) is foreign
