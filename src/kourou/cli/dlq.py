"""`kourou dlq …`: dead letters seen, sent again, written to a file, let go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from kourou.cli.changing import MOMENT, change_options, ms_of
from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.exit_codes import FAILED
from kourou.cli.message import FOUND_WIDE, found_row
from kourou.cli.output import Row, as_json, confirmed, counted, format_option, note, progress, show
from kourou.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from kourou.admin.dlq import Filter
    from kourou.message import ReceivedMessage

LETTER_COLUMNS = (
    "stored_at",
    "first_topic",
    "offset_id",
    "message_id",
    "reconsume_times",
    "tags",
    "keys",
    "body",
)
RESENT_COLUMNS = ("dead_letter", "topic", "status", "sent_before", "error")


@click.group()
def dlq() -> None:
    """See dead letters, send them again, let them go."""


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which dead letters are meant, handed over together as `wanted`, a `Filter`."""

    @wraps(command)
    def filtering(
        *,
        ids: tuple[str, ...],
        topic: str | None,
        key: str | None,
        tags: str | None,
        since: datetime | None,
        until: datetime | None,
        contains: str | None,
        **given: Any,
    ) -> Any:
        from kourou.admin.dlq import Filter

        wanted = Filter(frozenset(ids), topic, key, tags, ms_of(since), ms_of(until), contains)
        return command(wanted=wanted, **given)

    for option in (
        click.option("--contains", metavar="TEXT", help="Only bodies with this in them."),
        click.option("--until", type=MOMENT, help="Dead then or earlier."),
        click.option("--since", type=MOMENT, help="Dead then or later; 10m is ten minutes ago."),
        click.option("--tags", help="Only with this tag."),
        click.option("--key", help="Only with this key."),
        click.option("-t", "--topic", help="Only of this first topic."),
        click.option("--id", "ids", multiple=True, help="Only this one, by any of its ids; may be repeated."),
    ):
        filtering = option(filtering)
    return filtering


@dlq.command("ls")
@click.option("-a", "--all", "everything", is_flag=True, help="Also groups whose dead letters are all gone.")
@name_server_option
@format_option
def list_groups(everything: bool, name_server: str, output: str) -> None:
    """List the groups that have dead letters."""
    from kourou.admin import dlq as dead_letters
    from kourou.admin import messages

    with cluster_at(name_server) as connection:
        found = dead_letters.all_groups(connection)
    rows: list[Row] = [
        {**asdict(each), "last": messages.moment(each.last_ms) if each.last_ms else None}
        for each in found
        if everything or each.messages
    ]
    show(rows, ("group", "messages", "last"), output, ("topic",))


@dlq.command("show")
@click.argument("group")
@_filter_options
@click.option("--count", type=click.IntRange(1), default=64, show_default=True, help="At most so many.")
@name_server_option
@format_option
def show_letters(
    group: str,
    wanted: Filter,
    count: int,
    name_server: str,
    output: str,
) -> None:
    """Show the dead letters of GROUP, the oldest first."""
    from kourou.admin import dlq as dead_letters

    with cluster_at(name_server) as connection:
        letters = dead_letters.letters(connection, group, wanted, count)
    show([_row(letter, output) for letter in letters], LETTER_COLUMNS, output, ("first_id", *FOUND_WIDE[1:]))


def _row(letter: ReceivedMessage, output: str) -> Row:
    from kourou.admin import dlq as dead_letters

    return {
        **found_row(letter, output),
        "first_topic": dead_letters.first_topic(letter),
        "first_id": dead_letters.first_id(letter),
    }


