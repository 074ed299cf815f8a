"""The ACL files of 4.x in a folder: read, read again when they change, written when an operator asks for it.

    conf/plain_acl.yml       the main file; new accounts go here
    conf/acl/*.yml           more of the same, one account in one file only

A changed file that cannot be used is complained about once, and what was read before stays in force: a slip
of the editor must not lock everybody out, nor let anybody in.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from kourou.access.accounts import Account, Accounts, merged
from kourou.access.addresses import Addresses
from kourou.access.plain_acl import PlainAccount, PlainAcl, account, accounts_in, dump, parse
from kourou.errors import ConfigError
from kourou.protocol.access_messages import SaveAccount
from kourou.protocol.names import printable

MORE_FOLDER: Final = "acl"
SUFFIXES: Final = (".yml", ".yaml")

logger = logging.getLogger(__name__)


class Folder(Protocol):
    """The part of a file system that is needed here."""

    def read(self, path: str) -> bytes: ...

    def write_atomically(
        self, path: str, data: bytes, *, keep_previous: bool = True, private: bool = False
    ) -> None: ...

    def exists(self, path: str) -> bool: ...

    def list(self, folder: str) -> list[str]: ...

    def modified_ms(self, path: str) -> int: ...


class AclFiles:
    """All ACL files of one server."""

    def __init__(self, path: str, folder: Folder, now_ms: Callable[[], int]) -> None:
        self.path = path
        self._folder = folder
        self._now_ms = now_ms
        self._stamps: dict[str, int] = {}
        self._files: dict[str, PlainAcl] = {}
        self._parts: dict[str, Accounts] = {}
        self.changes = 0
        self.changed_ms = now_ms()

    def load(self) -> Accounts:
        """Read everything. Raises ConfigError when a file cannot be used; then nothing has changed."""
        if not self._folder.exists(self.path):
            raise ConfigError(
                f"access control is on, but its file {self.path} is not there: write it, name another one "
                "(aclConfigPath), or switch it off (aclEnable=false)"
            )
        stamps = self._look()
        self._take({path: self._read(path) for path in stamps})
        self._stamps = stamps
        return self.accounts

    def load_if_changed(self) -> Accounts | None:
        """What is in force from now on, or None when nothing changed."""
        stamps = self._look()
        if stamps == self._stamps:
            return None
        self._stamps = stamps  # a bad file is complained about once, and tried again when it changes
        try:
            self._take({path: self._read(path) for path in stamps})
        except ConfigError as error:
            logger.error("the accounts stay as they were, for a changed file cannot be used: %s", error)
            return None
        logger.info("accounts read again: %d in %d files", len(self.accounts.by_name), len(stamps))
        return self.accounts

    @property
    def accounts(self) -> Accounts:
        return merged(self._parts.values())

    @property
    def plain_accounts(self) -> list[PlainAccount]:
        return [each for acl in self._files.values() for each in acl.accounts or []]

    @property
    def white_patterns(self) -> list[str]:
        return [each for acl in self._files.values() for each in acl.global_white_remote_addresses or []]

    @property
    def paths(self) -> list[str]:
        return list(self._files)

    # ----------------------------------------------------------------------------------------- changes

    def save(self, said: SaveAccount) -> Account:
        """Make or change an account; what is not said stays. Raises ConfigError, and nothing has changed."""
        path, old = self._find(said.access_key)
        if old is None and not said.secret_key:
            raise ConfigError(
                f"there is no account {printable(said.access_key)}: a new one needs a secretKey"
            )
        before = old or PlainAccount(said.access_key, said.secret_key or "")
        new = msgspec.structs.replace(before, **_changes(said))
        checked = account(new, self._files[path].rules or (), path)
        others = [each for each in self._files[path].accounts or [] if each.access_key != said.access_key]
        self._write(path, accounts=[*others, new])
        return checked

    def delete(self, access_key: str) -> bool:
        """Take an account away; False when there was none."""
        path, old = self._find(access_key)
        if old is None:
            return False
        self._write(path, accounts=[each for each in self._files[path].accounts or [] if each is not old])
        return True

    def save_white_list(self, patterns: list[str], path: str | None) -> None:
        """Whose requests need no signature. Raises ConfigError for a pattern that makes no sense."""
        if path and path not in self._files:
            raise ConfigError(
                f"{printable(path)} is no ACL file of this server: it has {', '.join(self.paths)}"
            )
        Addresses(patterns)
        self._write(path or self.path, global_white_remote_addresses=patterns)

    def _find(self, access_key: str) -> tuple[str, PlainAccount | None]:
        for path, acl in self._files.items():
            for each in acl.accounts or []:
                if each.access_key == access_key:
                    return path, each
        return self.path, None

    def _write(self, path: str, **changes: object) -> None:
        acl = msgspec.structs.replace(self._files[path], **changes)
        part = accounts_in(acl, path)
        self._folder.write_atomically(path, dump(acl), private=True)
        self._files[path], self._parts[path] = acl, part
        self._stamps = self._look()
        self._note()

    # ------------------------------------------------------------------------------------------ reading

    def _look(self) -> dict[str, int]:
        more = posixpath.join(posixpath.dirname(self.path), MORE_FOLDER)
        names = [name for name in self._folder.list(more) if name.endswith(SUFFIXES)]
        paths = [self.path, *(posixpath.join(more, name) for name in names)]
        stamps = {}
        for path in paths:
            try:
                stamps[path] = self._folder.modified_ms(path)
            except OSError:
                continue  # it went while we looked
        return stamps

    def _read(self, path: str) -> PlainAcl:
        try:
            data = self._folder.read(path)
        except OSError as error:
            raise ConfigError(f"cannot read the ACL file {path}: {error.strerror or error}") from None
        return parse(data, path)

    def _take(self, files: dict[str, PlainAcl]) -> None:
        parts = {path: accounts_in(acl, path) for path, acl in files.items()}
        owners: dict[str, str] = {}
        for path, part in parts.items():
            for name in part.by_name:
                if owners.setdefault(name, path) != path:
                    raise ConfigError(f"account {printable(name)} is in {owners[name]} and in {path}")
        if self.path not in files:
            raise ConfigError(f"the ACL file {self.path} is gone")
        self._files, self._parts = files, parts
        self._note()

    def _note(self) -> None:
        self.changes += 1
        self.changed_ms = self._now_ms()


def _changes(said: SaveAccount) -> dict[str, object]:
    changes: dict[str, object] = {}
    for name in ("secret_key", "white_remote_address", "admin", "default_topic_perm", "default_group_perm"):
        value = getattr(said, name)
        if value is not None:
            changes[name] = value
    for name in ("topic_perms", "group_perms"):
        perms = getattr(said, name)
        if perms is not None:
            changes[name] = [each.strip() for each in perms.split(",") if each.strip()]
    return changes
