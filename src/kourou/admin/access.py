"""Who may do what in a whole cluster: what `accounts.py` does at one server, done at all of them.

Every server has users and accounts of its own. Those that do not ask who their peers are have none, and are
passed over; when that leaves nobody, it is an error that says so. No secret ever comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kourou.admin import accounts as at_server
from kourou.admin import cluster as clusters
from kourou.admin import nameservers
from kourou.admin.connection import Connection
from kourou.errors import Denied, MQError, NotFound, Refused
from kourou.protocol.access_messages import PlainAccessConfig, SaveAccount
from kourou.protocol.codes import ResponseCode

ABSENT = (ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
"""What a server says that has no users, or no ACL file."""

NO_SUCH_ACCOUNT = 210
"""What 4.x answers when an account could not be deleted."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class User:
    """A user, as one server knows it."""

    server: str
    name: str
    kind: str
    status: str


@dataclass(frozen=True)
class Grant:
    """What a user may do with one resource, or may not, at one server."""

    server: str
    subject: str
    policy: str
    resource: str
    actions: tuple[str, ...]
    decision: str
    sources: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def user(self) -> str:
        return self.subject.removeprefix("User:")


@dataclass(frozen=True)
class Account:
    """An account of the ACL file of one server."""

    server: str
    access_key: str
    admin: bool
    default_topic_perm: str
    default_group_perm: str
    topic_perms: tuple[str, ...]
    group_perms: tuple[str, ...]
    white_remote_address: str


def servers(connection: Connection, broker: str | None = None) -> list[str]:
    """The addresses of all name servers and brokers, or of one broker."""
    if broker is not None:
        return [clusters.node(connection, broker).address]
    return [*nameservers.addresses(connection), *(node.address for node in clusters.nodes(connection))]


# -------------------------------------------------------------------------------------------------- users


def users(connection: Connection, at: Iterable[str] | None = None, match: str | None = None) -> list[User]:
    """Every user of every server."""
    found = _each(connection, at, lambda server: at_server.users(connection, server, match))
    return [
        User(server, each.username or "", each.user_type or "", each.user_status or "")
        for server, listed in found
        for each in listed
    ]


def create_user(
    connection: Connection,
    name: str,
    password: str,
    *,
    is_super: bool = False,
    at: Iterable[str] | None = None,
) -> list[str]:
    """Make a user; returns the servers that did."""
    kind = "Super" if is_super else "Normal"
    return _done(
        connection,
        at,
        lambda to: at_server.create_user(connection, to, name, password, user_type=kind),
        forgiven=(ResponseCode.INVALID_PARAMETER,),
    )


def update_user(
    connection: Connection,
    name: str,
    *,
    password: str | None = None,
    kind: str | None = None,
    status: str | None = None,
    at: Iterable[str] | None = None,
) -> list[str]:
    """Change a user; what is not said stays."""
    return _done(
        connection,
        at,
        lambda to: at_server.update_user(
            connection, to, name, password=password, user_type=kind, user_status=status
        ),
    )


def delete_user(connection: Connection, name: str, at: Iterable[str] | None = None) -> list[str]:
    return _done(
        connection,
        at,
        lambda to: at_server.delete_user(connection, to, name),
        forgiven=(ResponseCode.USER_NOT_EXIST,),
    )


# ----------------------------------------------------------------------------------------------- policies


def grants(
    connection: Connection,
    at: Iterable[str] | None = None,
    *,
    user: str | None = None,
    resource: str | None = None,
) -> list[Grant]:
    """Every entry of every policy."""
    subject = None if user is None else f"User:{plain_name(user)}"
    found = _each(connection, at, lambda server: at_server.policies(connection, server, subject, resource))
    return [
        Grant(
            server,
            acl.subject or "",
            policy.policy_type or "Custom",
            entry.resource or "",
            tuple(entry.actions),
            entry.decision or "Allow",
            tuple(entry.source_ips or ()),
            tuple(entry.groups or ()),
        )
        for server, acls in found
        for acl in acls
        for policy in acl.policies
        for entry in policy.entries
    ]


