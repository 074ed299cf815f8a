"""The settings a broker runs with now, and which of them a peer may change.

The original built a shell command from settings that any peer could change (CVE-2023-33246), and wrote
files wherever it was told to. Here no setting leads to a process, and a peer may change only those that are
marked `remote`, within their types and ranges, and all of a request or nothing of it. Paths, addresses,
names, access and TLS are not among them, whoever asks. A key of the original that means nothing here is
taken with a notice; every other one is refused.

Every part of the broker holds the same `BrokerConfig` and looks into it when it needs to know, so a change
acts at once; who keeps something made of a setting listens. Nothing is written: after a restart the broker
runs with what its file, environment and flags say.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, Final

from kourou.broker.config import KEYS, BrokerConfig
from kourou.doors.clock import Clock
from kourou.errors import ConfigError, Denied, ProtocolError, Refused
from kourou.protocol import java_properties
from kourou.protocol.bodies import PERM_READ, PERM_WRITE, DataVersion
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import printable
from kourou.store.config import StoreConfig

UPDATE_BYTES_MAX: Final = 64 * 1024

NEVER_REMOTE: Final = frozenset(
    {"rocketmqHome", "filterServerNums", "brokerConfigPath", "configBlackList", "aclEnable"}
)
"""Keys of the original that once opened a door: refused by name, though they would have no effect here."""

_EXPECTED: Final = {"filterServerNums": "0"}
"""A setting of the original that means nothing here, and that a tool of it fails without: exportConfigs."""

_PERMISSIONS: Final = (PERM_READ, PERM_READ | PERM_WRITE)

logger = logging.getLogger(__name__)


class OwnConfig:
    """What counts at this moment, and the way to change it."""

    def __init__(self, config: BrokerConfig, store: StoreConfig, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self.version = DataVersion(timestamp=clock.now_ms())

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def as_properties(self) -> str:
        """All of them under RocketMQ's names, but for secrets; also those that can have one value only."""
        fixed = {**_EXPECTED, **{name: fixed.value for name, fixed in KEYS.fixed.items()}}
        settings = java_properties.parse(KEYS.as_properties(self._config))
        return java_properties.format(dict(sorted({**fixed, **settings}.items())))

    def update(self, body: bytes, who: str) -> None:
        """Take in `key=value` lines from a peer. Raises Denied or Refused, and then nothing has changed."""
        if len(body) > UPDATE_BYTES_MAX:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"a change of {len(body)} bytes: at most {UPDATE_BYTES_MAX} are taken",
            )
        try:
            changes = self._changes(java_properties.parse(body), who)
            changed = dataclasses.replace(self._config, **changes)
            store = changed.store()
        except (ProtocolError, ConfigError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        for field, value in changes.items():
            object.__setattr__(self._config, field, value)
            logger.info("%s set %s to %s", who, KEYS.by_field[field].name, value)
        for each in dataclasses.fields(store):
            if each.name in _STORE_FIELDS:
                object.__setattr__(self._store, each.name, getattr(store, each.name))
        self.version = self.version.next(self._clock.now_ms())
        for listener in self._listeners:
            listener()

    def _changes(self, lines: dict[str, str], who: str) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for name, text in lines.items():
            key = KEYS.keys.get(name)
            if name in NEVER_REMOTE or name in KEYS.fixed or (key is not None and not key.remote):
                logger.warning("%s tried to set %s, which no peer may", who, printable(name))
                raise Denied(
                    ResponseCode.NO_PERMISSION,
                    f"Can not update config in black list: {name} is not for peers to set; "
                    "change it where the broker is started",
                )
            if key is not None:
                changes[key.field] = _checked(name, KEYS.parse(key, text, "update"))
            elif name in KEYS.without_effect:
                logger.info("%s set %s, which has no effect here", who, name)
            else:
                raise ConfigError(f"the broker has no setting '{printable(name)}'{KEYS.did_you_mean(name)}")
        return changes


_STORE_FIELDS: Final = frozenset(
    {
        "pull_messages_in_memory_max",
        "pull_bytes_in_memory_max",
        "pull_messages_on_disk_max",
        "pull_bytes_on_disk_max",
        "file_reserved_hours",
        "delete_hours",
        "disk_max_used_percent",
        "index_matches_max",
    }
)
"""The store's share of what a peer may change."""


def _checked(name: str, value: Any) -> Any:
    """What would put a broker out of service is for whoever starts it."""
    if name == "brokerPermission" and value not in _PERMISSIONS:
        raise ConfigError(
            f"brokerPermission is {value}: from afar it can be set to 4 (read) or 6 (read, write)"
        )
    return value
