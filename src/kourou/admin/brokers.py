"""One broker: how it fares, how it is set, what it is told to let go of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kourou.admin.connection import Connection
from kourou.errors import ConfigError
from kourou.protocol import java_properties
from kourou.protocol.admin_bodies import BrokerStatsData, ConsumeStatsList, HaStatus
from kourou.protocol.admin_headers import BrokerStatsAsked, ConsumeStatsAsked
from kourou.protocol.bodies import KVTable
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request

OPEN_TRANSACTIONS = "kourouOpenTransactions"
CLEANING_SECONDS = 60.0
"""Cleaning walks through files; a big broker takes its time."""


@dataclass(frozen=True)
class Runtime:
    """How a broker fares. `table` is everything it told, under RocketMQ's names."""

    version: str
    in_tps: float
    out_tps: float
    put_today: int
    got_today: int
    put_yesterday: int
    got_yesterday: int
    disk_ratio: float
    page_cache_wait_ms: int
    earliest_message_ms: int
    boot_ms: int
    is_active: bool
    log_min: int
    log_max: int
    dispatch_behind_bytes: int
    timers_waiting: int
    open_transactions: int | None
    """None: it does not tell."""
    table: dict[str, str] = field(repr=False, default_factory=dict)

    @property
    def is_kourou(self) -> bool:
        return "kourouVersion" in self.table


def runtime(connection: Connection, address: str) -> Runtime:
    """GET_BROKER_RUNTIME_INFO."""
    reply = connection.ask(
        address, request(RequestCode.GET_BROKER_RUNTIME_INFO), "asked for its runtime information"
    )
    return runtime_of(KVTable.decode(reply.body).table)


def runtime_of(table: Mapping[str, str]) -> Runtime:
    """What a broker's table of figures means; what it does not tell is 0."""
    put_morning, got_morning = (
        _whole(table, "msgPutTotalTodayMorning"),
        _whole(table, "msgGetTotalTodayMorning"),
    )
    return Runtime(
        version=table.get("brokerVersionDesc", ""),
        in_tps=_first(table.get("putTps", "")),
        out_tps=_first(table.get("getTransferredTps") or table.get("getTransferedTps", "")),
        put_today=_whole(table, "msgPutTotalTodayNow") - put_morning,
        got_today=_whole(table, "msgGetTotalTodayNow") - got_morning,
        put_yesterday=put_morning - _whole(table, "msgPutTotalYesterdayMorning"),
        got_yesterday=got_morning - _whole(table, "msgGetTotalYesterdayMorning"),
        disk_ratio=_first(table.get("commitLogDiskRatio", "")),
        page_cache_wait_ms=_whole(table, "pageCacheLockTimeMills"),
        earliest_message_ms=_whole(table, "earliestMessageTimeStamp"),
        boot_ms=_whole(table, "bootTimestamp"),
        is_active=table.get("brokerActive", "true") == "true",
        log_min=_whole(table, "commitLogMinOffset"),
        log_max=_whole(table, "commitLogMaxOffset"),
        dispatch_behind_bytes=_whole(table, "dispatchBehindBytes"),
        timers_waiting=_whole(table, "timerCongestNum"),
        open_transactions=_whole(table, OPEN_TRANSACTIONS) if OPEN_TRANSACTIONS in table else None,
        table=dict(table),
    )


def _whole(table: Mapping[str, str], key: str) -> int:
    try:
        return int(table.get(key, "0"))
    except ValueError:
        return 0


def _first(text: str) -> float:
    """The first of the numbers in it: the newest, where several times are told."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return 0.0


# ---------------------------------------------------------------------------------------------- settings


def configuration(connection: Connection, address: str) -> dict[str, str]:
    """GET_BROKER_CONFIG: every setting, under RocketMQ's names."""
    reply = connection.ask(address, request(RequestCode.GET_BROKER_CONFIG), "asked for its settings")
    return dict(java_properties.parse(reply.body))


def configure(connection: Connection, address: str, changes: Mapping[str, str]) -> None:
    """UPDATE_BROKER_CONFIG: all of them or none. Raises Denied for a key that may not be set from afar."""
    connection.ask(
        address,
        request(RequestCode.UPDATE_BROKER_CONFIG, body=properties_text(changes)),
        f"asked to set {', '.join(sorted(changes))}",
    )


def properties_text(changes: Mapping[str, str]) -> bytes:
    """`key=value` lines, escaped so that no value can smuggle in another line."""
    if not changes:
        raise ConfigError("there is nothing to set: give at least one key=value")
    return java_properties.format(changes).encode()


# ----------------------------------------------------------------------------------------------- figures


def ha_status(connection: Connection, address: str) -> HaStatus:
    """GET_BROKER_HA_STATUS: who copies from it, or from whom it copies."""
    reply = connection.ask(address, request(RequestCode.GET_BROKER_HA_STATUS), "asked for its replicas")
    return HaStatus.decode(reply.body)


def stats_item(connection: Connection, address: str, name: str, key: str) -> BrokerStatsData:
    """VIEW_BROKER_STATS_DATA: one figure over the last minute, hour and day; raises Refused without one."""
    reply = connection.ask(
        address,
        request(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsAsked(name, key)),
        f"asked for {name} of {key}",
    )
    return BrokerStatsData.decode(reply.body)


def consume_stats(connection: Connection, address: str, *, is_order: bool = False) -> ConsumeStatsList:
    """GET_BROKER_CONSUME_STATS: how far every group is, of this broker's queues."""
    reply = connection.ask(
        address,
        request(RequestCode.GET_BROKER_CONSUME_STATS, ConsumeStatsAsked(is_order)),
        "asked how far its groups are",
        timeout=max(connection.timeout, 20.0),
    )
    return ConsumeStatsList.decode(reply.body)


# ---------------------------------------------------------------------------------------------- cleaning


def delete_expired_log(connection: Connection, address: str) -> None:
    """DELETE_EXPIRED_COMMITLOG."""
    _clean(connection, address, RequestCode.DELETE_EXPIRED_COMMITLOG, "its expired log files")


def clean_expired_queues(connection: Connection, address: str) -> None:
    """CLEAN_EXPIRED_CONSUMEQUEUE."""
    _clean(connection, address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, "its expired consume queues")


def clean_unused_topics(connection: Connection, address: str) -> None:
    """CLEAN_UNUSED_TOPIC."""
    _clean(connection, address, RequestCode.CLEAN_UNUSED_TOPIC, "the queues of topics that are gone")


def _clean(connection: Connection, address: str, code: RequestCode, what: str) -> None:
    connection.ask(address, request(code), f"asked to let go of {what}", timeout=CLEANING_SECONDS)
