"""Where the name servers are: said in one of four ways, of which the first that speaks wins.

    1  name_server= in code
    2  the property rocketmq.namesrv.addr: in `properties=`, or in the file that KOUROU_CONFIG names
       (a properties file, or TOML when its name ends so)
    3  the environment variable NAMESRV_ADDR
    4  an HTTP address server: the properties rocketmq.namesrv.domain and rocketmq.namesrv.domain.subgroup

The order is the original's. Unlike the original, which then asks a host of its maker, nobody is asked whom
the user did not name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kourou.errors import ConfigError, ProtocolError
from kourou.remoting.address import parse_address

if TYPE_CHECKING:
    from kourou.doors.files import Files

ADDRESSES_PROPERTY = "rocketmq.namesrv.addr"
DOMAIN_PROPERTY = "rocketmq.namesrv.domain"
SUBGROUP_PROPERTY = "rocketmq.namesrv.domain.subgroup"
NAME_SERVER_VARIABLE = "NAMESRV_ADDR"
CONFIG_VARIABLE = "KOUROU_CONFIG"

DEFAULT_SUBGROUP = "nsaddr"
DEFAULT_PORT = 8080


class Finding(NamedTuple):
    """The name servers, or where to ask for them."""

    addresses: tuple[str, ...]
    address_server: str | None = None
    """A URL whose text lists them; only when nobody said where they are."""


def find_name_servers(
    given: str | Iterable[str] | None,
    properties: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
    files: Files | None = None,
) -> Finding:
    """The first of the four that speaks; raises ConfigError when none does, or one says nonsense."""
    if addresses := parse_addresses(given):
        return Finding(addresses)
    said = dict(_file_properties(environment.get(CONFIG_VARIABLE, ""), files)) | dict(properties or {})
    for text in (said.get(ADDRESSES_PROPERTY), environment.get(NAME_SERVER_VARIABLE)):
        if addresses := parse_addresses(text):
            return Finding(addresses)
    if domain := said.get(DOMAIN_PROPERTY, "").strip():
        return Finding((), address_server_url(domain, said.get(SUBGROUP_PROPERTY, "").strip()))
    raise ConfigError(
        "no name server is given: pass name_server='host:9876' (on the command line -n host:9876), "
        f"or set the environment variable {NAME_SERVER_VARIABLE}, or the property {ADDRESSES_PROPERTY} in "
        f"the file that {CONFIG_VARIABLE} names"
    )


def parse_addresses(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Addresses separated by `;` (or one by one), each checked, none twice."""
    texts = _texts(given)
    addresses = tuple(
        dict.fromkeys(each.strip() for text in texts for each in text.split(";") if each.strip())
    )
    for address in addresses:
        parse_address(address)
    return addresses


def _texts(given: Any) -> list[str]:
    if given is None or isinstance(given, str):
        return [given or ""]
    texts = list(given) if isinstance(given, Iterable) else [given]
    if strangers := [text for text in texts if not isinstance(text, str)]:
        raise ConfigError(f"name_server has {strangers[0]!r} in it; give 'host:9876', or a list of such")
    return texts


def address_server_url(domain: str, subgroup: str = "") -> str:
    """Where an address server has its list; port 8080 unless the domain brings its own."""
    has_port = domain.rpartition("]")[2].count(":") > 0
    host = domain if has_port else f"{domain}:{DEFAULT_PORT}"
    return f"http://{host}/rocketmq/{subgroup or DEFAULT_SUBGROUP}"


def parse_address_list(page: str) -> tuple[str, ...]:
    """The name servers an address server told: the first line of its page."""
    lines = page.strip().splitlines()
    return parse_addresses(lines[0] if lines else None)


def _file_properties(path: str, files: Files | None) -> Mapping[str, str]:
    if not path:
        return {}
    import tomllib  # here, because most programs have no such file

    from kourou.doors.files import RealFiles
    from kourou.protocol import java_properties

    try:
        content = (files or RealFiles()).read(path)
    except OSError as error:
        raise ConfigError(
            f"{CONFIG_VARIABLE} names '{path}', which cannot be read: {error.strerror or error}"
        ) from None
    try:
        if path.endswith(".toml"):
            return dict(_flattened(tomllib.loads(content.decode())))
        return java_properties.parse(content)
    except (ProtocolError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}', named by {CONFIG_VARIABLE}, cannot be understood: {error}") from None


def _flattened(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested tables as dotted names: `[rocketmq.namesrv]` and `addr = …`, or the whole name in quotes."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield prefix + name, ";".join(str(each) for each in value)
        else:
            yield prefix + name, str(value)
