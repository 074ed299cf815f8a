"""The settings a name server runs with now, and which of them a peer may change.

The original wrote files wherever a peer told it to (CVE-2023-37582). Here a peer may change the few settings
that are marked `remote`, within their types and ranges, and all of a request or nothing of it. A key of the
original that means nothing here is taken with a notice; every other one is refused with NO_PERMISSION.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, Final

from kourou.doors.files import Files
from kourou.errors import ConfigError, Denied, ProtocolError, Refused
from kourou.nameserver.config import KEYS, NEVER_REMOTE, NameServerConfig
from kourou.protocol import java_properties
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import printable

UPDATE_BYTES_MAX: Final = 64 * 1024

logger = logging.getLogger(__name__)


class OwnConfig:
    """`now` is what counts at this moment."""

    def __init__(self, config: NameServerConfig, files: Files) -> None:
        self.now = config
        self._files = files
        self._listeners: list[Callable[[], None]] = []

    def listens_on(self, port: int) -> None:
        """The port is this one, whichever was asked for: whoever reads the settings wants the real one."""
        self.now = dataclasses.replace(self.now, port=port)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def as_properties(self) -> str:
        return KEYS.as_properties(self.now)

    def update(self, body: bytes, who: str) -> None:
        """Take in `key=value` lines from a peer. Raises Denied or Refused, and then nothing has changed."""
        if len(body) > UPDATE_BYTES_MAX:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"a change of {len(body)} bytes: at most {UPDATE_BYTES_MAX} are taken",
            )
        try:
            changes = self._changes(java_properties.parse(body), who)
            config = dataclasses.replace(self.now, **changes)
        except (ProtocolError, ConfigError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        self._keep(config)
        self.now = config
        for field, value in changes.items():
            logger.info("%s set %s to %s", who, KEYS.by_field[field].name, value)
        for listener in self._listeners:
            listener()

    def _changes(self, lines: dict[str, str], who: str) -> dict[str, Any]:
        forbidden = {name.strip() for name in self.now.config_black_list.split(";")} | NEVER_REMOTE
        changes: dict[str, Any] = {}
        for name, text in lines.items():
            key = KEYS.keys.get(name)
            if name in forbidden or (key is not None and not key.remote):
                logger.warning("%s tried to set %s, which no peer may", who, printable(name))
                raise Denied(
                    ResponseCode.NO_PERMISSION,
                    f"Can not update config in black list: {name} is not for peers to set; "
                    "change it where the name server is started",
                )
            if key is not None:
                changes[key.field] = KEYS.parse(key, text, "update")
            elif name in KEYS.without_effect:
                logger.info("%s set %s, which has no effect here", who, name)
            else:
                raise ConfigError(
                    f"the name server has no setting '{printable(name)}'{KEYS.did_you_mean(name)}"
                )
        return changes

    def _keep(self, config: NameServerConfig) -> None:
        """Where `configStorePath` names a file, changes outlive a restart."""
        if not config.config_store_path:
            return
        try:
            self._files.write_atomically(config.config_store_path, KEYS.as_properties(config).encode())
        except OSError as error:
            logger.error("cannot keep the configuration in %s: %s", config.config_store_path, error)
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"not changed, for it cannot be kept: {error.strerror or error}"
            ) from None
