"""The verbs of the original's admin tool: how they are declared, and what they were given.

    @verb("topicStatus", "t:topic!", "c:cluster")       -t and --topic take a value and are needed, -c may be
    def topic_status(connection: Connection, given: Given) -> None: ...

    @verb("clusterList", "m/moreStats", "i:interval")   -m stands alone

Flags and words are the original's. Like the original, a verb prints and returns nothing; unlike it, one that
fails says why on stderr and ends with the code of its error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kourou.cli.output import as_text
from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.admin.cluster import Node

Run = Callable[["Connection", "Given"], None]


class Flag(NamedTuple):
    short: str
    long: str
    takes_value: bool
    is_needed: bool


class Verb(NamedTuple):
    name: str
    flags: tuple[Flag, ...]
    about: str
    run: Run


VERBS: dict[str, Verb] = {}


def verb(name: str, *flags: str) -> Callable[[Run], Run]:
    """Declare a verb of the original; its docstring is what help says."""

    def declare(run: Run) -> Run:
        VERBS[name] = Verb(name, tuple(map(_flag, flags)), (run.__doc__ or "").strip(), run)
        return run

    return declare


def _flag(text: str) -> Flag:
    is_needed = text.endswith("!")
    takes_value = ":" in text
    short, _, long = text.rstrip("!").replace("/", ":").partition(":")
    return Flag(short, long, takes_value, is_needed)


class Given:
    """What stands behind the flags of one call."""

    def __init__(self, verb: Verb, values: Mapping[str, str | bool | None]) -> None:
        self._verb = verb
        self._values = values

    def __call__(self, long: str) -> str:
        """The value of a flag that is needed."""
        value = self.get(long)
        assert value is not None, f"--{long} is needed, and was checked"
        return value

    def get(self, long: str, default: str | None = None) -> str | None:
        value = self._values.get(long)
        return value.strip() if isinstance(value, str) else default

    def has(self, long: str) -> bool:
        return self._values.get(long) not in (None, False)

    def flag(self, long: str, default: bool = False) -> bool:
        """`true` and `false`, as the original's flags take them."""
        value = self.get(long)
        return default if value is None else value.lower() == "true"

    def number(self, long: str, default: int | None = None) -> int:
        value = self.get(long)
        if value is None:
            assert default is not None, f"--{long} is needed, and was checked"
            return default
        try:
            return int(value)
        except ValueError:
            raise ConfigError(f"{self._verb.name}: {long} is {value!r}, but must be a whole number") from None

    def moment_ms(self, long: str, default: int) -> int:
        """ms since 1970, `now`, or yyyy-MM-dd#HH:mm:ss:SSS in local time."""
        value = self.get(long)
        return default if value is None else moment_ms(value, f"{self._verb.name}: {long}")

    def brokers(self, connection: Connection) -> list[Node]:
        """The one behind -b, or the masters of the cluster behind -c."""
        return brokers_of(connection, self)


def moment_ms(text: str, what: str) -> int:
    if text == "now":
        return round(datetime.now().timestamp() * 1000)
    try:
        return int(text)
    except ValueError:
        pass
    for form in ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d#%H:%M:%S"):
        try:
            return round(datetime.strptime(text, form).astimezone().timestamp() * 1000)
        except ValueError:
            continue
    raise ConfigError(f"{what} is {text!r}, but must be ms since 1970, now, or yyyy-MM-dd#HH:mm:ss:SSS")


def brokers_of(connection: Connection, given: Given) -> list[Node]:
    from kourou.admin import cluster as clusters
    from kourou.admin.cluster import Node
    from kourou.remoting.address import parse_address

    address = given.get("brokerAddr") or given.get("broker")
    if address is not None:
        parse_address(address)
        return [Node("", address, 0, address)]
    cluster = given.get("clusterName") or given.get("cluster")
    if cluster is None:
        raise ConfigError("say where: -b brokerAddr or -c clusterName")
    return clusters.masters(connection, cluster)


# ---------------------------------------------------------------------------------------------- printing


def printf(form: str, *values: object) -> None:
    """As Java's: what servers say is made harmless, then put into its columns."""
    click.echo(formatted(form, *values))


def formatted(form: str, *values: object) -> str:
    return form % tuple(as_text(value) if isinstance(value, str) else value for value in values)


def human(ms: int) -> str:
    """2026-11-16 08:22:05,103, in local time."""
    moment = datetime.fromtimestamp(ms / 1000)
    return f"{moment:%Y-%m-%d %H:%M:%S},{ms % 1000:03d}"


def human_seconds(ms: int) -> str:
    """2026-11-16 08:22:05, in local time; N/A when there is none."""
    return f"{datetime.fromtimestamp(ms / 1000):%Y-%m-%d %H:%M:%S}" if ms > 0 else "N/A"


def java_map(table: Mapping[Any, object]) -> str:
    """{a=1, b=2}"""
    return "{" + ", ".join(f"{key}={value}" for key, value in table.items()) + "}"


def java_bool(value: object) -> str:
    return "true" if value else "false"


def front(text: str, most: int) -> str:
    """The first characters of a name that would not fit its column."""
    return text[:most]
