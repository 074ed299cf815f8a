"""Who may come in: accounts with a role, passwords as argon2 hashes, tokens for programs.

    accounts.json   [{name, role, password: "$argon2id$…", tokens: [{id, digest: sha-256, …}]}]   mode 0600

There is no password to begin with, and no default one either. As long as no account exists, every start makes
a one-time password for `admin`, which is printed in the terminal and kept nowhere; whoever logs in with it
has to choose a password first. An account made by an admin begins the same way.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from base64 import b32encode
from enum import StrEnum

import msgspec

from kourou.doors.chance import Chance
from kourou.doors.clock import Clock
from kourou.doors.private_folder import PrivateFolder
from kourou.errors import ConfigError, Corrupt, Denied, NotFound
from kourou.protocol.codes import ResponseCode

FILE = "accounts.json"
FIRST_ADMIN = "admin"
PASSWORD_CHARACTERS_MIN, PASSWORD_CHARACTERS_MAX = 10, 256
NAME_CHARACTERS_MAX = 64
TOKEN_PREFIX = "kourou_"  # noqa: S105 - the beginning of every token, no secret
TOKENS_MAX = 20

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-")


class Role(StrEnum):
    """What one may do; each may do all that those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)


class Token(msgspec.Struct, frozen=True):
    """What a program shows instead of a password; it itself is kept nowhere."""

    id: str
    label: str
    digest: str
    created_ms: int


class Account(msgspec.Struct, frozen=True):
    name: str
    role: Role
    password: str
    """An argon2 hash."""
    must_change: bool = False
    """The password was made by somebody else, and is good for choosing one only."""
    created_ms: int = 0
    tokens: tuple[Token, ...] = ()


class _Kept(msgspec.Struct):
    accounts: list[Account] = []


def one_time_password(chance: Chance) -> str:
    """80 bits nobody can guess, in a form one can type."""
    text = b32encode(chance.secret_bytes(10)).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, 16, 4))


def first_password(folder: PrivateFolder, chance: Chance) -> str | None:
    """A one-time password for `admin`, when nobody has an account yet."""
    return None if folder.has(FILE) else one_time_password(chance)


