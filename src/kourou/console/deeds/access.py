"""Deeds around the brokers' own access control: users and policies of 5.x, accounts of the ACL file of 4.x.

Passwords and secrets go one way only: they are no fields of the audit log, and no server tells them.
"""

from __future__ import annotations

from typing import Any

from kourou.admin import access
from kourou.console.deeds.deed import Deed, Field, option, typed
from kourou.console.desk import Desk
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.visit import Visit
from kourou.protocol.access_messages import SaveAccount

ACTIONS = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")

USER = Field("name", "The user's name at the brokers.", needed=True)
ACCOUNT = Field("access_key", "The account's access key.", needed=True)


def _users(desk: Desk, given: Given, visit: Visit) -> Any:
    return access.users(desk.connection)


def _create_user(desk: Desk, given: Given, visit: Visit) -> Any:
    password = str(given.raw("password") or "")
    done = access.create_user(desk.connection, given.text("name"), password, is_super=given.yes("is_super"))
    return {"name": given.text("name"), "servers": done}


def _update_user(desk: Desk, given: Given, visit: Visit) -> Any:
    done = access.update_user(
        desk.connection,
        given.text("name"),
        password=str(given.raw("password")) if "password" in given else None,
        kind=given.choice("kind", ("Super", "Normal")) if "kind" in given else None,
        status=given.choice("status", ("enable", "disable")) if "status" in given else None,
    )
    return {"name": given.text("name"), "servers": done}


def _delete_user(desk: Desk, given: Given, visit: Visit) -> Any:
    return {"name": given.text("name"), "servers": access.delete_user(desk.connection, given.text("name"))}


def _update_command(given: Given) -> str:
    status = given.text("status", "")
    return typed(
        *("kourou", "user", "update", given.text("name", "NAME")),
        *option(f"--{status}", status in ("enable", "disable")),
        *option("--kind", given.text("kind", "")),
        *option("--password", "password" in given),
        "--yes",
    )


def _grants(desk: Desk, given: Given, visit: Visit) -> Any:
    return access.grants(desk.connection)


def _grant(desk: Desk, given: Given, visit: Visit) -> Any:
    done = access.grant(
        desk.connection,
        given.text("name"),
        given.texts("resources"),
        given.texts("actions"),
        allow=given.choice("decision", ("Allow", "Deny"), "Allow") == "Allow",
        sources=given.texts("sources"),
        groups=given.texts("groups"),
    )
    return {"name": given.text("name"), "servers": done}


def _grant_command(given: Given) -> str:
    return typed(
        *("kourou", "acl", "grant", given.text("name", "NAME")),
        ",".join(given.texts("actions")) or "Pub,Sub",
        *(given.texts("resources") or ["Topic:NAME"]),
        *option("--deny", given.text("decision", "") == "Deny"),
        *[word for each in given.texts("sources") for word in ("--from", each)],
        *[word for each in given.texts("groups") for word in ("--group", each)],
        "--yes",
    )


def _revoke(desk: Desk, given: Given, visit: Visit) -> Any:
    done = access.revoke(desk.connection, given.text("name"), given.text("resource", "") or None)
    return {"name": given.text("name"), "servers": done}


def _revoke_command(given: Given) -> str:
    resource = given.text("resource", "") or None
    return typed("kourou", "acl", "revoke", given.text("name", "NAME"), resource, "--yes")


def _accounts(desk: Desk, given: Given, visit: Visit) -> Any:
    accounts, white = access.accounts(desk.connection)
    return {"accounts": accounts, "white_list": white}


def _save_account(desk: Desk, given: Given, visit: Visit) -> Any:
    account = SaveAccount(
        given.text("access_key"),
        secret_key=str(given.raw("secret_key")) if "secret_key" in given else None,
        white_remote_address=given.text("white_remote_address", "") or None,
        admin=given.yes("admin") if "admin" in given else None,
        default_topic_perm=given.text("default_topic_perm", "") or None,
        default_group_perm=given.text("default_group_perm", "") or None,
        topic_perms=",".join(given.texts("topic_perms")) or None,
        group_perms=",".join(given.texts("group_perms")) or None,
    )
    return {"access_key": account.access_key, "servers": access.save_account(desk.connection, account)}


def _save_account_command(given: Given) -> str:
    return typed(
        *("kourou", "acl", "account", "save", given.text("access_key", "KEY")),
        *option("--admin", given.yes("admin")),
        *option("--default-topic-perm", given.text("default_topic_perm", "")),
        *option("--default-group-perm", given.text("default_group_perm", "")),
        *[word for each in given.texts("topic_perms") for word in ("--topic-perm", each)],
        *[word for each in given.texts("group_perms") for word in ("--group-perm", each)],
        *option("--white-address", given.text("white_remote_address", "")),
        "--yes",
    )


