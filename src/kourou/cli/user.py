"""`kourou user …`: the users of servers that ask who their peers are."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict

import click

from kourou.cli.access_change import AccessChange, access_change_options
from kourou.cli.connection import broker_option, cluster_at, name_server_option
from kourou.cli.output import format_option, show
from kourou.errors import ConfigError

PASSWORD_VARIABLE = "KOUROU_PASSWORD"  # noqa: S105 - the name of a variable


@click.group()
def user() -> None:
    """See, make, change and delete users."""


@user.command("ls")
@broker_option
@click.option("--match", metavar="TEXT", help="Only users with this in their name.")
@name_server_option
@format_option
def list_users(broker: str | None, match: str | None, name_server: str, output: str) -> None:
    """List the users of every broker and name server."""
    from kourou.admin import access

    with cluster_at(name_server) as connection:
        found = access.users(connection, access.servers(connection, broker), match)
    show([asdict(each) for each in found], ("server", "name", "kind", "status"), output)


@user.command()
@click.argument("name")
@click.option("--super", "is_super", is_flag=True, help="One who may do everything.")
@click.option("--password-file", type=click.Path(), help="A file with the password; else one is asked for.")
@access_change_options
def create(
    name: str,
    is_super: bool,
    password_file: str | None,
    change: AccessChange,
) -> None:
    """Make the user NAME at every broker and name server. The password is never an argument."""
    from kourou.admin import access

    password = read_password(password_file)
    change.make(
        f"User '{name}' is made",
        lambda connection, at: access.create_user(connection, name, password, is_super=is_super, at=at),
        f"user '{name}' is at",
    )


@user.command()
@click.argument("name")
@click.option("--password", "new_password", is_flag=True, help="A new password, asked for or from the file.")
@click.option("--password-file", type=click.Path(), help="The file with it.")
@click.option("--kind", type=click.Choice(["Super", "Normal"]), help="What kind of user it is.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether it may come in.")
@access_change_options
def update(
    name: str,
    new_password: bool,
    password_file: str | None,
    kind: str | None,
    enabled: bool | None,
    change: AccessChange,
) -> None:
    """Change the user NAME; what is not said stays."""
    from kourou.admin import access

    password = read_password(password_file) if new_password or password_file else None
    status = None if enabled is None else "enable" if enabled else "disable"
    if password is None and kind is None and status is None:
        raise click.UsageError("say what to change: --password, --kind, --enable or --disable")
    change.make(
        f"User '{name}' changes",
        lambda connection, at: access.update_user(
            connection, name, password=password, kind=kind, status=status, at=at
        ),
        f"user '{name}' is changed at",
    )


@user.command()
@click.argument("name")
@access_change_options
def rm(name: str, change: AccessChange) -> None:
    """Delete the user NAME, and what it may do."""
    from kourou.admin import access

    change.make(
        f"User '{name}' goes",
        lambda connection, at: access.delete_user(connection, name, at),
        f"user '{name}' is gone from",
    )


def read_password(path: str | None) -> str:
    """From the file, from KOUROU_PASSWORD, or typed where nobody sees it."""
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().strip()
        except OSError as error:
            raise ConfigError(f"the password cannot be read from {path}: {error.strerror or error}") from None
    if os.environ.get(PASSWORD_VARIABLE):
        return os.environ[PASSWORD_VARIABLE]
    if not sys.stdin.isatty():
        raise ConfigError(
            f"there is nobody to ask for a password: use --password-file or {PASSWORD_VARIABLE}"
        )
    typed: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return typed
