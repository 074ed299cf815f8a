"""What the console tells to type is what the command line understands."""

from __future__ import annotations

import shlex

import click
import pytest

from kourou.cli import main
from kourou.console.deeds.catalogue import DEEDS
from kourou.console.deeds.deed import Deed, command_line
from kourou.console.given import Given

FILLED = {
    "topic": "orders",
    "group": "shop",
    "client": "10.0.0.7@4711",
    "broker": "broker-a",
    "message_id": "7F0000010000",
    "key": "waitTimeMillsInSendQueue",
    "value": "300",
    "body": "it's one espresso; rm -rf $HOME",
    "tags": "new",
    "keys": "42 43",
    "where": "offset",
    "offset": "12",
    "queues": ["0", "3"],
    "read_queues": "4",
    "write_queues": "4",
    "retry_max": "3",
    "ids": ["7F01", "7F02"],
    "to": "topic",
    "what": "log",
    "outcome": "commit",
    "writable": "true",
    "user": "mary",
    "name": "mary",
    "status": "disable",
    "resources": "Topic:orders,Group:*",
    "actions": "Pub,Sub",
    "decision": "Deny",
    "sources": "10.0.0.1",
    "groups": "shop",
    "access_key": "shopkey",
    "topic_perms": "orders=PUB",
    "kind": "FIFO",
    "perm": "4",
    "order": "true",
    "properties": "colour=red\nsize=10",
    "delay": "30",
    "begin": "2026-11-16T07:47:18",
    "contains": "espresso",
    "enabled": "false",
    "broadcast": "false",
    "ordered": "true",
    "stacks": "true",
}
TYPED = [deed for deed in DEEDS if deed.command is not None]


@pytest.mark.parametrize("deed", TYPED, ids=lambda deed: deed.name)
def test_the_command_shown_for_a_deed_is_understood(deed: Deed) -> None:
    fields = {field.name for field in deed.fields} | {"key", "value"}
    filled = {**FILLED, "kind": "Super"} if deed.name.startswith("access.") else FILLED
    given = Given({name: value for name, value in filled.items() if name in fields})
    parsed(command_line(deed, given, "127.0.0.1:9876"))


@pytest.mark.parametrize("where", ["earliest", "latest", "time", "offset"])
def test_a_reset_is_told_with_where_it_goes(where: str) -> None:
    deed = next(deed for deed in DEEDS if deed.name == "group.reset")
    given = Given({**FILLED, "where": where, "time": "2026-11-16T07:47:18"})
    parsed(command_line(deed, given, "127.0.0.1:9876"))


def parsed(line: str) -> None:
    """Raises when the command line would not take it; nothing is run."""
    program, *arguments = shlex.split(line)
    assert program == "kourou"
    command: click.Command = main.group()
    context = click.Context(command)
    while isinstance(command, click.Group):
        name = arguments.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"no command {name!r} in: {line}"
        command = found
        context = click.Context(command, parent=context, info_name=name)
    command.make_context(command.name, arguments, parent=context.parent)


def test_what_the_command_line_does_not_know_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        parsed("kourou topic create orders --no-such-option")
