"""Builds durable responses from the settings, if they are enabled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.cli.serving.access import CannotServe, signing_secret
from headwater.cli.serving.reloading import UNUSABLE
from headwater.http.access.gate import Gate
from headwater.service.log import Log
from headwater.settings import Settings

if TYPE_CHECKING:
    from headwater.responses.responses import Responses


def open_responses(settings: Settings, gate: Gate | None) -> Callable[[Log], Responses] | None:
    """Creates them for a log. Their addresses use the same secret as all signed addresses."""
    policy = settings.response_policy()
    if policy is None:
        return None
    from headwater.responses.responses import Responses

    if gate is not None and gate.identity is not None:
        secret = gate.identity.secret
    else:
        try:
            secret = signing_secret(settings)
        except UNUSABLE as error:
            raise CannotServe(str(error)) from None
    return lambda log: Responses(log, policy, secret)
