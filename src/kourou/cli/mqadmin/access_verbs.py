"""Users, policies and accounts, in the original's words: those of 5.x, and the five of 4.9."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.cli.mqadmin.verbs import Given, printf, verb
from kourou.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from kourou.admin import Connection

USER = "%-16s  %-22s  %-22s  %-22s"
ACL = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s"


def _each(connection: Connection, given: Given) -> list[str]:
    return [node.address for node in given.brokers(connection)]


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


@verb("createUser", "c:clusterName", "b:brokerAddr", "u:username!", "p:password!", "t:userType")
def create_user(connection: Connection, given: Given) -> None:
    """Create user to cluster."""
    from kourou.admin import access

    is_super = (given.get("userType") or "").lower() == "super"
    for address in _each(connection, given):
        access.create_user(connection, given("username"), given("password"), is_super=is_super, at=[address])
        printf("create user to %s success.", address)


@verb(
    "updateUser", "c:clusterName", "b:brokerAddr", "u:username!", "p:password", "t:userType", "s:userStatus"
)
def update_user(connection: Connection, given: Given) -> None:
    """Update user to cluster."""
    from kourou.admin import access

    for address in _each(connection, given):
        access.update_user(
            connection,
            given("username"),
            password=given.get("password"),
            kind=given.get("userType"),
            status=given.get("userStatus"),
            at=[address],
        )
        printf("update user to %s success.", address)


@verb("deleteUser", "c:clusterName", "b:brokerAddr", "u:username!")
def delete_user(connection: Connection, given: Given) -> None:
    """Delete user from cluster."""
    from kourou.admin import access

    for address in _each(connection, given):
        access.delete_user(connection, given("username"), [address])
        printf("delete user to %s success.", address)


@verb("getUser", "b:brokerAddr", "c:clusterName", "u:username!")
def get_user(connection: Connection, given: Given) -> None:
    """Get user from cluster."""
    _print_users(connection, given, given("username"))


@verb("listUser", "b:brokerAddr", "c:clusterName", "f:filter")
def list_user(connection: Connection, given: Given) -> None:
    """List user from cluster."""
    _print_users(connection, given, None)


def _print_users(connection: Connection, given: Given, name: str | None) -> None:
    """Passwords are not told by our brokers; the column is the original's."""
    from kourou.admin import access

    found = access.users(connection, _each(connection, given), given.get("filter"))
    printf(USER, "#UserName", "#Password", "#UserType", "#UserStatus")
    for each in found:
        if name in (None, each.name):
            printf(USER, each.name, "", each.kind, each.status)


@verb("copyUser", "f:fromBroker!", "t:toBroker!", "u:usernames")
def copy_user(connection: Connection, given: Given) -> None:
    """Copy user to cluster."""
    raise ConfigError(
        "copyUser cannot be done: no broker of ours tells a password; make the user at the other broker, too"
    )


@verb(
    "createAcl",
    "c:clusterName",
    "b:brokerAddr",
    "s:subject!",
    "r:resources!",
    "a:actions!",
    "i:sourceIp",
    "d:decision!",
)
def create_acl(connection: Connection, given: Given) -> None:
    """Create acl to cluster."""
    _granted(connection, given, "create acl to %s success.")


@verb(
    "updateAcl",
    "c:clusterName",
    "b:brokerAddr",
    "s:subject!",
    "r:resources!",
    "a:actions!",
    "d:decision!",
    "i:sourceIp",
)
def update_acl(connection: Connection, given: Given) -> None:
    """Update acl to cluster."""
    _granted(connection, given, "update acl to %s success.")


def _granted(connection: Connection, given: Given, done: str) -> None:
    from kourou.admin import access

    for address in _each(connection, given):
        access.grant(
            connection,
            given("subject"),
            _list(given("resources")),
            _list(given("actions")),
            allow=given("decision").lower() == "allow",
            sources=_list(given.get("sourceIp")),
            at=[address],
        )
        printf(done, address)


@verb("deleteAcl", "c:clusterName", "b:brokerAddr", "s:subject!", "r:resources")
def delete_acl(connection: Connection, given: Given) -> None:
    """Delete acl from cluster."""
    from kourou.admin import access

    for address in _each(connection, given):
        resources: list[str | None] = [*_list(given.get("resources"))]
        for resource in resources or [None]:
            access.revoke(connection, given("subject"), resource, [address])
        printf("delete acl to %s success.", address)


@verb("getAcl", "b:brokerAddr", "c:clusterName", "s:subject!")
def get_acl(connection: Connection, given: Given) -> None:
    """Get acl from cluster."""
    _print_acls(connection, given)


@verb("listAcl", "b:brokerAddr", "c:clusterName", "s:subject", "r:resource")
def list_acl(connection: Connection, given: Given) -> None:
    """List acl from cluster."""
    _print_acls(connection, given)


