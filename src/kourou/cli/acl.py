"""`kourou acl …`: what users and accounts may do."""

from __future__ import annotations

from dataclasses import asdict

import click

from kourou.cli.access_change import AccessChange, access_change_options
from kourou.cli.connection import broker_option, cluster_at, name_server_option
from kourou.cli.output import Row, format_option, show
from kourou.errors import ConfigError

ACTIONS = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")


@click.group()
def acl() -> None:
    """See and change what users and accounts may do."""


@acl.command("ls")
@click.option("--user", help="Only of this user.")
@click.option("--resource", help="Only about this resource, as Topic:orders.")
@broker_option
@name_server_option
@format_option
def list_grants(
    user: str | None, resource: str | None, broker: str | None, name_server: str, output: str
) -> None:
    """List what users may do, at every broker and name server."""
    from kourou.admin import access

    with cluster_at(name_server) as connection:
        found = access.grants(
            connection,
            access.servers(connection, broker),
            user=user,
            resource=resource,
        )
    rows: list[Row] = [
        {
            **asdict(each),
            "actions": list(each.actions),
            "sources": list(each.sources),
            "groups": list(each.groups),
        }
        for each in found
    ]
    show(
        rows,
        ("subject", "resource", "actions", "decision", "sources"),
        output,
        ("server", "policy", "groups"),
    )


@acl.command()
@click.argument("user")
@click.argument("actions", metavar="ACTIONS")
@click.argument("resources", metavar="RESOURCE…", nargs=-1, required=True)
@click.option("--deny", is_flag=True, help="Deny it instead; a denial wins over what is allowed.")
@click.option("--from", "sources", metavar="ADDRESS", multiple=True, help="Only from there; may be repeated.")
@click.option("--group", "groups", multiple=True, help="Only as this group; may be repeated. Ours alone.")
@access_change_options
def grant(
    user: str,
    actions: str,
    resources: tuple[str, ...],
    deny: bool,
    sources: tuple[str, ...],
    groups: tuple[str, ...],
    change: AccessChange,
) -> None:
    """Allow USER some ACTIONS with RESOURCEs. As Pub,Sub with Topic:orders, Group:billing, Topic:shop-*."""
    from kourou.admin import access

    wanted = [_action(each.strip()) for each in actions.split(",")]
    said = f"'{user}' is {'denied' if deny else 'allowed'} {', '.join(wanted)} with {', '.join(resources)}"
    change.make(
        f"User {said}",
        lambda connection, at: access.grant(
            connection, user, resources, wanted, allow=not deny, sources=sources, groups=groups, at=at
        ),
        f"user {said} at",
    )


def _action(given: str) -> str:
    for action in ACTIONS:
        if action.lower() == given.lower():
            return action
    raise ConfigError(f"'{given}' is no action: {', '.join(ACTIONS)}")


@acl.command()
@click.argument("user")
@click.argument("resource", required=False)
@access_change_options
def revoke(user: str, resource: str | None, change: AccessChange) -> None:
    """Forget what was said of USER and RESOURCE. Without RESOURCE, everything that was said of USER."""
    from kourou.admin import access

    change.make(
        f"What was said of '{user}' and {resource or 'everything'} is forgotten",
        lambda connection, at: access.revoke(connection, user, resource, at),
        f"what was said of '{user}' and {resource or 'everything'} is forgotten at",
    )


# ------------------------------------------------------------------------------- accounts of plain_acl.yml


@acl.group("account")
def account() -> None:
    """See and change the accounts of an ACL file (plain_acl.yml)."""


@account.command("ls")
@broker_option
@name_server_option
@format_option
def list_accounts(broker: str | None, name_server: str, output: str) -> None:
    """List the accounts; their secrets are never shown."""
    from kourou.admin import access

    with cluster_at(name_server) as connection:
        found, white = access.accounts(connection, access.servers(connection, broker))
    rows: list[Row] = [
        {**asdict(each), "topic_perms": list(each.topic_perms), "group_perms": list(each.group_perms)}
        for each in found
    ]
    columns = ("server", "access_key", "admin", "default_topic_perm", "default_group_perm", "topic_perms")
    show(rows, columns, output, ("group_perms", "white_remote_address"))
    for server, patterns in white.items():
        if patterns and output in ("table", "wide"):
            click.echo(f"\neverybody from {', '.join(patterns)} may do everything at {server}")


@account.command("save")
@click.argument("access_key")
@click.option(
    "--secret-key-file", type=click.Path(), help="A file with its secret key; needed for a new one."
)
@click.option("--admin/--no-admin", "admin", default=None, help="Whether it may do everything.")
@click.option("--default-topic-perm", help="DENY, PUB, SUB or PUB|SUB.")
@click.option("--default-group-perm", help="DENY or SUB.")
@click.option("--topic-perm", "topic_perms", metavar="TOPIC=PERM", multiple=True, help="May be repeated.")
@click.option("--group-perm", "group_perms", metavar="GROUP=PERM", multiple=True, help="May be repeated.")
@click.option("--white-address", help="Peers from there need no signature.")
@access_change_options
def save_account(
    access_key: str,
    secret_key_file: str | None,
    admin: bool | None,
    default_topic_perm: str | None,
    default_group_perm: str | None,
    topic_perms: tuple[str, ...],
    group_perms: tuple[str, ...],
    white_address: str | None,
    change: AccessChange,
) -> None:
    """Make the account ACCESS_KEY, or change what is said of it."""
    from kourou.admin import access
    from kourou.cli.user import read_password
    from kourou.protocol.access_messages import SaveAccount

    wanted = SaveAccount(
        access_key=access_key,
        secret_key=read_password(secret_key_file) if secret_key_file else None,
        white_remote_address=white_address,
        admin=admin,
        default_topic_perm=default_topic_perm,
        default_group_perm=default_group_perm,
        topic_perms=",".join(topic_perms) or None,
        group_perms=",".join(group_perms) or None,
    )
    change.make(
        f"Account '{access_key}' is saved",
        lambda connection, at: access.save_account(connection, wanted, at),
        f"account '{access_key}' is at",
    )


@account.command("rm")
@click.argument("access_key")
@access_change_options
def remove_account(access_key: str, change: AccessChange) -> None:
    """Delete the account ACCESS_KEY."""
    from kourou.admin import access

    change.make(
        f"Account '{access_key}' goes",
        lambda connection, at: access.delete_account(connection, access_key, at),
        f"account '{access_key}' is gone from",
    )
