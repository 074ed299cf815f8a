"""How `kourou user` and `kourou acl` change something: at every server, after a question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from kourou.cli.changing import change_options
from kourou.cli.connection import broker_option, cluster_at, name_server_option
from kourou.cli.output import confirmed, counted, note

if TYPE_CHECKING:
    from kourou.admin import Connection

Change = Callable[["Connection", list[str]], list[str]]
"""Makes it at the servers of these addresses, and says which did it."""


@dataclass(frozen=True)
class AccessChange:
    """Where to make a change, and whether to ask first or to only look."""

    broker: str | None
    dry_run: bool
    yes: bool
    name_server: str

    def make(self, question: str, change: Change, done: str) -> None:
        """Ask, make the change everywhere, and say where it is made: "user 'shop' is at 127.0.0.1:9876"."""
        from kourou.admin import access

        with cluster_at(self.name_server) as connection:
            at = access.servers(connection, self.broker)
            if self.dry_run:
                note(f"nothing was changed; {', '.join(at)} would be told")
                return
            confirmed(f"{question}, at {counted(len(at), 'server')}.", self.yes)
            told = change(connection, at)
        note(f"{done} {', '.join(told)}")


def access_change_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-b`, `--dry-run`, `--yes` and `-n`, handed over together as `change`."""

    @broker_option
    @change_options
    @name_server_option
    @wraps(command)
    def changing(*, broker: str | None, dry_run: bool, yes: bool, name_server: str, **given: Any) -> Any:
        return command(change=AccessChange(broker, dry_run, yes, name_server), **given)

    return changing
