"""What a broker says in REGISTER_BROKER, read and checked before it may touch the tables.

The body comes in four shapes: none at all, a bare topic table (before 3.0.11), the JSON of later brokers,
and a compressed form. A registration that makes no sense is refused whole, with a remark that names the
value: half a broker in the routes helps nobody.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final, NoReturn

from kourou.errors import ConfigError, Refused
from kourou.nameserver.mappings import mapping_fault
from kourou.nameserver.routes import Registration
from kourou.protocol.bodies import (
    FILTER_SERVERS_VERSION,
    QUEUES_MAX,
    RegisterBrokerBody,
    TopicConfig,
    TopicTable,
    register_crc,
)
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import RegisterBroker
from kourou.protocol.names import printable
from kourou.remoting.address import parse_address

ZLIB_FIRST_BYTE: Final = 0x78
TOPICS_MAX: Final = 100_000
NAME_CHARACTERS_MAX: Final = 255
ADDRESS_CHARACTERS_MAX: Final = 255
FILTER_SERVERS_MAX: Final = 64
PERM_MAX: Final = 15
EXPIRY_MS_MIN: Final = 1_000
EXPIRY_MS_MAX: Final = 24 * 3_600_000

_NOT_IN_A_NAME: Final = frozenset("/\\\"'<>;, ")


def read_registration(request: Command) -> Registration:
    """The registration in `request`; raises Refused or ProtocolError naming what is wrong with it."""
    header = request.parse(RegisterBroker)
    _check_crc(header, request.body)
    check_name("broker name", header.broker_name)
    check_name("cluster name", header.cluster_name)
    check_address("broker address", header.broker_address)
    if header.broker_id < 0:
        _refuse(f"broker id {header.broker_id} is below 0, which is the master")
    body = _body(request)
    table = body.topic_table
    _check_topics(table.topic_config_table)
    mappings = table.topic_queue_mapping_info_map or {}
    _check_mappings(mappings)
    _check_filter_servers(body.filter_server_list)
    return Registration(
        cluster=header.cluster_name,
        name=header.broker_name,
        id=header.broker_id,
        address=header.broker_address,
        ha_address=_ha_address(header),
        version=table.data_version,
        topics=table.topic_config_table,
        mappings=mappings,
        filter_servers=body.filter_server_list,
        acting_master=header.enable_acting_master,
        zone=_zone(header.zone_name),
        expiry_ms=_expiry_ms(header.heartbeat_timeout_ms),
    )


def check_name(what: str, name: str) -> None:
    """Raises Refused unless `name` may stand in a log line, a path and a list."""
    fault = name_fault(name)
    if fault is not None:
        _refuse(f"{what} '{printable(name)}' {fault}")


def name_fault(name: str) -> str | None:
    """Why `name` cannot be one, or None.

    Wider than what a topic may be created with, since brokers register topics under their host's name,
    dots and all, and 5.x joins group and topic with a plus sign.
    """
    if name.isalnum() and len(name) <= NAME_CHARACTERS_MAX:
        return None
    if not name.strip("."):
        return "is blank"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"is longer than {NAME_CHARACTERS_MAX} characters"
    if not name.isprintable() or not _NOT_IN_A_NAME.isdisjoint(name):
        return "has blanks, quotes, slashes or unprintable characters"
    return None


def check_address(what: str, address: str) -> None:
    """Raises Refused unless a client could connect to `address`."""
    if len(address) > ADDRESS_CHARACTERS_MAX or not address.isprintable():
        _refuse(f"{what} '{printable(address)}' is not of the form host:port")
    try:
        host, _ = parse_address(address)
    except ConfigError as error:
        _refuse(f"{what} cannot be used: {error}")
    if address != address.strip() or not _NOT_IN_A_NAME.isdisjoint(host):
        _refuse(f"{what} '{printable(address)}' is not of the form host:port")
    try:
        impossible = ipaddress.ip_address(host)
    except ValueError:
        return  # a host name
    if impossible.is_unspecified or impossible.is_multicast:
        _refuse(f"{what} '{address}' is one nobody can connect to; set brokerIP1 to the machine's own")


def check_queues(topic: str, read: int, write: int, perm: int) -> None:
    if not (0 <= read <= QUEUES_MAX and 0 <= write <= QUEUES_MAX):
        _refuse(
            f"topic '{printable(topic)}' has {read} read and {write} write queues: 0 to {QUEUES_MAX} can be"
        )
    if not 0 <= perm <= PERM_MAX:
        _refuse(f"topic '{printable(topic)}' has permission {perm}: 0 to {PERM_MAX} can be")


def _check_crc(header: RegisterBroker, body: bytes) -> None:
    if header.body_crc32 == 0:
        return
    crc = register_crc(body)
    if crc != header.body_crc32:
        _refuse(f"crc32 not match: the header says {header.body_crc32}, the body's is {crc}")


def _body(request: Command) -> RegisterBrokerBody:
    """The body, in the shape its first byte shows.

    The header has a flag for it, but 5.x brokers with `compressedRegister` send a compressed body under
    `compressed=false` (the original's own name server fails on that).
    """
    body = request.body
    if not body:
        return RegisterBrokerBody()
    if body[0] == ZLIB_FIRST_BYTE:
        return RegisterBrokerBody.decode_compressed(body, request.version)
    if request.version < FILTER_SERVERS_VERSION:
        return RegisterBrokerBody(topic_table=TopicTable.decode_request(body))
    return RegisterBrokerBody.decode_request(body)


def _check_topics(topics: dict[str, TopicConfig]) -> None:
    if len(topics) > TOPICS_MAX:
        _refuse(f"{len(topics)} topics in one registration: at most {TOPICS_MAX} are taken")
    for name, topic in topics.items():
        if name_fault(name) is not None:
            check_name("topic", name)
        read, write = topic.read_queue_nums, topic.write_queue_nums
        if not (0 <= read <= QUEUES_MAX and 0 <= write <= QUEUES_MAX and 0 <= topic.perm <= PERM_MAX):
            check_queues(name, read, write, topic.perm)


def _check_mappings(mappings: dict[str, Any]) -> None:
    """What is passed on as it is must still be what clients can read."""
    for topic, mapping in mappings.items():
        check_name("static topic", topic)
        fault = mapping_fault(mapping)
        if fault is not None:
            _refuse(f"static topic '{topic}': its mapping {printable(str(mapping))} {fault}")


def _check_filter_servers(servers: list[str]) -> None:
    if len(servers) > FILTER_SERVERS_MAX:
        _refuse(f"{len(servers)} filter servers: at most {FILTER_SERVERS_MAX} are taken")
    for each in servers:
        check_address("filter server", each)


def _ha_address(header: RegisterBroker) -> str | None:
    """Where slaves copy from. Passed on as it is: brokers without slaves put in what they like."""
    address = header.ha_server_address or None
    if address is not None and (len(address) > ADDRESS_CHARACTERS_MAX or not address.isprintable()):
        _refuse(f"HA address '{printable(address)}' is not of the form host:port")
    return address


def _zone(given: str | None) -> str | None:
    if given:
        check_name("zone", given)
    return given


def _expiry_ms(given: int | None) -> int | None:
    if given is None or given <= 0:
        return None
    return min(max(given, EXPIRY_MS_MIN), EXPIRY_MS_MAX)


def _refuse(remark: str) -> NoReturn:
    raise Refused(ResponseCode.SYSTEM_ERROR, remark)
