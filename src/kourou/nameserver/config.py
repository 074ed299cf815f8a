"""The name server's settings: its defaults, their RocketMQ names, and what hangs together.

`KEYS` reads the original's `namesrv.conf` unchanged. A few settings are ours: `insecure`, `addressServer`,
`addressServerList`, `productEnvAddress`, `productEnvAddressServer`. What a peer may change while the server
runs is marked `remote`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.doors.configuration import (
    Fixed,
    Key,
    Vocabulary,
    text,
    whole_number,
    yes_no,
)
from kourou.errors import ConfigError
from kourou.remoting.access_settings import ACCESS_KEYS, AccessSettings
from kourou.remoting.address import is_unspecified
from kourou.remoting.listen_settings import LISTEN_KEYS
from kourou.remoting.metrics_settings import METRICS_KEYS, MetricsSettings

_DANGER: Final = "change routes and settings"


@dataclass(frozen=True, kw_only=True)
class NameServerConfig(AccessSettings, MetricsSettings):
    """What one name server is told at its start. Raises ConfigError when settings contradict each other."""

    port: int = 9876
    kv_config_path: str = "kourou-data/namesrv/kvConfig.json"
    config_store_path: str = ""
    config_black_list: str = ""

    scan_interval_ms: int = 10_000
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    delete_topic_with_broker_registration: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True

    cluster_test: bool = False
    product_env_name: str = "center"
    product_env_address: str = ""
    product_env_address_server: str = ""

    address_server: str = ""
    address_server_list: str = ""

    metrics_port: int = 5558

    idle_seconds: int = 120
    backlog: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_exposure("bindAddress", self.host, _DANGER)
        self.check_metrics(self.insecure)
        if self.address_server:
            self.check_exposure("addressServer", host_of(self.address_server), _DANGER)
        if self.address_server and not self.address_server_list and is_unspecified(self.host):
            raise ConfigError(
                f"the address server cannot hand out {self.host}:{self.port}: nobody can connect to that; "
                "name the addresses clients shall use with addressServerList"
            )
        if self.cluster_test and not (self.product_env_address or self.product_env_address_server):
            raise ConfigError(
                "clusterTest=true asks the production name server for topics unknown here: say where it is "
                "with productEnvAddress (host:port;host:port) or productEnvAddressServer (host:port)"
            )


def host_of(address: str) -> str:
    """The host in `host:port`, brackets of an IPv6 address kept."""
    return address.rpartition(":")[0]


def _is_address(given: str) -> bool:
    host, _, port = given.rpartition(":")
    return bool(host) and port.isdecimal() and port.isascii() and int(port) <= 65535 and not set(given) & _ODD


def _are_addresses(given: str) -> bool:
    return all(_is_address(each) for each in given.split(";") if each)


_ODD: Final = frozenset(" \t,;/\\\"'")

_PATH: Final = text("a path")
_PLAIN: Final = text()
_ADDRESS: Final = text("host:port", lambda given: not given or _is_address(given))
_ADDRESSES: Final = text("host:port;host:port", _are_addresses)

KEYS: Final = Vocabulary(
    "name server",
    "KOUROU_NAMESERVER_",
    [
        *LISTEN_KEYS,
        *ACCESS_KEYS,
        *METRICS_KEYS,
        Key("kvConfigPath", "kv_config_path", text("a path", bool)),
        Key("configStorePath", "config_store_path", _PATH),
        Key("configBlackList", "config_black_list", _PLAIN),
        Key("scanNotActiveBrokerInterval", "scan_interval_ms", whole_number(100, 600_000), remote=True),
        Key("needWaitForService", "need_wait_for_service", yes_no(), remote=True),
        Key("waitSecondsForService", "wait_seconds_for_service", whole_number(0, 3600), remote=True),
        Key("orderMessageEnable", "order_message_enable", yes_no(), remote=True),
        Key(
            "returnOrderTopicConfigToBroker",
            "return_order_topic_config_to_broker",
            yes_no(),
            remote=True,
        ),
        Key("supportActingMaster", "support_acting_master", yes_no(), remote=True),
        Key("notifyMinBrokerIdChanged", "notify_min_broker_id_changed", yes_no(), remote=True),
        Key(
            "deleteTopicWithBrokerRegistration",
            "delete_topic_with_broker_registration",
            yes_no(),
            remote=True,
        ),
        Key("enableAllTopicList", "enable_all_topic_list", yes_no(), remote=True),
        Key("enableTopicList", "enable_topic_list", yes_no(), remote=True),
        Key("clusterTest", "cluster_test", yes_no()),
        Key("productEnvName", "product_env_name", _PLAIN),
        Key("productEnvAddress", "product_env_address", _ADDRESSES),
        Key("productEnvAddressServer", "product_env_address_server", _ADDRESS),
        Key("addressServer", "address_server", _ADDRESS),
        Key("addressServerList", "address_server_list", _ADDRESSES),
        Key("serverChannelMaxIdleTimeSeconds", "idle_seconds", whole_number(1, 86_400)),
        Key("serverSocketBacklog", "backlog", whole_number(1, 65_535)),
    ],
    without_effect={
        # threads and their queues: there is one thread here
        *("serverWorkerThreads", "serverCallbackExecutorThreads", "serverSelectorThreads"),
        *("clientRequestThreadPoolNums", "defaultThreadPoolNums", "clientRequestThreadPoolQueueCapacity"),
        *("defaultThreadPoolQueueCapacity", "unRegisterBrokerQueueCapacity"),
        *("clientWorkerThreads", "clientCallbackExecutorThreads", "disableCallbackExecutor"),
        # Netty's buffers, pools, semaphores
        *("serverOnewaySemaphoreValue", "serverAsyncSemaphoreValue", "serverSocketSndBufSize"),
        *("serverSocketRcvBufSize", "writeBufferHighWaterMark", "writeBufferLowWaterMark"),
        *("serverNettyWorkerGroupEnable", "serverPooledByteBufAllocatorEnable", "useEpollNativeSelector"),
        *("enableShutdownGracefully", "shutdownWaitTimeSeconds"),
        *("clientOnewaySemaphoreValue", "clientAsyncSemaphoreValue", "connectTimeoutMillis"),
        *("channelNotActiveInterval", "isScanAvailableNameSrv", "scanAvailableNameSrv"),
        *("clientChannelMaxIdleTimeSeconds", "clientSocketSndBufSize", "clientSocketRcvBufSize"),
        *("clientPooledByteBufAllocatorEnable", "clientCloseSocketIfTimeout", "useTLS", "socksProxyConfig"),
        *("disableNettyWorkerGroup", "maxReconnectIntervalTimeSeconds", "enableReconnectForGoAway"),
        # the controller's, which mean something only with enableControllerInNamesrv
        *("controllerType", "controllerThreadPoolNums", "controllerRequestThreadPoolQueueCapacity"),
        *("controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId", "mappedFileSize"),
        *("controllerStorePath", "electMasterMaxRetryCount", "enableElectUncleanMaster"),
        *("isProcessReadEvent", "processReadEvent", "notifyBrokerRoleChanged", "scanInactiveMasterInterval"),
        *("metricsGrpcExporterTarget", "metricsGrpcExporterHeader", "metricGrpcExporterTimeOutInMills"),
        *("metricGrpcExporterIntervalInMills", "metricLoggingExporterIntervalInMills"),
        *("metricsLabel", "metricsInDelta", "jRaftElectionTimeoutMs", "jRaftScanWaitTimeoutMs"),
        *("jRaftSnapshotIntervalSecs", "jRaftGroupId", "jRaftServerId", "jRaftInitConf"),
        "jRaftControllerRPCAddr",
        # where the original is installed, and the list its own start script ignores too
        *("rocketmqHome", "namesrvAddr"),
    },
    fixed={
        "enableControllerInNamesrv": Fixed(
            "false",
            "there is no controller inside this name server; run RocketMQ's own (mqcontroller) beside it",
        ),
    },
)

NEVER_REMOTE: Final = frozenset({"rocketmqHome", "enableControllerInNamesrv"})
"""Without effect here, but a peer that tries to set them is up to something (CVE-2023-33246)."""