class Accounts:
    """All of them, on disk after every change. Any thread may ask."""

    def __init__(
        self, folder: PrivateFolder, *, clock: Clock, chance: Chance, first_password: str | None = None
    ) -> None:
        from argon2 import PasswordHasher

        # OWASP's second choice: 19 MiB and two passes; one at a time, so that logins cannot eat the memory.
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
        self._hashing = threading.Lock()
        self._folder = folder
        self._clock = clock
        self._chance = chance
        self._lock = threading.RLock()
        self._accounts = {account.name: account for account in _read(folder)}
        self._first_password = None if self._accounts else first_password
        self._nobody = self._hashed(one_time_password(chance))

    def all(self) -> list[Account]:
        with self._lock:
            return sorted(self._accounts.values(), key=lambda account: account.name)

    def get(self, name: str) -> Account | None:
        """The account of this name; while there is none at all, the first admin's."""
        with self._lock:
            if self._first_password is not None and name == FIRST_ADMIN:
                return Account(FIRST_ADMIN, Role.ADMIN, password="", must_change=True)
            return self._accounts.get(name)

    def with_password(self, name: str, password: str) -> Account | None:
        """The account these belong to. Takes as long for a name that does not exist."""
        account = self.get(name)
        if account is not None and self._first_password is not None:
            given = hmac.compare_digest(password.strip().encode(), self._first_password.encode())
            return account if given else None
        matches = self._matches(account.password if account else self._nobody, password)
        return account if matches else None

    def with_token(self, text: str) -> Account | None:
        """The account whose token this is."""
        given = _digest(text)
        for account in self.all():
            if any(hmac.compare_digest(token.digest, given) for token in account.tokens):
                return account
        return None

    def choose_password(self, name: str, password: str) -> Account:
        """From now on `name` logs in with this one. Raises ConfigError when it is too weak."""
        _check_password(name, password)
        hashed = self._hashed(password)
        with self._lock:
            account = self._known(name)
            fresh = msgspec.structs.replace(
                account,
                password=hashed,
                must_change=False,
                created_ms=account.created_ms or self._clock.now_ms(),
            )
            self._keep({**self._accounts, name: fresh})
            self._first_password = None
        return fresh

    def add(self, name: str, role: Role) -> str:
        """A new account; returns the password to choose another with."""
        if not name or len(name) > NAME_CHARACTERS_MAX or set(name) - _NAME_CHARACTERS:
            raise ConfigError(f"{name!r} cannot be a user: 1 to {NAME_CHARACTERS_MAX} of a-z A-Z 0-9 _ . @ -")
        password = one_time_password(self._chance)
        hashed = self._hashed(password)
        with self._lock:
            if self.get(name) is not None:
                raise ConfigError(f"there is a user '{name}' already")
            made = Account(name, role, hashed, must_change=True, created_ms=self._clock.now_ms())
            self._keep({**self._accounts, name: made})
        return password

    def reset_password(self, name: str) -> str:
        """A new one-time password for them; the old one and its sessions are dead."""
        password = one_time_password(self._chance)
        hashed = self._hashed(password)
        with self._lock:
            account = self._known(name)
            fresh = msgspec.structs.replace(account, password=hashed, must_change=True)
            self._keep({**self._accounts, name: fresh})
        return password

    def set_role(self, name: str, role: Role) -> None:
        with self._lock:
            account = self._known(name)
            changed = {**self._accounts, name: msgspec.structs.replace(account, role=role)}
            self._keep(_with_an_admin(changed))

    def remove(self, name: str) -> None:
        with self._lock:
            self._known(name)
            self._keep(_with_an_admin({n: a for n, a in self._accounts.items() if n != name}))

    def issue_token(self, name: str, label: str) -> str:
        """A token for programs of this user, shown this once."""
        text = TOKEN_PREFIX + b32encode(self._chance.secret_bytes(25)).decode().lower()
        with self._lock:
            account = self._known(name)
            if len(account.tokens) >= TOKENS_MAX:
                raise ConfigError(f"'{name}' has {TOKENS_MAX} tokens; revoke one first")
            token = Token(self._chance.secret_bytes(4).hex(), label[:80], _digest(text), self._clock.now_ms())
            fresh = msgspec.structs.replace(account, tokens=(*account.tokens, token))
            self._keep({**self._accounts, name: fresh})
        return text

    def revoke_token(self, name: str, token_id: str) -> None:
        with self._lock:
            account = self._known(name)
            left = tuple(token for token in account.tokens if token.id != token_id)
            if len(left) == len(account.tokens):
                raise _not_found(f"'{name}' has no token {token_id}")
            self._keep({**self._accounts, name: msgspec.structs.replace(account, tokens=left)})

    def _known(self, name: str) -> Account:
        account = self.get(name)
        if account is None:
            raise _not_found(f"no user '{name}'")
        return account

    def _keep(self, accounts: dict[str, Account]) -> None:
        data = msgspec.json.encode(_Kept(list(accounts.values())))
        self._folder.write(FILE, msgspec.json.format(data, indent=1))
        self._accounts = accounts

    def _hashed(self, password: str) -> str:
        with self._hashing:
            return self._hasher.hash(password)

    def _matches(self, hashed: str, password: str) -> bool:
        from argon2.exceptions import Argon2Error, InvalidHashError

        if len(password) > PASSWORD_CHARACTERS_MAX:
            return False
        try:
            with self._hashing:
                return self._hasher.verify(hashed, password)
        except (Argon2Error, InvalidHashError):
            return False


def _read(folder: PrivateFolder) -> list[Account]:
    data = folder.read(FILE)
    if data is None:
        return []
    try:
        return msgspec.json.decode(data, type=_Kept).accounts
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"{folder.path}/{FILE} is unreadable ({error}): restore it from a backup, or move it away "
            "to begin anew with a one-time password"
        ) from None


def _check_password(name: str, password: str) -> None:
    if not PASSWORD_CHARACTERS_MIN <= len(password) <= PASSWORD_CHARACTERS_MAX:
        raise ConfigError(
            f"a password has {PASSWORD_CHARACTERS_MIN} to {PASSWORD_CHARACTERS_MAX} characters; "
            f"this one has {len(password)}"
        )
    if name.lower() in password.lower() and len(password) < len(name) + PASSWORD_CHARACTERS_MIN:
        raise ConfigError("a password that is little more than the user's name is the first one tried")


def _with_an_admin(accounts: dict[str, Account]) -> dict[str, Account]:
    if not any(account.role is Role.ADMIN for account in accounts.values()):
        raise Denied(ResponseCode.NO_PERMISSION, "this is the last admin; make another one first")
    return accounts


def _not_found(what: str) -> NotFound:
    return NotFound(ResponseCode.SYSTEM_ERROR, what)


def _digest(token: str) -> str:
    # A token has 200 bits of chance in it: nothing slow is needed to keep it from being guessed.
    return hashlib.sha256(token.encode()).hexdigest()