def _delete_account(desk: Desk, given: Given, visit: Visit) -> Any:
    key = given.text("access_key")
    return {"access_key": key, "servers": access.delete_account(desk.connection, key)}


USERS = Deed(
    "access.users",
    "Users of brokers and name servers",
    Role.ADMIN,
    "GET",
    "/access/users",
    _users,
    command=lambda given: typed("kourou", "user", "ls"),
)
CREATE_USER = Deed(
    "access.create-user",
    "Make a user at all servers",
    Role.ADMIN,
    "PUT",
    "/access/users/{name}",
    _create_user,
    (
        USER,
        Field("password", "What its requests are signed with.", needed=True, audited=False),
        Field("is_super", "Whether it may do everything.", "boolean"),
    ),
    on="name",
    command=lambda given: typed(
        *("kourou", "user", "create", given.text("name", "NAME")),
        *option("--super", given.yes("is_super")),
        "--yes",
    ),
)
UPDATE_USER = Deed(
    "access.update-user",
    "Change a user at all servers",
    Role.ADMIN,
    "PATCH",
    "/access/users/{name}",
    _update_user,
    (
        USER,
        Field("password", "A new one.", audited=False),
        Field("kind", "What kind of user.", choices=("Super", "Normal")),
        Field("status", "Whether it may come in.", choices=("enable", "disable")),
    ),
    on="name",
    command=_update_command,
)
DELETE_USER = Deed(
    "access.delete-user",
    "Delete a user at all servers",
    Role.ADMIN,
    "DELETE",
    "/access/users/{name}",
    _delete_user,
    (USER,),
    on="name",
    command=lambda given: typed("kourou", "user", "rm", given.text("name", "NAME"), "--yes"),
)
GRANTS = Deed(
    "access.policies",
    "What users may do",
    Role.ADMIN,
    "GET",
    "/access/policies",
    _grants,
    command=lambda given: typed("kourou", "acl", "ls"),
)
GRANT = Deed(
    "access.grant",
    "Allow or deny a user something",
    Role.ADMIN,
    "POST",
    "/access/policies/{name}",
    _grant,
    (
        USER,
        Field("resources", "Topic:orders, Group:*, Topic:shop-*.", "array", needed=True),
        Field("actions", f"Of {', '.join(ACTIONS)}.", "array", needed=True),
        Field("decision", "By default it is allowed.", choices=("Allow", "Deny")),
        Field("sources", "Only from these addresses.", "array"),
        Field("groups", "Only as these groups.", "array"),
    ),
    on="name",
    command=_grant_command,
)
REVOKE = Deed(
    "access.revoke",
    "Forget what was said of a user and a resource, or of all of them",
    Role.ADMIN,
    "DELETE",
    "/access/policies/{name}",
    _revoke,
    (USER, Field("resource", "Only this one.")),
    on="name",
    command=_revoke_command,
)
ACCOUNTS = Deed(
    "access.accounts",
    "Accounts of the ACL file",
    Role.ADMIN,
    "GET",
    "/access/accounts",
    _accounts,
    command=lambda given: typed("kourou", "acl", "account", "ls"),
)
SAVE_ACCOUNT = Deed(
    "access.save-account",
    "Make or change an account of the ACL file",
    Role.ADMIN,
    "PUT",
    "/access/accounts/{access_key}",
    _save_account,
    (
        ACCOUNT,
        Field("secret_key", "Its secret; without one it stays.", audited=False),
        Field("admin", "Whether it may do everything.", "boolean"),
        Field("default_topic_perm", "DENY, PUB, SUB or PUB|SUB."),
        Field("default_group_perm", "DENY or SUB."),
        Field("topic_perms", "orders=PUB|SUB.", "array"),
        Field("group_perms", "shop=SUB.", "array"),
        Field("white_remote_address", "Peers from there need no signature."),
    ),
    on="access_key",
    command=_save_account_command,
)
DELETE_ACCOUNT = Deed(
    "access.delete-account",
    "Delete an account of the ACL file",
    Role.ADMIN,
    "DELETE",
    "/access/accounts/{access_key}",
    _delete_account,
    (ACCOUNT,),
    on="access_key",
    command=lambda given: typed("kourou", "acl", "account", "rm", given.text("access_key", "KEY"), "--yes"),
)

DEEDS = (
    *(USERS, CREATE_USER, UPDATE_USER, DELETE_USER),
    *(GRANTS, GRANT, REVOKE),
    *(ACCOUNTS, SAVE_ACCOUNT, DELETE_ACCOUNT),
)
