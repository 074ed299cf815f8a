"""Deeds around brokers, name servers and who is connected."""

from __future__ import annotations

from typing import Any

from kourou.admin import brokers, cluster, nameservers, producers
from kourou.console.deeds.deed import Deed, Field, typed
from kourou.console.desk import Desk
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.visit import Visit
from kourou.errors import ConfigError

BROKER = Field("broker", "A broker's name, or its address.", needed=True)
CLEANINGS = {
    "log": ("expired log files", brokers.delete_expired_log),
    "queues": ("expired consume queues", brokers.clean_expired_queues),
    "topics": ("queues of topics that are gone", brokers.clean_unused_topics),
}
SECRET_WORDS = ("secret", "password", "accesskey", "token", "credential")


def without_secrets(settings: dict[str, str]) -> dict[str, str]:
    """Settings as anybody may see them."""
    return {
        key: "••••••" if value and any(word in key.lower() for word in SECRET_WORDS) else value
        for key, value in settings.items()
    }


def _list(desk: Desk, given: Given, visit: Visit) -> Any:
    return cluster.state(desk.connection)


def _settings(desk: Desk, given: Given, visit: Visit) -> Any:
    node = cluster.node(desk.connection, given.text("broker"))
    return without_secrets(brokers.configuration(desk.connection, node.address))


def _configure(desk: Desk, given: Given, visit: Visit) -> Any:
    changes = given.table("settings")
    if "key" in given:
        changes[given.text("key")] = given.text("value", "")
    if not changes:
        raise ConfigError("settings is missing: an object of names and values")
    node = cluster.node(desk.connection, given.text("broker"))
    before = brokers.configuration(desk.connection, node.address)
    _check_unchanged(given, before)
    brokers.configure(desk.connection, node.address, changes)
    return {"broker": node.broker, "settings": changes}


def _check_unchanged(given: Given, settings: dict[str, str]) -> None:
    """Two people may have the same form before them: the second is told."""
    expected = given.raw("expected")
    if expected is None or "key" not in given:
        return
    now = settings.get(given.text("key"))
    if now != expected:
        raise ConfigError(
            f"{given.text('key')} is {now!r} by now, not {expected!r}: somebody has changed it; look again"
        )


def _configure_command(given: Given) -> str:
    return typed(
        *("kourou", "broker", "config", "set", given.text("broker", "BROKER")),
        f"{given.text('key', 'KEY')}={given.text('value', 'VALUE')}",
        "--yes",
    )


def _clean(desk: Desk, given: Given, visit: Visit) -> Any:
    what, clean = CLEANINGS[given.choice("what", tuple(CLEANINGS))]
    node = cluster.node(desk.connection, given.text("broker"))
    clean(desk.connection, node.address)
    return {"broker": node.broker, "cleaned": what}


def _write(desk: Desk, given: Given, visit: Visit) -> Any:
    change = nameservers.add_write if given.yes("writable") else nameservers.wipe_write
    return {"topics": change(desk.connection, given.text("broker"))}


def _write_command(given: Given) -> str:
    state = "on" if given.yes("writable") else "off"
    return typed("kourou", "broker", "write", given.text("broker", "BROKER"), state, "--yes")


def _name_servers(desk: Desk, given: Given, visit: Visit) -> Any:
    return nameservers.state(desk.connection)


def _producers(desk: Desk, given: Given, visit: Visit) -> Any:
    return producers.all_producers(desk.connection, given.text("broker", "") or None)


LIST = Deed(
    "broker.list",
    "All brokers, and how each of them fares",
    Role.VIEWER,
    "GET",
    "/brokers",
    _list,
    command=lambda given: typed("kourou", "broker", "ls"),
)
SETTINGS = Deed(
    "broker.settings",
    "A broker's settings",
    Role.VIEWER,
    "GET",
    "/brokers/{broker}/settings",
    _settings,
    (BROKER,),
    command=lambda given: typed("kourou", "broker", "config", "show", given.text("broker", "BROKER")),
)
CONFIGURE = Deed(
    "broker.configure",
    "Change settings of a broker; only those it lets be changed from afar",
    Role.ADMIN,
    "PATCH",
    "/brokers/{broker}/settings",
    _configure,
    (
        BROKER,
        Field("settings", "Names and values.", "object"),
        Field("key", "Or one name."),
        Field("value", "And its value."),
        Field("expected", "What it is now; when that is not so any more, nothing is changed."),
    ),
    on="broker",
    command=_configure_command,
)
CLEAN = Deed(
    "broker.clean",
    "Have a broker let go of what it need not keep",
    Role.ADMIN,
    "POST",
    "/brokers/{broker}/clean",
    _clean,
    (BROKER, Field("what", "Log files, consume queues, topics.", needed=True, choices=tuple(CLEANINGS))),
    on="broker",
    command=lambda given: typed(
        *("kourou", "broker", "clean", given.text("broker", "BROKER"), given.text("what", "log"), "--yes")
    ),
)
WRITE = Deed(
    "broker.write",
    "Whether producers find a broker's queues",
    Role.ADMIN,
    "POST",
    "/brokers/{broker}/write",
    _write,
    (BROKER, Field("writable", "Whether they shall.", "boolean", needed=True)),
    on="broker",
    command=_write_command,
)
NAME_SERVERS = Deed("nameserver.list", "All name servers", Role.VIEWER, "GET", "/nameservers", _name_servers)
PRODUCERS = Deed(
    "producer.list",
    "Producers that are connected",
    Role.VIEWER,
    "GET",
    "/producers",
    _producers,
    (Field("broker", "Only at this broker."),),
)

DEEDS = (LIST, SETTINGS, CONFIGURE, CLEAN, WRITE, NAME_SERVERS, PRODUCERS)
