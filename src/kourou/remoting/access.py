"""Access control of one server, put together: where its accounts are kept, and the guard that uses them.

    <folder>/plain_acl.yml, <folder>/acl/*.yml     aclEnable
    <folder>/users.json, users.key                 authenticationEnabled

Both are looked at every second, for changes that somebody else made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from kourou.access.accounts import Account, Accounts, merged
from kourou.access.acl_files import AclFiles
from kourou.access.control import AccessControl
from kourou.access.credentials import Credentials
from kourou.access.replay import ReplayWindow
from kourou.access.rules import Need
from kourou.access.users import Users
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.files import Files, make_lasting_folder
from kourou.errors import ConfigError
from kourou.protocol.access_messages import UserInfo
from kourou.protocol.command import Command
from kourou.remoting.access_settings import AccessSettings
from kourou.remoting.address import is_loopback
from kourou.remoting.answer import Answer, Handler, RunHandler
from kourou.remoting.guard import Guard

LOOK_SECONDS: Final = 1.0

Require = Callable[[Command, Answer, Need], None]
"""Raises Denied when whoever sent this request may not do what is needed."""

logger = logging.getLogger(__name__)


class Access:
    """Whom a server serves. Without access control it lets everything through, and wraps nothing."""

    def __init__(
        self, settings: AccessSettings, *, folder: str, files: Files, clock: Clock, chance: Chance
    ) -> None:
        self._settings = settings
        self._folder = settings.auth_path or folder
        self._files = files
        self._clock = clock
        self._timer: Timer | None = None
        self._credentials = settings.credentials()
        self._own: Account | None = None
        self._is_loaded = False
        acl_path = settings.acl_path or f"{folder}/plain_acl.yml"
        self.acl_files = AclFiles(acl_path, files, clock.now_ms) if settings.acl_enabled else None
        self.users = (
            Users(f"{self._folder}/users.json", files, chance.secret_bytes)
            if settings.authentication_enabled
            else None
        )
        seconds = settings.replay_window_seconds
        self.control = AccessControl(
            Accounts(),
            authorise=settings.acl_enabled or settings.authorization_enabled,
            unauthenticated_codes=settings.unauthenticated_codes,
            unauthorised_codes=settings.unauthorised_codes,
            is_certificate_enough=settings.certificate_users,
            replay=ReplayWindow(seconds, clock.now_ms) if seconds else None,
        )
        self.guard = Guard(self.control, clock)

    @property
    def is_on(self) -> bool:
        return self._settings.is_access_controlled

    def trust(self, credentials: Credentials) -> None:
        """Take requests signed so as those of a super user; and sign with it, if nothing else is configured.

        For parts of one process that call each other; to be called before `load`.
        """
        self._own = Account(
            name=credentials.access_key, secret=credentials.secret_key.encode(), is_super=True
        )
        self._credentials = self._credentials or credentials

    def load(self) -> None:
        """Read all accounts. Raises ConfigError when they cannot be used, or when there is none at all."""
        if not self.is_on or self._is_loaded:
            return
        if self.acl_files is not None:
            self.acl_files.load()
        if self.users is not None:
            make_lasting_folder(self._files, self._folder, private=True)
            self.users.load()
            self._make_users(self.users)
        self.changed()
        if not self.control.accounts.by_name and not self.control.accounts.white:
            raise ConfigError(
                "access control is on, but nobody is known: write an account into plain_acl.yml, or name the "
                "first user in initAuthenticationUser"
            )
        if self._settings.tls_mode != "enforcing" and not is_loopback(self._settings.host):
            logger.warning(
                "signed requests may come without TLS from beyond this machine: whoever listens on the way "
                "can read and repeat them; set tls.server.mode=enforcing"
            )

        self._is_loaded = True

    def start(self) -> None:
        if self.is_on and self._timer is None:
            self._timer = self._clock.every(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def changed(self) -> None:
        """Accounts were changed: the new ones count from now on."""
        parts = [] if self._own is None else [Accounts({self._own.name: self._own})]
        if self.acl_files is not None:
            parts.append(self.acl_files.accounts)
        if self.users is not None:
            parts.append(self.users.accounts)
        self.control.use(merged(parts))

    def sign(self, command: Command) -> None:
        """Sign a request of this server's own, when it has somebody to be."""
        credentials = self._credentials or self._first_admin()
        if credentials is not None:
            credentials.sign(command, self._clock.now_ms())

    def require(self, request: Command, answer: Answer, need: Need) -> None:
        """For handlers that find out what a request is about when they look. Raises Denied."""
        if self.is_on:
            self.guard.require(request, answer, need)

    def handlers(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        return self.guard.handlers(handlers) if self.is_on else handlers

    def run_handlers(self, run_handlers: Mapping[bytes, RunHandler]) -> Mapping[bytes, RunHandler]:
        return self.guard.run_handlers(run_handlers) if self.is_on else run_handlers

    def _make_users(self, users: Users) -> None:
        first = self._settings.initial_user()
        own = self._settings.credentials()
        wanted = [] if first is None else [first]
        if own is not None:
            wanted.append(UserInfo(username=own.access_key, password=own.secret_key, user_type="Super"))
        for user in wanted:
            if not users.is_there(user.username or ""):
                users.create(user)

    def _first_admin(self) -> Credentials | None:
        """4.x has no credentials for servers: an admin of its file will do."""
        if self.acl_files is None:
            return None
        for account in self.acl_files.accounts.by_name.values():
            if account.is_super:
                return Credentials(account.name, account.secret.decode())
        return None

    def _look(self) -> None:
        has_changed = self.acl_files is not None and self.acl_files.load_if_changed() is not None
        has_changed |= self.users is not None and self.users.load_if_changed()
        if has_changed:
            self.changed()
