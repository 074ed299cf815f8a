"""What can be set on a broker: RocketMQ's own keys, with its numbers where they are safe.

A `broker.conf` of the original is read unchanged. What it says about threads, Netty and memory maps means
nothing here and is taken with one notice (`apache_keys.py`); what would change the meaning of stored data
and is not served here is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from kourou.broker.apache_keys import APACHE_KEYS
from kourou.broker.replication_settings import REPLICATION_KEYS, ReplicationSettings
from kourou.broker.switching_settings import SWITCHING_KEYS, SwitchingSettings
from kourou.doors.configuration import Fixed, Key, Kind, Vocabulary, one_of, text, whole_number, yes_no
from kourou.errors import ConfigError
from kourou.protocol.bodies import PERM_READ, PERM_WRITE
from kourou.protocol.codes import RequestCode
from kourou.protocol.names import TOPIC_CHARACTERS_MAX, server_name_fault
from kourou.remoting.access_settings import ACCESS_KEYS, AccessSettings
from kourou.remoting.address import is_ip_address, is_loopback, is_unspecified, parse_address
from kourou.remoting.config import ClientTls, ServerConfig
from kourou.remoting.listen_settings import LISTEN_KEYS
from kourou.remoting.metrics_settings import METRICS_KEYS, MetricsSettings
from kourou.replication.config import ReplicationConfig
from kourou.store.config import DELAY_LEVELS_MS, StoreConfig

DELAY_LEVELS_MAX: Final = 1_024
SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
"""What `waitTimeMillsInSendQueue` is about."""


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(AccessSettings, MetricsSettings, ReplicationSettings, SwitchingSettings):
    """One broker's settings. Times are in the unit their key has in the original."""

    broker_name: str = "kourou"
    cluster_name: str = "DefaultCluster"
    advertised_host: str = ""
    """What clients are told, and every record holds; when nothing else is said, where it listens."""
    port: int = 10911
    fast_port_enabled: bool = True
    name_servers: tuple[str, ...] = ()

    store_path: str = "kourou-data/store"
    commit_log_path: str = ""
    segment_bytes: int = 1024 * 1024 * 1024
    consume_queue_bytes: int = 300_000 * 20
    flush_disk_type: str = "ASYNC_FLUSH"
    flush_interval_ms: int = 500
    flush_least_pages: int = 4
    flush_thorough_interval_ms: int = 10_000
    sync_flush_timeout_ms: int = 5_000
    write_stall_ms: int = 1_000
    send_wait_ms: int = 200
    message_bytes_max: int = 4 * 1024 * 1024

    permission: int = PERM_READ | PERM_WRITE
    region: str = "DefaultRegion"
    trace_on: bool = True
    auto_create_topic: bool = True
    auto_create_group: bool = True
    auto_created_topics_max: int = 1_000
    groups_max: int = 10_000
    default_topic_queues: int = 8
    cluster_topic: bool = True
    broker_topic: bool = True
    trace_topic: bool = False
    trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    notify_members_changed: bool = True
    offsets_save_interval_ms: int = 5_000

    reject_transactions: bool = False
    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int = 30_000
    transaction_checks_max: int = 15
    file_reserved_hours: int = 72
    store_replies: bool = True
    refuse_different_subscriptions: bool = False
    server_side_reset: bool = True

    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
    delay_offsets_save_interval_ms: int = 10_000
    timers_enabled: bool = True
    timer_seconds_max: int = 40 * 24 * 3600
    recall_enabled: bool = False

    delete_hours: frozenset[int] = frozenset((4,))
    disk_max_used_percent: int = 75
    disk_clean_forcibly_percent: int = 85
    disk_warning_percent: int = 90
    clean_forcibly: bool = True
    clean_interval_ms: int = 10_000

    property_filter: bool = False
    filter_retries: bool = False
    index_enabled: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    index_matches_max: int = 64

    long_polling: bool = True
    short_polling_ms: int = 1_000
    pull_messages_max: int = 32
    pull_bytes_max: int = 256 * 1024
    pull_messages_max_from_disk: int = 8
    pull_bytes_max_from_disk: int = 64 * 1024

    register_interval_ms: int = 30_000
    register_timeout_ms: int = 24_000
    register_always: bool = True
    register_compressed: bool = False
    register_one_way: bool = False
    ask_address_server: bool = False
    address_server: str = ""
    address_server_path: str = "nsaddr"

    connections_max: int = 10_000
    connections_per_peer_max: int = 2_000

    tls_to_others: bool = False
    """Talk TLS to name servers, as the peer that connects."""
    use_tls: bool = False
    """The same under the original's other name for it."""
    tls_others_trust: str = ""
    tls_others_verified: bool = True
    tls_own_certificate: str = ""
    tls_own_key: str = ""
    tls_own_key_password: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.client_tls()
        for name, what in (("broker_name", "brokerName"), ("cluster_name", "brokerClusterName")):
            fault = server_name_fault(getattr(self, name))
            if fault is not None:
                raise ConfigError(f"{what}: {fault}")
        for address in self.name_servers:
            parse_address(address)
        self.check_exposure("bindAddress", self.host, "read and write messages")
        self.check_metrics(self.insecure)
        self.check_replication()
        self.check_switching(self.broker_role)
        self.replication()
        object.__setattr__(self, "advertised_host", self._address_to_advertise())
        if self.fast_port_enabled and 0 < self.port < 3:
            raise ConfigError(f"listenPort {self.port}: the fast port is two below it; use 3 or more")
        if self.ask_address_server and not self.address_server:
            raise ConfigError(
                "fetchNamesrvAddrByAddressServer is set, but no address server is named: "
                "set rocketmq.namesrv.domain to its host, or name the servers in namesrvAddr"
            )

    def _address_to_advertise(self) -> str:
        given = self.advertised_host or ("127.0.0.1" if self.host == "localhost" else self.host)
        address = given.strip("[]")
        if is_unspecified(address) or not is_ip_address(address):
            key = "brokerIP1" if self.advertised_host else "bindAddress"
            raise ConfigError(
                f"{key} {given} is not an address that clients can connect to: set brokerIP1 to the IP "
                "address they reach this broker at"
            )
        return address

    @property
    def is_told_elsewhere(self) -> bool:
        """Whether clients are told another address than the one it listens on."""
        host = self.host.strip("[]")
        listens_on = "127.0.0.1" if host == "localhost" else host
        return not is_unspecified(host) and self.advertised_host != listens_on

    @property
    def notices(self) -> tuple[str, ...]:
        """What is allowed, and seldom meant."""
        if not is_loopback(self.host.strip("[]")) or is_loopback(self.advertised_host):
            return ()
        return (
            f"clients are told {self.advertised_host} (brokerIP1), but the broker listens on {self.host} "
            "only, where no other machine reaches it; set bindAddress, too",
        )

    def client_tls(self) -> ClientTls | None:
        """How to talk to name servers; None for plainly."""
        if not (self.tls_to_others or self.use_tls):
            return None
        return ClientTls(
            trust=self.tls_others_trust or None,
            certificate=self.tls_own_certificate or None,
            key=self.tls_own_key or None,
            key_password=self.tls_own_key_password or None,
            verify=self.tls_others_verified,
        )

    def store(self) -> StoreConfig:
        """The store's share of these settings."""
        return StoreConfig(
            root=self.store_path,
            commit_log_folder=self.commit_log_path,
            commit_log_segment_bytes=self.segment_bytes,
            consume_queue_segment_entries=-(-self.consume_queue_bytes // 20),
            flush=self.flush_disk_type,
            flush_interval_ms=self.flush_interval_ms,
            flush_least_pages=self.flush_least_pages,
            flush_thorough_interval_ms=self.flush_thorough_interval_ms,
            sync_flush_timeout_ms=self.sync_flush_timeout_ms,
            write_stall_ms=self.write_stall_ms,
            message_bytes_max=self.message_bytes_max,
            pull_messages_in_memory_max=self.pull_messages_max,
            pull_bytes_in_memory_max=self.pull_bytes_max,
            pull_messages_on_disk_max=self.pull_messages_max_from_disk,
            pull_bytes_on_disk_max=self.pull_bytes_max_from_disk,
            delay_levels_ms=self.delay_levels_ms,
            file_reserved_hours=self.file_reserved_hours,
            delete_hours=self.delete_hours,
            disk_max_used_percent=self.disk_max_used_percent,
            disk_clean_forcibly_percent=self.disk_clean_forcibly_percent,
            disk_warning_percent=self.disk_warning_percent,
            clean_forcibly=self.clean_forcibly,
            clean_interval_ms=self.clean_interval_ms,
            index_enabled=self.index_enabled,
            index_slots=self.index_slots,
            index_entries=self.index_entries,
            index_matches_max=self.index_matches_max,
        )

    def replication(self) -> ReplicationConfig:
        """The HA port's share of these settings. It is no back door: where strangers could reach it, it asks
        for a secret, a certificate or known addresses, or listens on loopback only."""
        tls = self.tls() if self.ha_tls else None
        if self.ha_tls and tls is None:
            raise ConfigError("haTls=true needs tls.server.mode, tls.server.certPath and tls.server.keyPath")
        if self.ha_tls and self.client_tls() is None:
            raise ConfigError("haTls=true needs tls.enable=true: a slave talks TLS to its master")
        host = self.host.strip("[]")
        asks = self.ha_secret or self.ha_allowed_peers or (tls is not None and tls.require_client_certificate)
        is_safe = self.insecure or is_loopback(host) or bool(asks)
        return ReplicationConfig(
            cluster_name=self.cluster_name,
            broker_name=self.broker_name,
            host=host if is_safe else "127.0.0.1",
            segment_bytes=self.segment_bytes,
            in_sync_replicas=max(2, self.in_sync_replicas),
            gap_bytes_max=self.ha_gap_bytes_max_of_old or self.ha_gap_bytes_max,
            slave_timeout_ms=self.slave_timeout_ms,
            heartbeat_ms=self.ha_heartbeat_ms,
            silence_ms_max=self.ha_silence_ms_max,
            batch_bytes=self.ha_batch_bytes,
            flow_control=self.ha_flow_control,
            bytes_a_second_max=self.ha_bytes_a_second_max,
            links_max=self.ha_links_max,
            allowed_peers=self.ha_allowed_peers,
            secret=self.ha_secret,
            tls=tls,
            client_tls=self.client_tls() if self.ha_tls else None,
            is_closed=self.is_access_controlled and not asks and not self.insecure,
            is_strict=self.ha_hide_unreplicated,
            is_elected=bool(self.election_members),
        )

    def server(self, port: int) -> ServerConfig:
        """A listener's share of these settings."""
        return ServerConfig(
            host=self.host.strip("[]"),
            port=port,
            tls=self.tls(),
            connections_max=self.connections_max,
            connections_per_peer_max=self.connections_per_peer_max,
            patience_seconds=dict.fromkeys(SENDS, self.send_wait_ms / 1000),
        )


def _addresses() -> Kind:
    def parse(given: str) -> tuple[str, ...]:
        return tuple(each for part in given.split(";") if (each := part.strip()))

    return Kind("host:port, several parted by ';'", parse, lambda value: ";".join(value))


def _delays() -> Kind:
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

    def parse(given: str) -> tuple[int, ...]:
        delays = tuple(whole_number(1, 10_000).parse(each[:-1]) * units[each[-1]] for each in given.split())
        if not 1 <= len(delays) <= DELAY_LEVELS_MAX:
            raise ValueError
        return delays

    def show(delays: tuple[int, ...]) -> str:
        return " ".join(map(_shown_delay, delays))

    def _shown_delay(delay_ms: int) -> str:
        unit = next(unit for unit in ("h", "m", "s") if delay_ms % units[unit] == 0)
        return f"{delay_ms // units[unit]}{unit}"

    return Kind(f"1 to {DELAY_LEVELS_MAX} delays parted by blanks, as in: 1s 30s 5m 2h 1d", parse, show)


def _hours() -> Kind:
    def parse(given: str) -> frozenset[int]:
        return frozenset(whole_number(0, 23).parse(each.strip()) for each in given.split(";") if each.strip())

    return Kind(
        "hours of the day (local time), parted by ';', as in: 04;16",
        parse,
        lambda hours: ";".join(f"{hour:02d}" for hour in sorted(hours)),
    )


def _within(least: int, most: int) -> Kind:
    """A whole number that is brought within these bounds, as the original does without a word."""

    def parse(given: str) -> int:
        number: int = whole_number(-(1 << 31), (1 << 31) - 1).parse(given)
        return min(max(number, least), most)

    return Kind(f"a whole number; below {least} it counts as that, and above {most} as that", parse)


_MILLISECONDS = whole_number(1, 24 * 3600 * 1000)
_ONE_FOLDER = text(
    "one folder: a log that is spread over several is not served", lambda given: "," not in given
)
_NAME = text(f"1 to {TOPIC_CHARACTERS_MAX} of the characters ^[%|a-zA-Z0-9_-]+$")

_KEYS: Final = (
    *LISTEN_KEYS,
    *ACCESS_KEYS,
    *METRICS_KEYS,
    Key("tls.enable", "tls_to_others", yes_no()),
    Key("useTLS", "use_tls", yes_no()),
    Key("tls.client.trustCertPath", "tls_others_trust", text("a file")),
    Key("tls.client.authServer", "tls_others_verified", yes_no()),
    Key("tls.client.certPath", "tls_own_certificate", text("a file")),
    Key("tls.client.keyPath", "tls_own_key", text("a file")),
    Key("tls.client.keyPassword", "tls_own_key_password", text("a password"), secret=True),
    Key("brokerName", "broker_name", _NAME),
    Key("brokerClusterName", "cluster_name", _NAME),
    *REPLICATION_KEYS,
    *SWITCHING_KEYS,
    Key("brokerIP1", "advertised_host", text("the address clients are to connect to")),
    Key("fastPortEnable", "fast_port_enabled", yes_no()),
    Key(
        "namesrvAddr",
        "name_servers",
        _addresses(),
        also_environment=("NAMESRV_ADDR",),
        flag="name-server",
    ),
    Key("storePathRootDir", "store_path", text("a folder", bool), flag="data"),
    Key("storePathCommitLog", "commit_log_path", _ONE_FOLDER),
    Key("mappedFileSizeCommitLog", "segment_bytes", whole_number(64 * 1024, 1 << 40)),
    Key("mappedFileSizeConsumeQueue", "consume_queue_bytes", whole_number(20, 1 << 40)),
    Key("flushDiskType", "flush_disk_type", one_of("ASYNC_FLUSH", "SYNC_FLUSH")),
    Key("flushIntervalCommitLog", "flush_interval_ms", _MILLISECONDS),
    Key("flushCommitLogLeastPages", "flush_least_pages", whole_number(0, 1 << 20)),
    Key("flushCommitLogThoroughInterval", "flush_thorough_interval_ms", _MILLISECONDS),
    Key("syncFlushTimeout", "sync_flush_timeout_ms", _MILLISECONDS),
    Key("osPageCacheBusyTimeOutMills", "write_stall_ms", _MILLISECONDS),
    Key("waitTimeMillsInSendQueue", "send_wait_ms", _MILLISECONDS),
    Key("maxMessageSize", "message_bytes_max", whole_number(1024, 15 * 1024 * 1024)),
    Key("brokerPermission", "permission", whole_number(0, 7), remote=True),
    Key("regionId", "region", _NAME),
    Key("traceOn", "trace_on", yes_no()),
    Key("autoCreateTopicEnable", "auto_create_topic", yes_no(), remote=True),
    Key("autoCreateSubscriptionGroup", "auto_create_group", yes_no(), remote=True),
    Key("autoCreatedTopicsMax", "auto_created_topics_max", whole_number(0, 1_000_000), remote=True),
    Key("consumerGroupsMax", "groups_max", whole_number(1, 1_000_000), remote=True),
    Key("defaultTopicQueueNums", "default_topic_queues", whole_number(1, 1024)),
    Key("clusterTopicEnable", "cluster_topic", yes_no()),
    Key("brokerTopicEnable", "broker_topic", yes_no()),
    Key("traceTopicEnable", "trace_topic", yes_no()),
    Key("msgTraceTopicName", "trace_topic_name", _NAME),
    Key("notifyConsumerIdsChangedEnable", "notify_members_changed", yes_no(), remote=True),
    Key("flushConsumerOffsetInterval", "offsets_save_interval_ms", _MILLISECONDS),
    Key("rejectTransactionMessage", "reject_transactions", yes_no(), remote=True),
    Key("transactionTimeOut", "transaction_timeout_ms", _MILLISECONDS, remote=True),
    Key("transactionCheckInterval", "transaction_check_interval_ms", _MILLISECONDS, remote=True),
    Key("transactionCheckMax", "transaction_checks_max", whole_number(1, 1_000_000), remote=True),
    Key("fileReservedTime", "file_reserved_hours", whole_number(1, 24 * 3650), remote=True),
    Key("storeReplyMessageEnable", "store_replies", yes_no(), remote=True),
    Key("refuseDifferentSubscriptions", "refuse_different_subscriptions", yes_no(), remote=True),
    Key("useServerSideResetOffset", "server_side_reset", yes_no(), remote=True),
    Key("messageDelayLevel", "delay_levels_ms", _delays()),
    Key("flushDelayOffsetInterval", "delay_offsets_save_interval_ms", _MILLISECONDS),
    Key("timerWheelEnable", "timers_enabled", yes_no()),
    Key("timerMaxDelaySec", "timer_seconds_max", whole_number(1, 366 * 24 * 3600), remote=True),
    Key("recallMessageEnable", "recall_enabled", yes_no(), remote=True),
    Key("deleteWhen", "delete_hours", _hours(), remote=True),
    Key("diskMaxUsedSpaceRatio", "disk_max_used_percent", _within(10, 95), remote=True),
    Key("diskSpaceCleanForciblyRatio", "disk_clean_forcibly_percent", _within(30, 85)),
    Key("diskSpaceWarningLevelRatio", "disk_warning_percent", _within(35, 100)),
    Key("cleanFileForciblyEnable", "clean_forcibly", yes_no()),
    Key("cleanResourceInterval", "clean_interval_ms", _MILLISECONDS),
    Key("enablePropertyFilter", "property_filter", yes_no(), remote=True),
    Key("filterSupportRetry", "filter_retries", yes_no(), remote=True),
    Key("messageIndexEnable", "index_enabled", yes_no()),
    Key("maxHashSlotNum", "index_slots", whole_number(1, 100_000_000)),
    Key("maxIndexNum", "index_entries", whole_number(2, 100_000_000)),
    Key("maxMsgsNumBatch", "index_matches_max", whole_number(1, 1_000), remote=True),
    Key("longPollingEnable", "long_polling", yes_no(), remote=True),
    Key("shortPollingTimeMills", "short_polling_ms", _MILLISECONDS, remote=True),
    Key("maxTransferCountOnMessageInMemory", "pull_messages_max", whole_number(1, 65_536), remote=True),
    Key(
        "maxTransferBytesOnMessageInMemory",
        "pull_bytes_max",
        whole_number(1024, 8 * 1024 * 1024),
        remote=True,
    ),
    Key(
        "maxTransferCountOnMessageInDisk", "pull_messages_max_from_disk", whole_number(1, 65_536), remote=True
    ),
    Key(
        "maxTransferBytesOnMessageInDisk",
        "pull_bytes_max_from_disk",
        whole_number(1024, 8 * 1024 * 1024),
        remote=True,
    ),
    Key("registerNameServerPeriod", "register_interval_ms", _within(10_000, 60_000)),
    Key("registerBrokerTimeoutMills", "register_timeout_ms", _MILLISECONDS),
    Key("forceRegister", "register_always", yes_no()),
    Key("compressedRegister", "register_compressed", yes_no()),
    Key("registerOneWay", "register_one_way", yes_no()),
    Key("fetchNamesrvAddrByAddressServer", "ask_address_server", yes_no()),
    Key("rocketmq.namesrv.domain", "address_server", text("host or host:port of the address server")),
    Key("rocketmq.namesrv.domain.subgroup", "address_server_path", text("the last part of its path", bool)),
    Key("connectionsMax", "connections_max", whole_number(1, 1_000_000)),
    Key("connectionsPerPeerMax", "connections_per_peer_max", whole_number(1, 1_000_000)),
)

_FIXED: Final[Mapping[str, Fixed]] = {
    "enableDLegerCommitLog": Fixed("false", "DLedger logs have another format"),
    "enableControllerMode": Fixed("false", "there is no controller"),
    "enableLmq": Fixed("false", "light message queues are not served"),
    "enableConsumeQueueExt": Fixed("false", "extended consume queues are not written"),
    "storeType": Fixed("default", "RocksDB stores have another format"),
    "readOnlyCommitLogStorePaths": Fixed("", "a log that is spread over several folders is not served"),
}

KEYS: Final = Vocabulary(
    "broker",
    "KOUROU_BROKER_",
    _KEYS,
    without_effect=APACHE_KEYS - {key.name for key in _KEYS} - _FIXED.keys(),
    fixed=_FIXED,
)

assert {key.field for key in _KEYS} <= {field.name for field in fields(BrokerConfig)}
