"""Where webhooks may lead."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.subscriptions.errors import WebhookUrlRejected
from headwater.core.subscriptions.targets import check_addresses, parse_target
from headwater.core.targets import is_public

REFUSED_URLS = [
    "",
    "hooks.example.com",
    "ftp://example.com/",
    "file:///etc/passwd",
    "http://example.com/hook",
    "http://10.0.0.1/hook",
    "http://127.1.0.1/",
    "http://localhost.example.com/",
    "http://[::1]/",
    "https:///path",
    "https://user@example.com/",
    "https://user:secret@example.com/",
    "https://example.com/#fragment",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://example.com:x/",
    "https://exa mple.com/",
    "https://example.com\\@10.0.0.1/",
    "https://example.com/\r\nX: y",
    "https://bücher.example/",
    "https://[::1/",
    "https://[example.com]/",
    "https://" + "x" * 64 + ".com/",
    "https://" + "x." * 130 + "com/",
    "https://a..b/",
    "https://.example.com/",
    "https://-a.example.com/",
    "https://a%2eb/",
    "https://example.com/" + "x" * 3000,
]


@pytest.mark.parametrize("url", REFUSED_URLS)
@pytest.mark.parametrize("development", [True, False])
def test_urls_that_are_refused_anywhere(url: str, development: bool) -> None:
    with pytest.raises(WebhookUrlRejected):
        parse_target(url, development=development)


@pytest.mark.parametrize("url", ["http://localhost:9/x", "http://127.0.0.1/", "http://127.0.0.9/"])
def test_plain_http_is_for_this_machine_in_development(url: str) -> None:
    assert parse_target(url, development=True).scheme == "http"
    with pytest.raises(WebhookUrlRejected):
        parse_target(url, development=False)


def test_a_target_keeps_its_name_and_goes_to_an_address() -> None:
    target = parse_target("https://Hooks.Example.com:8443/a/b?c=d", development=False)
    assert target.host_header == "hooks.example.com:8443"
    assert target.url_at(IPv4Address("93.184.216.34")) == "https://93.184.216.34:8443/a/b?c=d"
    assert target.url_at(IPv6Address("2606::1")) == "https://[2606::1]:8443/a/b?c=d"
    assert parse_target("https://example.com", development=False).host_header == "example.com"


PRIVATE = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
]
PRIVATE_6 = [
    "::",
    "::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "64:ff9b:1::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("text", [*PRIVATE, *PRIVATE_6])
def test_addresses_that_are_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111"])
def test_addresses_that_are_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", PRIVATE)
@pytest.mark.parametrize("wrap", ["::ffff:{}", "::{}", "64:ff9b::{}"])
def test_what_is_not_public_is_not_so_wrapped_into_ipv6_either(text: str, wrap: str) -> None:
    assert not is_public(ip_address(wrap.format(text)))


@given(st.ip_addresses(v=4))
def test_6to4_is_judged_by_what_it_leads_to(inner: IPv4Address) -> None:
    outer = IPv6Address((0x2002 << 112) | (int(inner) << 80))
    assert is_public(outer) == is_public(inner)


@given(st.ip_addresses(v=4))
def test_nothing_public_is_private_or_local(address: IPv4Address) -> None:
    if is_public(address):
        assert not (address.is_private)
        assert not (address.is_loopback)
        assert not (address.is_link_local)
        assert not (address.is_multicast)
        assert not (address.is_unspecified)
        assert not (address.is_reserved)


def test_every_address_of_a_name_must_be_allowed() -> None:
    target = parse_target("https://example.com/", development=True)
    assert check_addresses(target, ["1.1.1.1"]) == [ip_address("1.1.1.1")]
    with pytest.raises(WebhookUrlRejected):
        check_addresses(target, ["1.1.1.1", "10.0.0.1"])
    with pytest.raises(WebhookUrlRejected):
        check_addresses(target, ["nonsense"])


def test_a_local_name_leads_to_this_machine_only() -> None:
    target = parse_target("http://localhost/", development=True)
    assert check_addresses(target, ["127.0.0.1", "::1"])
    with pytest.raises(WebhookUrlRejected):
        check_addresses(target, ["127.0.0.1", "1.1.1.1"])
