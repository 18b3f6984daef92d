"""Webhook addresses: `core.targets`, and what is specific to webhooks.

- They are `https`.
- They are checked when the subscription is made and again before every request.
- In development, receivers run on the same machine. There, and only there, `http://localhost` and
  `http://127.0.0.x` are allowed, and may resolve to loopback addresses only.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

from headwater.core import targets
from headwater.core.subscriptions.errors import WebhookUrlRejected
from headwater.core.targets import Address, Target, TargetRefused

_LOCAL_NAME: Final = "localhost"
_LOCAL_NETWORK: Final = IPv4Network("127.0.0.0/24")


def parse_target(url: str, *, development: bool) -> Target:
    try:
        target = targets.parse_url(url)
    except TargetRefused as error:
        raise _rejected(error) from None
    if target.scheme == "http" and not (development and _is_local(target.host)):
        raise WebhookUrlRejected(
            "webhook.url must be an https address; http is for localhost and 127.0.0.x, on a "
            "server for development"
        )
    return target


def check_addresses(target: Target, addresses: list[str]) -> list[Address]:
    """The addresses of a host, if all of them are allowed."""
    local = target.scheme == "http"
    try:
        return targets.check_each(
            addresses, lambda address: address.is_loopback if local else targets.is_public(address)
        )
    except TargetRefused as error:
        raise _rejected(error) from None


def _rejected(error: TargetRefused) -> WebhookUrlRejected:
    return WebhookUrlRejected(f"webhook.url {error}")


def _is_local(host: str) -> bool:
    if host == _LOCAL_NAME:
        return True
    try:
        return IPv4Address(host) in _LOCAL_NETWORK
    except ValueError:
        return False
