"""What somebody may ask for: its name, who may, which fields it has, and what happens.

A deed that changes something is written to the audit log with who, from where, on what and the outcome, also
when it fails; secrets and bodies are no `audited` fields. `command` is the same thing for the command line.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kourou.console.given import Given
from kourou.console.login import Role
from kourou.errors import MQError

if TYPE_CHECKING:
    from kourou.console.desk import Desk
    from kourou.console.visit import Visit

FieldKind = Literal["string", "integer", "boolean", "array", "object"]


@dataclass(frozen=True)
class Field:
    """One thing to fill in."""

    name: str
    about: str
    kind: FieldKind = "string"
    needed: bool = False
    choices: tuple[str, ...] = ()
    audited: bool = True


@dataclass(frozen=True)
class Deed:
    name: str
    """`topic.create`."""
    about: str
    role: Role
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """Below `/api/v1`; its {places} are fields, too."""
    run: Callable[[Desk, Given, Visit], Any]
    fields: tuple[Field, ...] = ()
    on: str = ""
    """The field that says what it is done to."""
    command: Callable[[Given], str] | None = None
    """The command line for it, without `-n`."""

    @property
    def is_change(self) -> bool:
        return self.method != "GET"


def do(deed: Deed, given: Given, visit: Visit) -> Any:
    """Carry it out for whoever asks; raises Denied when they may not, and whatever it fails with."""
    desk = visit.desk
    if not deed.is_change:
        visit.need(deed.role)
        return deed.run(desk, given, visit)
    outcome = "ok"
    try:
        visit.need(deed.role)
        return deed.run(desk, given, visit)
    except MQError as error:
        outcome = str(error)
        raise
    except Exception as error:
        outcome = f"failed unexpectedly: {type(error).__name__}"
        raise
    finally:
        visit.audit(deed.name, given.text(deed.on, "") if deed.on else "", _details(deed, given), outcome)


def _details(deed: Deed, given: Given) -> dict[str, str]:
    return {
        field.name: str(given.raw(field.name))
        for field in deed.fields
        if field.audited and field.name in given and field.name != deed.on
    }


def command_line(deed: Deed, given: Given, name_server: str) -> str:
    """What to type for the same; empty when the command line cannot do it."""
    return "" if deed.command is None else f"{deed.command(given)} -n {shlex.quote(name_server)}"


def typed(*words: object) -> str:
    """Words as a shell takes them; those that are None are left out."""
    return shlex.join(str(word) for word in words if word is not None)


def option(name: str, value: object) -> list[str]:
    """`--name value`, or nothing when there is no value."""
    if value is None or value is False or value == "":
        return []
    return [name] if value is True else [name, str(value)]
