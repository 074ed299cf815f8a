"""Users and their policies, in the shape of 5.x, kept in one file of ours.

    users.json   {"users": [{"username", "secret" (sealed), "userType", "userStatus"}], "acls": [{"subject", …
    users.key    the key the secrets are sealed with; mode 0600, as the other

A `Super` user may do everything, a `Normal` one what the entries of its policies allow: `Custom` ones first,
then `Default` ones. An entry may name `groups`: then it lets those in, and keeps out all others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kourou.access.accounts import Account, Accounts
from kourou.access.acl_files import Folder
from kourou.access.addresses import Addresses
from kourou.access.rules import ACTION_NAMES, Entry, Policy, parse_pattern
from kourou.access.sealing import KEY_BYTES, NONCE_BYTES, seal, unseal
from kourou.errors import ConfigError, NotFound, ProtocolError, Refused
from kourou.protocol.access_messages import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import printable
from kourou.protocol.sealed import check_seal, sealed

USERS_MAX: Final = 10_000
ENTRIES_MAX: Final = 1_000
SUBJECT_PREFIX: Final = "User:"
_NAME: Final = re.compile(r"[a-zA-Z0-9_.@-]{1,127}", re.ASCII)
_TYPES: Final = {"super": "Super", "normal": "Normal"}
_STATES: Final = {"enable": "enable", "disable": "disable"}
_POLICY_TYPES: Final = {"custom": "Custom", "default": "Default"}
_DECISIONS: Final = {"allow": "Allow", "deny": "Deny"}
_ACTIONS: Final = {name.lower(): name for name in ACTION_NAMES}


logger = logging.getLogger(__name__)


class _StoredUser(msgspec.Struct, rename="camel"):
    username: str
    secret: str
    user_type: str = "Normal"
    user_status: str = "enable"


class _Stored(msgspec.Struct):
    users: list[_StoredUser] = []
    acls: list[AclInfo] = []


class Users:
    """The users of one server. Every change is on the disk when it returns."""

    def __init__(self, path: str, folder: Folder, secret_bytes: Callable[[int], bytes]) -> None:
        self._path = path
        self._folder = folder
        self._secret_bytes = secret_bytes
        self._key = b""
        self._users: dict[str, _StoredUser] = {}
        self._acls: dict[str, AclInfo] = {}
        self._stamp = 0

    def load(self) -> Accounts:
        """Raises ConfigError when the files cannot be used; then nothing has changed."""
        key_path = self._path.removesuffix(".json") + ".key"
        if not self._folder.exists(self._path):
            self._key = self._secret_bytes(KEY_BYTES)
            self._folder.write_atomically(key_path, self._key, keep_previous=False, private=True)
            return self.accounts
        before = self._key, self._users, self._acls
        try:
            key = self._folder.read(key_path)
            data = self._folder.read(self._path)
            check_seal(data)
            stored = msgspec.json.decode(data, type=_Stored)
        except OSError as error:
            raise ConfigError(f"users cannot be read: {error.filename}: {error.strerror}") from None
        except (ProtocolError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ConfigError(f"users cannot be read: {self._path}: {error}") from None
        self._key = key
        self._users = {user.username: user for user in stored.users}
        self._acls = {acl.subject or "": acl for acl in stored.acls}
        try:
            accounts = self.accounts
        except ConfigError as error:
            self._key, self._users, self._acls = before
            raise ConfigError(f"users cannot be read: {self._path}: {error}") from None
        self._stamp = self._look()
        return accounts

    def load_if_changed(self) -> bool:
        """Whether another server of this machine, with the same folder, changed something."""
        if self._look() == self._stamp:
            return False
        try:
            self.load()
        except ConfigError as error:
            self._stamp = self._look()
            logger.error("the users stay as they were: %s", error)
            return False
        return True

    @property
    def accounts(self) -> Accounts:
        """The accounts in force. Raises ConfigError when a secret cannot be unsealed."""
        return Accounts({name: self._account(user) for name, user in self._users.items()})

    # -------------------------------------------------------------------------------------------- users

    def create(self, said: UserInfo) -> None:
        name = said.username or ""
        if not _NAME.fullmatch(name):
            raise _invalid("The username must be 1 to 127 letters, digits or one of _ . @ -")
        if name in self._users:
            raise _invalid(f"The user is existed: {name}; change it with an update")
        if len(self._users) >= USERS_MAX:
            raise _invalid(f"there are {USERS_MAX} users already, and no more are taken")
        if not said.password:
            raise _invalid("The password is blank")
        self._save_user(_StoredUser(name, ""), said)

    def update(self, said: UserInfo) -> None:
        self._save_user(self._known(said.username or ""), said)

    def delete(self, name: str) -> None:
        """The user and its policies. Nothing happens when there is none."""
        users = {each: user for each, user in self._users.items() if each != name}
        acls = {subject: acl for subject, acl in self._acls.items() if subject != SUBJECT_PREFIX + name}
        self._save(users, acls)

    def shown(self, name: str) -> UserInfo | None:
        """A user as it may be shown: without the password."""
        user = self._users.get(name)
        return None if user is None else _shown(user)

    def listed(self, filter_text: str | None) -> list[UserInfo]:
        return [_shown(user) for name, user in sorted(self._users.items()) if (filter_text or "") in name]

    def is_there(self, name: str) -> bool:
        return name in self._users

    def _known(self, name: str) -> _StoredUser:
        user = self._users.get(name)
        if user is None:
            raise NotFound(ResponseCode.USER_NOT_EXIST, f"The user is not exist: {printable(name)}")
        return user

    def _save_user(self, user: _StoredUser, said: UserInfo) -> None:
        changes: dict[str, str] = {}
        if said.password:
            changes["secret"] = seal(said.password.encode(), self._key, self._secret_bytes(NONCE_BYTES))
        if said.user_type is not None:
            changes["user_type"] = _one_of(_TYPES, said.user_type, "userType")
        if said.user_status is not None:
            changes["user_status"] = _one_of(_STATES, said.user_status, "userStatus")
        new = msgspec.structs.replace(user, **changes)
        self._save({**self._users, new.username: new}, self._acls)

    # ----------------------------------------------------------------------------------------- policies

    def create_acl(self, acl: AclInfo) -> None:
        """Give a user policies; with those it has already for other resources."""
        self._put_acl(acl)

    def update_acl(self, acl: AclInfo) -> None:
        self._put_acl(acl)

    def delete_acl(self, subject: str, policy_type: str | None, resource: str | None) -> None:
        """All policies of a subject, or its entries for one resource."""
        acl = self._acls.get(subject)
        if acl is None:
            raise NotFound(ResponseCode.POLICY_NOT_EXIST, f"The acl is not exist: {printable(subject)}")
        acls = dict(self._acls)
        kept = [] if not resource else _without(acl.policies, policy_type or "Custom", resource)
        if kept:
            acls[subject] = AclInfo(policies=kept, subject=subject)
        else:
            del acls[subject]
        self._save(self._users, acls)

    def acl(self, subject: str) -> AclInfo | None:
        return self._acls.get(subject)

    def acls(self, subject_filter: str | None, resource_filter: str | None) -> list[AclInfo]:
        found = []
        for subject, acl in sorted(self._acls.items()):
            if (subject_filter or "") not in subject:
                continue
            policies = [_filtered(policy, resource_filter or "") for policy in acl.policies]
            if any(policy.entries for policy in policies):
                found.append(AclInfo(policies=[each for each in policies if each.entries], subject=subject))
        return found

    def _put_acl(self, said: AclInfo) -> None:
        subject = said.subject or ""
        self._known(subject.removeprefix(SUBJECT_PREFIX) if subject.startswith(SUBJECT_PREFIX) else "")
        if not said.policies or not all(policy.entries for policy in said.policies):
            raise _invalid("The policies is empty: name resources, actions and a decision")
        known = self._acls.get(subject, AclInfo(subject=subject))
        merged = AclInfo(policies=_merged(known.policies, said.policies), subject=subject)
        if sum(len(policy.entries) for policy in merged.policies) > ENTRIES_MAX:
            raise _invalid(f"more than {ENTRIES_MAX} entries for one user are not taken")
        self._save(self._users, {**self._acls, subject: merged})

    # ------------------------------------------------------------------------------------------ keeping

    def _save(self, users: dict[str, _StoredUser], acls: dict[str, AclInfo]) -> None:
        data = msgspec.json.encode(_Stored(list(users.values()), list(acls.values())))
        self._folder.write_atomically(self._path, sealed(msgspec.json.format(data, indent=1)), private=True)
        self._users, self._acls = users, acls
        self._stamp = self._look()

    def _look(self) -> int:
        try:
            return self._folder.modified_ms(self._path)
        except OSError:
            return 0

    def _account(self, user: _StoredUser) -> Account:
        acl = self._acls.get(SUBJECT_PREFIX + user.username)
        policies = [] if acl is None else acl.policies
        return Account(
            name=user.username,
            secret=unseal(user.secret, self._key),
            is_super=user.user_type == "Super",
            is_enabled=user.user_status == "enable",
            policy=Policy(_entries(policies, "Custom"), _entries(policies, "Default")),
            origin=self._path,
        )


def _shown(user: _StoredUser) -> UserInfo:
    return UserInfo(username=user.username, user_type=user.user_type, user_status=user.user_status)


def _entries(policies: Iterable[PolicyInfo], policy_type: str) -> list[Entry]:
    return [
        _entry(entry)
        for policy in policies
        if (policy.policy_type or "Custom") == policy_type
        for entry in policy.entries
    ]


def _entry(said: PolicyEntryInfo) -> Entry:
    actions = 0
    for action in said.actions:
        if action not in ACTION_NAMES:
            raise ConfigError(f"{printable(action)!r} is no action: {', '.join(ACTION_NAMES)} are")
        actions |= ACTION_NAMES[action]
    return Entry(
        parse_pattern(said.resource or ""),
        actions,
        is_allowed=said.decision == "Allow",
        addresses=Addresses(said.source_ips) if said.source_ips else None,
        groups=frozenset(said.groups or ()),
        is_only=bool(said.groups),
    )


def _checked(said: PolicyEntryInfo) -> PolicyEntryInfo:
    """The entry in our spelling. Raises Refused when it makes no sense."""
    try:
        pattern = parse_pattern(said.resource or "")
        Addresses(said.source_ips or ())
    except ConfigError as error:
        raise _invalid(str(error)) from None
    if not said.actions:
        raise _invalid("The actions is empty")
    return PolicyEntryInfo(
        actions=[_one_of(_ACTIONS, action, "action") for action in said.actions],
        decision=_one_of(_DECISIONS, said.decision or "", "decision"),
        groups=said.groups or None,
        resource=str(pattern),
        source_ips=said.source_ips or None,
    )


def _merged(known: list[PolicyInfo], said: list[PolicyInfo]) -> list[PolicyInfo]:
    """`said` over `known`: an entry replaces the one for the same resource, and the same groups."""
    by_type = {policy.policy_type or "Custom": list(policy.entries) for policy in known}
    for policy in said:
        entries = by_type.setdefault(_one_of(_POLICY_TYPES, policy.policy_type or "Custom", "policyType"), [])
        for entry in map(_checked, policy.entries):
            entries[:] = [
                each for each in entries if (each.resource, each.groups) != (entry.resource, entry.groups)
            ]
            entries.append(entry)
    return [PolicyInfo(policy_type=kind, entries=entries) for kind, entries in by_type.items()]


def _without(policies: list[PolicyInfo], policy_type: str, resource: str) -> list[PolicyInfo]:
    policy_type = _one_of(_POLICY_TYPES, policy_type, "policyType")
    try:
        name = str(parse_pattern(resource))
    except ConfigError as error:
        raise _invalid(str(error)) from None
    kept = [
        PolicyInfo(
            policy_type=policy.policy_type,
            entries=[
                each for each in policy.entries if policy.policy_type != policy_type or each.resource != name
            ],
        )
        for policy in policies
    ]
    return [policy for policy in kept if policy.entries]


def _filtered(policy: PolicyInfo, resource_filter: str) -> PolicyInfo:
    entries = [entry for entry in policy.entries if resource_filter in (entry.resource or "")]
    return PolicyInfo(policy_type=policy.policy_type, entries=entries)


def _one_of(words: dict[str, str], given: str, what: str) -> str:
    word = words.get(given.strip().lower())
    if word is None:
        raise _invalid(f"{what} {printable(given)!r} is not one of {', '.join(words.values())}")
    return word


def _invalid(remark: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, remark)