def grant(
    connection: Connection,
    user: str,
    resources: Sequence[str],
    actions: Sequence[str],
    *,
    allow: bool = True,
    sources: Sequence[str] = (),
    groups: Sequence[str] = (),
    at: Iterable[str] | None = None,
) -> list[str]:
    """Allow (or deny) a user some actions with some resources: `Topic:orders`, `Group:*`, `Topic:shop-*`."""
    return _done(
        connection,
        at,
        lambda to: at_server.allow(
            connection,
            to,
            plain_name(user),
            resources,
            actions,
            decision="Allow" if allow else "Deny",
            source_ips=sources,
            groups=groups,
        ),
    )


def revoke(
    connection: Connection, user: str, resource: str | None = None, at: Iterable[str] | None = None
) -> list[str]:
    """Forget what was said of a user and one resource, or everything."""
    return _done(
        connection,
        at,
        lambda to: at_server.forget_policies(connection, to, plain_name(user), resource),
        forgiven=(ResponseCode.POLICY_NOT_EXIST,),
    )


def plain_name(user: str) -> str:
    """`User:name` is `name`."""
    return user.removeprefix("User:")


# ----------------------------------------------------------------------------------------------- accounts


def accounts(
    connection: Connection, at: Iterable[str] | None = None
) -> tuple[list[Account], dict[str, list[str]]]:
    """The accounts of each server's ACL file, and its global white list."""
    found = _each(connection, at, lambda server: at_server.accounts(connection, server))
    listed = [_account(server, each) for server, config in found for each in config.plain_access_configs]
    return listed, {server: config.global_white_addrs for server, config in found}


def _account(server: str, each: PlainAccessConfig) -> Account:
    return Account(
        server,
        each.access_key,
        each.admin,
        each.default_topic_perm or "",
        each.default_group_perm or "",
        tuple(each.topic_perms),
        tuple(each.group_perms),
        each.white_remote_address or "",
    )


def save_account(connection: Connection, account: SaveAccount, at: Iterable[str] | None = None) -> list[str]:
    return _done(connection, at, lambda to: at_server.save_account(connection, to, account))


def delete_account(connection: Connection, access_key: str, at: Iterable[str] | None = None) -> list[str]:
    return _done(
        connection,
        at,
        lambda to: at_server.delete_account(connection, to, access_key),
        forgiven=(NO_SUCH_ACCOUNT,),
    )


def save_white_list(
    connection: Connection, patterns: Sequence[str], at: Iterable[str] | None = None
) -> list[str]:
    return _done(connection, at, lambda to: at_server.save_white_list(connection, to, patterns))


# ---------------------------------------------------------------------------------------------- all of them


def _done(
    connection: Connection,
    at: Iterable[str] | None,
    do: Callable[[str], None],
    forgiven: Sequence[int] = (),
) -> list[str]:
    """Who did it. A name server and a broker of one process share their users, and then only one of them
    does: what the other says is `forgiven`."""

    def told(server: str) -> str:
        do(server)
        return server

    return [server for server, _ in _each(connection, at, told, forgiven)]


def _each(
    connection: Connection,
    at: Iterable[str] | None,
    do: Callable[[str], Result],
    forgiven: Sequence[int] = (),
) -> list[tuple[str, Result]]:
    """What came of it at those who have users or accounts; raises when nobody has, or anything else fails."""
    answered: list[tuple[str, Result]] = []
    failures: list[MQError] = []
    absent: MQError | None = None
    for outcome in connection.each(servers(connection) if at is None else at, do):
        error = outcome.error
        if error is None:
            answered.append((outcome.of, outcome.result))  # type: ignore[arg-type]
        elif isinstance(error, Refused) and not isinstance(error, Denied | NotFound) and error.code in ABSENT:
            absent = absent or error
        else:
            failures.append(error)
    for error in failures:
        if not answered or not (isinstance(error, Refused) and error.code in forgiven):
            raise error
    if not answered and absent is not None:
        raise absent
    return answered
