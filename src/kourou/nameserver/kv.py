"""The name server's own small store: texts by namespace and key, kept in one JSON file.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:8;broker-b:8"}}}

Operators keep a few hundred entries here at most, so each change writes the file anew, whole and synced, and
counts only once that is done. What is kept has a most: a namespace travels whole in one reply, and that of
ordered topics in the reply to every registration.

The generation before stays beside the file as `.bak`, and is what a start falls back to when the file itself
cannot be read.
"""

from __future__ import annotations

import errno
import logging
import os.path
from typing import Any, Final

from kourou.doors.files import Files, make_lasting_folder
from kourou.errors import ConfigError, Corrupt, DiskFault, MQError, ProtocolError, Refused
from kourou.protocol import fastjson
from kourou.protocol.bodies import KVConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import printable

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of topics whose messages are in order across all brokers: topic -> `broker:queues;…`."""

NAME_CHARACTERS_MAX: Final = 255
VALUE_CHARACTERS_MAX: Final = 32 * 1024
ENTRIES_MAX: Final = 10_000
NAMESPACE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of a namespace as it is sent: far below a frame, so that it can be, and in time."""

ALL_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of the file."""

logger = logging.getLogger(__name__)


class KeyValues:
    """The entries, in memory and on disk."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read what was kept; nothing there is fine.

        Raises Corrupt when neither generation makes sense, ConfigError when the path cannot be one.
        """
        failure: MQError | None = None
        for path in (self._path, self._path + ".bak"):
            try:
                self._table = self._read(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                failure = failure or _unreadable(path, error)
            except ProtocolError as error:
                failure = failure or Corrupt(
                    f"{path} is damaged ({error}), and there is no usable {self._path}.bak; mend or move it"
                )
            else:
                if path != self._path:
                    logger.warning("%s could not be used; went on with %s", self._path, path)
                return
        if failure is not None:
            raise failure

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All entries of a namespace; None when nobody ever put one there."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set an entry; on return it is on disk. Raises Refused, and changes nothing, when it cannot be."""
        self._check(namespace, key, value)
        # A namespace stays known when its last entry goes, but not for ever: names would pile up.
        table = {name: entries for name, entries in self._table.items() if entries}
        table[namespace] = {**table.get(namespace, {}), key: value}
        self._check_room(namespace, table)
        self._keep(table)

    def delete(self, namespace: str, key: str) -> None:
        """Remove an entry; one that is not there need not be."""
        if self.get(namespace, key) is not None:
            remaining = {each: value for each, value in self._table[namespace].items() if each != key}
            self._keep({**self._table, namespace: remaining})

    def log(self) -> None:
        """Write all entries to the log."""
        logger.info("%d namespaces of key-value configuration", len(self._table))
        for namespace, entries in self._table.items():
            for key, value in entries.items():
                logger.info("%s %s = %s", printable(namespace), printable(key), printable(value, 1024))

    def _read(self, path: str) -> dict[str, dict[str, str]]:
        return KVConfig.decode(self._files.read(path)).config_table

    def _keep(self, table: dict[str, dict[str, str]]) -> None:
        try:
            make_lasting_folder(self._files, os.path.dirname(self._path), private=True)
            self._files.write_atomically(self._path, KVConfig(config_table=table).encode())
        except OSError as error:
            logger.error("cannot keep the key-value configuration in %s: %s", self._path, error)
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"not changed, for it cannot be kept: {error.strerror or error}"
            ) from None
        self._table = table

    def _check(self, namespace: str, key: str, value: str) -> None:
        for what, name in (("namespace", namespace), ("key", key)):
            if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"{what} '{printable(name)}' must have 1 to {NAME_CHARACTERS_MAX} printable characters",
                )
        if len(value) > VALUE_CHARACTERS_MAX:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"a value of {len(value)} characters: at most {VALUE_CHARACTERS_MAX} are kept",
            )
        entries = sum(map(len, self._table.values()))
        if entries >= ENTRIES_MAX and self.get(namespace, key) is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{entries} entries are kept already, which is the most; delete some",
            )

    def _check_room(self, namespace: str, table: dict[str, dict[str, str]]) -> None:
        what = f"the entries of namespace '{namespace}'"
        _check_growth(what, self._table.get(namespace, {}), table[namespace], NAMESPACE_BYTES_MAX)
        _check_growth("all entries", self._table, table, ALL_BYTES_MAX)


def _check_growth(what: str, before: dict[str, Any], after: dict[str, Any], bytes_max: int) -> None:
    """Raises Refused beyond `bytes_max`; what was larger when it was loaded may still shrink."""
    size = len(fastjson.dumps(after))
    if size > bytes_max and size >= len(fastjson.dumps(before)):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"not put: {what} would take {size} bytes, of {bytes_max} at most; delete some",
        )


def _unreadable(path: str, error: OSError) -> DiskFault | ConfigError:
    what = f"cannot read {path}: {error.strerror or error}"
    if error.errno == errno.EIO:
        return DiskFault(f"{what}; see to the disk")
    return ConfigError(f"{what}; make it readable, or choose another path (kvConfigPath, --data)")
