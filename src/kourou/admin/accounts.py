"""Who may do what at a server, broker or name server: accounts of 4.x's ACL file, users and policies of 5.x.

The requests to one server; each keeps its own. `access.py` makes a change at all servers of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from kourou.admin.connection import Connection
from kourou.protocol import fastjson
from kourou.protocol.access_messages import (
    AccountNamed,
    AclConfig,
    AclInfo,
    DeleteAcl,
    ListAcls,
    ListUsers,
    PolicyEntryInfo,
    PolicyInfo,
    SaveAccount,
    SaveGlobalWhiteList,
    SubjectNamed,
    UserInfo,
    UserNamed,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request

Listed = TypeVar("Listed", UserInfo, AclInfo)

# ------------------------------------------------------------------------------------- the ACL file of 4.x


def accounts(connection: Connection, address: str) -> AclConfig:
    """All accounts, without their secrets, and the global white list."""
    reply = connection.ask(address, request(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG), "its accounts")
    return AclConfig.decode(reply.body)


def save_account(connection: Connection, address: str, account: SaveAccount) -> None:
    """Make or change an account; what is None stays as it is."""
    command = request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account)
    connection.ask(address, command, f"account {account.access_key}")


def delete_account(connection: Connection, address: str, access_key: str) -> None:
    command = request(RequestCode.DELETE_ACL_CONFIG, AccountNamed(access_key=access_key))
    connection.ask(address, command, f"account {access_key}")


def save_white_list(connection: Connection, address: str, patterns: Sequence[str]) -> None:
    """From these addresses everything is allowed, and nothing need be signed."""
    header = SaveGlobalWhiteList(global_white_addrs=",".join(patterns))
    connection.ask(
        address, request(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header), "the global white list"
    )


# --------------------------------------------------------------------------- users and policies of 5.x


def users(connection: Connection, address: str, filter_text: str | None = None) -> list[UserInfo]:
    """All users whose name contains the text, without their passwords."""
    command = request(RequestCode.AUTH_LIST_USER, ListUsers(filter=filter_text))
    return _listed(connection.ask(address, command, "its users").body, UserInfo)


def create_user(
    connection: Connection, address: str, name: str, password: str, *, user_type: str = "Normal"
) -> None:
    said = UserInfo(username=name, password=password, user_type=user_type)
    _tell(connection, address, RequestCode.AUTH_CREATE_USER, UserNamed(username=name), said, f"user {name}")


def update_user(
    connection: Connection,
    address: str,
    name: str,
    *,
    password: str | None = None,
    user_type: str | None = None,
    user_status: str | None = None,
) -> None:
    """Change what is given: another password, `Super` or `Normal`, `enable` or `disable`."""
    said = UserInfo(username=name, password=password, user_type=user_type, user_status=user_status)
    _tell(connection, address, RequestCode.AUTH_UPDATE_USER, UserNamed(username=name), said, f"user {name}")


def delete_user(connection: Connection, address: str, name: str) -> None:
    """The user and its policies."""
    command = request(RequestCode.AUTH_DELETE_USER, UserNamed(username=name))
    connection.ask(address, command, f"user {name}")


def policies(
    connection: Connection, address: str, subject: str | None = None, resource: str | None = None
) -> list[AclInfo]:
    """All policies whose subject (`User:name`) and resource contain the texts."""
    header = ListAcls(subject_filter=subject, resource_filter=resource)
    reply = connection.ask(address, request(RequestCode.AUTH_LIST_ACL, header), "its policies")
    return _listed(reply.body, AclInfo)


def allow(
    connection: Connection,
    address: str,
    user: str,
    resources: Iterable[str],
    actions: Sequence[str],
    *,
    decision: str = "Allow",
    source_ips: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> None:
    """Let a user do this (`Pub`, `Sub`, `Get`, …) with resources (`Topic:orders`, `Topic:order*`, `Group:*`).

    With `decision="Deny"`: keep it from it. With `groups`, these may and no others.
    """
    entries = [
        PolicyEntryInfo(
            resource=resource,
            actions=list(actions),
            decision=decision,
            source_ips=list(source_ips) or None,
            groups=list(groups) or None,
        )
        for resource in resources
    ]
    subject = f"User:{user}"
    acl = AclInfo(subject=subject, policies=[PolicyInfo(entries=entries)])
    header = SubjectNamed(subject=subject)
    _tell(connection, address, RequestCode.AUTH_UPDATE_ACL, header, acl, f"policies of {user}")


def forget_policies(connection: Connection, address: str, user: str, resource: str | None = None) -> None:
    """Take away a user's policies for one resource, or all."""
    header = DeleteAcl(subject=f"User:{user}", resource=resource)
    connection.ask(address, request(RequestCode.AUTH_DELETE_ACL, header), f"policies of {user}")


def _tell(
    connection: Connection,
    address: str,
    code: int,
    header: msgspec.Struct,
    body: UserInfo | AclInfo,
    what: str,
) -> None:
    connection.ask(address, request(code, header, body.encode()), what)


def _listed(body: bytes, kind: type[Listed]) -> list[Listed]:
    """A bare array; nothing at all when there is nothing."""
    return fastjson.decode(body, list[kind]) if body else []  # type: ignore[valid-type]
