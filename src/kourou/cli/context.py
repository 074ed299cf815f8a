"""`kourou context …`: clusters by name."""

from __future__ import annotations

from dataclasses import replace

import click

from kourou.cli.contexts import Context, Contexts, read_contexts, write_contexts
from kourou.cli.output import Row, format_option, note, show


@click.group()
def context() -> None:
    """Name clusters, and choose the one that commands are for."""


@context.command("ls")
@format_option
def list_contexts(output: str) -> None:
    """List the contexts; secrets are named by their file, and never shown."""
    known = read_contexts()
    rows: list[Row] = [
        {"current": name == known.current, **vars(each)} for name, each in sorted(known.table.items())
    ]
    wide = ("secret_key_file", "trust", "certificate", "key", "verify")
    show(rows, ("current", "name", "name_server", "access_key", "tls"), output, wide)


@context.command()
@click.argument("name")
@click.option("-n", "--name-server", metavar="ADDRESS", required=True, help="host:port; several by ';'.")
@click.option("--access-key", default="", help="Who we are there.")
@click.option("--secret-key-file", default="", type=click.Path(), help="The file with its secret key.")
@click.option("--tls", is_flag=True, help="Talk TLS.")
@click.option("--trust", default="", type=click.Path(), help="CA certificates (PEM) instead of the system's.")
@click.option("--certificate", default="", type=click.Path(), help="Our own certificate (PEM).")
@click.option("--key", default="", type=click.Path(), help="Its key (PEM).")
@click.option("--no-verify", is_flag=True, help="Believe any certificate; for trying things out.")
@click.option("--use", "use_it", is_flag=True, help="Commands are for it from now on.")
def add(
    name: str,
    name_server: str,
    access_key: str,
    secret_key_file: str,
    tls: bool,
    trust: str,
    certificate: str,
    key: str,
    no_verify: bool,
    use_it: bool,
) -> None:
    """Add the context NAME, or replace it."""
    from kourou.client.finding import parse_addresses

    parse_addresses(name_server)
    known = read_contexts()
    added = Context(
        name, name_server, access_key, secret_key_file, tls, trust, certificate, key, verify=not no_verify
    )
    table = {**known.table, name: added}
    is_first = not known.table
    write_contexts(Contexts(known.path, name if use_it or is_first else known.current, table))
    note(f"context '{name}' is in {known.path}")


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Commands are for the context NAME from now on."""
    known = read_contexts()
    known.named(name)
    write_contexts(replace(known, current=name))


@context.command()
@click.argument("name")
def rm(name: str) -> None:
    """Forget the context NAME."""
    known = read_contexts()
    known.named(name)
    table = {other: each for other, each in known.table.items() if other != name}
    write_contexts(Contexts(known.path, "" if known.current == name else known.current, table))