@dlq.command()
@click.argument("group")
@_filter_options
@click.option("--all", "everything", is_flag=True, help="All of them; without it something must be chosen.")
@click.option(
    "--to",
    type=click.Choice(["group", "topic"]),
    default="group",
    show_default=True,
    help="To the group that gave them up alone, or to their first topic, where every group gets them.",
)
@click.option("--skip-sent", is_flag=True, help="Leave out those that were sent there before.")
@change_options
@name_server_option
@format_option
def resend(
    group: str,
    wanted: Filter,
    everything: bool,
    to: Literal["group", "topic"],
    skip_sent: bool,
    dry_run: bool,
    yes: bool,
    name_server: str,
    output: str,
) -> int:
    """Send dead letters of GROUP again. They stay where they are, too, until their time is over.

    So the same letters can be sent twice, and would come twice. Those that were sent there before are told,
    as far as the brokers' index reaches, and --skip-sent leaves them out; `kourou pipeline redrive` keeps a
    record of its own and never sends one twice.
    """
    from kourou.admin import dlq as dead_letters

    if not everything and wanted == dead_letters.Filter():
        raise click.UsageError(
            "say which: --id, --topic, --key, --tags, --since, --until, --contains, or --all"
        )
    with cluster_at(name_server) as connection:
        letters = dead_letters.letters(connection, group, wanted)
        before = dead_letters.sent_before(connection, group, letters, to)
        if skip_sent and before is None:
            raise ConfigError(
                f"{len(letters)} dead letters are too many to ask of each whether it was sent before: choose "
                f"up to {dead_letters.ASKED_ABOUT_MAX}, or use kourou pipeline redrive"
            )
        if skip_sent:
            letters = [each for each in letters if each.offset_id not in (before or ())]
        if not dry_run and letters:
            target = "that group" if to == "group" else "their first topic"
            confirmed(
                f"To be sent again to {target}: {counted(len(letters), 'dead letter')} of group '{group}'."
                f"{_twice(letters, before)}",
                yes,
            )
        failed = 0

        def rows() -> Iterator[Row]:
            nonlocal failed
            with progress(len(letters)) as told:
                for sent in dead_letters.resend(
                    connection, group, letters, to=to, dry_run=dry_run, before=before
                ):
                    failed += sent.error is not None
                    told()
                    yield asdict(sent)

        show(rows(), RESENT_COLUMNS, output, ("message_id",))
    if dry_run:
        note("nothing was sent")
    elif failed:
        note(f"{failed} of {len(letters)} were not sent")
    return FAILED if failed else 0


def _twice(letters: list[ReceivedMessage], before: frozenset[str] | None) -> str:
    if before is None:
        return " Whether some were sent there before was not asked: there are too many."
    count = sum(letter.offset_id in before for letter in letters)
    return f" {count} of them went there before, and would come twice: see --skip-sent." if count else ""


@dlq.command()
@click.argument("group")
@change_options
@name_server_option
@format_option
def purge(group: str, dry_run: bool, yes: bool, name_server: str, output: str) -> None:
    """Let go of all dead letters of GROUP."""
    from kourou.admin import dlq as dead_letters
    from kourou.admin import topics
    from kourou.protocol.names import dead_letter_topic

    with cluster_at(name_server) as connection:
        topic = dead_letter_topic(group)
        try:
            count = topics.stats(connection, topic).messages
        except NotFound as error:
            raise NotFound(
                error.code, f"group '{group}' has no dead letters: there is no topic '{topic}'"
            ) from None
        show([{"group": group, "messages": count}], ("group", "messages"), output)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(f"{counted(count, 'dead letter')} of group '{group}' to be let go.", yes)
        dead_letters.purge(connection, group)


@dlq.command()
@click.argument("group")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option("--force", is_flag=True, help="Also over a file that is there already.")
@_filter_options
@name_server_option
def export(
    group: str,
    file: str,
    force: bool,
    wanted: Filter,
    name_server: str,
) -> None:
    """Write the dead letters of GROUP to FILE. One JSON object a line; bodies that are no text in base64."""
    from kourou.admin import dlq as dead_letters

    with cluster_at(name_server) as connection:
        letters = dead_letters.letters(connection, group, wanted)
    lines = (as_json(_row(letter, "json")) for letter in letters)
    if file == "-":
        for line in lines:
            click.echo(line)
        return
    try:
        with open(file, "w" if force else "x", encoding="utf-8") as written:
            written.writelines(f"{line}\n" for line in lines)
    except FileExistsError:
        raise ConfigError(f"'{file}' is there already: choose another name, or --force") from None
    except OSError as error:
        raise ConfigError(f"'{file}' cannot be written: {error.strerror}") from None
    note(f"{counted(len(letters), 'dead letter')} of group '{group}' in {file}")
