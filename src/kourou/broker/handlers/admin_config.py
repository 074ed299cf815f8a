"""A broker's settings, seen and changed from afar."""

from __future__ import annotations

from kourou.broker.own_config import OwnConfig
from kourou.protocol.admin_headers import ConfigVersion
from kourou.protocol.command import Command
from kourou.remoting.answer import Answer


class GetConfigHandler:
    """GET_BROKER_CONFIG (26)."""

    def __init__(self, own: OwnConfig) -> None:
        self._own = own

    def __call__(self, request: Command, answer: Answer) -> None:
        version = ConfigVersion(self._own.version.encode().decode())
        answer(request.reply(version, self._own.as_properties().encode()))


class UpdateConfigHandler:
    """UPDATE_BROKER_CONFIG (25): all of it or nothing."""

    def __init__(self, own: OwnConfig) -> None:
        self._own = own

    def __call__(self, request: Command, answer: Answer) -> None:
        self._own.update(request.body, answer.connection.peer)
        answer(request.reply(ConfigVersion(self._own.version.encode().decode())))