def _print_acls(connection: Connection, given: Given) -> None:
    from kourou.admin import access

    found = access.grants(
        connection, _each(connection, given), user=given.get("subject"), resource=given.get("resource")
    )
    printf(ACL, "#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    for each in found:
        actions, sources = (
            f"[{', '.join(each.actions)}]",
            f"[{', '.join(each.sources)}]" if each.sources else "null",
        )
        printf(ACL, each.subject, each.policy, each.resource, actions, sources, each.decision)


@verb("copyAcl", "f:fromBroker!", "t:toBroker!", "s:subjects")
def copy_acl(connection: Connection, given: Given) -> None:
    """Copy acl to cluster."""
    from kourou.admin import access

    source, target, wanted = given("fromBroker"), given("toBroker"), set(_list(given.get("subjects")))
    for each in access.grants(connection, [source]):
        if wanted and each.subject not in wanted:
            continue
        access.grant(
            connection,
            each.subject,
            [each.resource],
            each.actions,
            allow=each.decision == "Allow",
            sources=each.sources,
            groups=each.groups,
            at=[target],
        )
        printf("copy acl of %s from %s to %s success.", each.subject, source, target)


# ------------------------------------------------------------------------------------------------------ 4.9


@verb(
    "updateAclConfig",
    "b:brokerAddr",
    "c:clusterName",
    "a:accessKey!",
    "s:secretKey",
    "m:admin",
    "w:whiteRemoteAddress",
    "i:defaultTopicPerm",
    "u:defaultGroupPerm",
    "t:topicPerms",
    "g:groupPerms",
)
def update_acl_config(connection: Connection, given: Given) -> None:
    """Update acl config yaml file in broker."""
    from kourou.admin import access
    from kourou.protocol.access_messages import SaveAccount

    wanted = SaveAccount(
        access_key=given("accessKey"),
        secret_key=given.get("secretKey"),
        white_remote_address=given.get("whiteRemoteAddress"),
        admin=given.flag("admin") if given.has("admin") else None,
        default_topic_perm=given.get("defaultTopicPerm"),
        default_group_perm=given.get("defaultGroupPerm"),
        topic_perms=given.get("topicPerms"),
        group_perms=given.get("groupPerms"),
    )
    for address in _each(connection, given):
        access.save_account(connection, wanted, [address])
        printf("create or update plain access config to %s success.", address)


@verb("deleteAclConfig", "b:brokerAddr", "c:clusterName", "a:accessKey!")
def delete_acl_config(connection: Connection, given: Given) -> None:
    """Delete Acl Config Account in broker."""
    from kourou.admin import access

    for address in _each(connection, given):
        access.delete_account(connection, given("accessKey"), [address])
        printf("delete plain access config account from %s success.", address)


@verb(
    "updateGlobalWhiteAddr",
    "b:brokerAddr",
    "c:clusterName",
    "g:globalWhiteRemoteAddresses!",
    "p:aclFileFullPath",
)
def update_global_white_addr(connection: Connection, given: Given) -> None:
    """Update global white address for acl Config File in broker."""
    from kourou.admin import access

    for address in _each(connection, given):
        patterns = _list(given("globalWhiteRemoteAddresses"))
        access.save_white_list(connection, patterns, [address])
        printf("update global white remote addresses to %s success.", address)


@verb("getAccessConfigSubCommand", "b:brokerAddr", "c:clusterName")
def get_access_config(connection: Connection, given: Given) -> None:
    """List all of acl config information in cluster."""
    from kourou.admin import access

    accounts, white = access.accounts(connection, _each(connection, given))
    printf("")
    printf("globalWhiteRemoteAddresses: %s", str(sorted({each for some in white.values() for each in some})))
    printf("accounts:")
    for each in accounts:
        printf("  accessKey                     : %s", each.access_key)
        printf("  whiteRemoteAddress            : %s", each.white_remote_address)
        printf("  admin                         : %s", "true" if each.admin else "false")
        printf("  defaultTopicPerm              : %s", each.default_topic_perm)
        printf("  defaultGroupPerm              : %s", each.default_group_perm)
        printf("  topicPerms                    : %s", str(list(each.topic_perms)))
        printf("  groupPerms                    : %s", str(list(each.group_perms)))
        printf("")


@verb("clusterAclConfigVersion", "b:brokerAddr", "c:clusterName")
def cluster_acl_config_version(connection: Connection, given: Given) -> None:
    """List all of acl config version information in cluster."""
    from kourou.cli.mqadmin.verbs import human_seconds
    from kourou.protocol.access_messages import AclVersionReply
    from kourou.protocol.bodies import DataVersion
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.command import request

    form = "%-16s  %-22s  %-22s  %-20s  %-22s"
    printf(
        form, "#Cluster Name", "#Broker Name", "#Broker Addr", "#AclConfigVersionNum", "#AclLastUpdateTime"
    )
    addresses = _each(connection, given)
    if not addresses:
        raise NotFound(1, "there is no broker")
    for address in addresses:
        command = request(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        told = connection.ask(address, command, "asked for the version of its accounts").parse(
            AclVersionReply
        )
        version = DataVersion.decode(told.version.encode())
        printf(
            form,
            told.cluster_name,
            told.broker_name,
            told.broker_addr,
            str(version.counter),
            human_seconds(version.timestamp),
        )
