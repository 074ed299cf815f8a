"""What can be set about a broker's part in a replica set: RocketMQ's own keys, and a few for safety."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.doors.configuration import Key, Kind, one_of, text, whole_number, yes_no
from kourou.errors import ConfigError
from kourou.remoting.address import is_ip_address, is_unspecified, parse_address
from kourou.replication.config import ASYNC_MASTER, SLAVE, SYNC_MASTER

BROKER_ID_MAX: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """The part of a broker's settings that is about replication."""

    broker_role: str = ASYNC_MASTER
    broker_id: int = 0
    ha_port: int = 0
    """0: the one after `listenPort`, or any free one when that is taken."""
    ha_master_address: str = ""
    """Where a slave finds its master; empty: where the name servers say."""
    ha_host: str = ""
    """The address slaves are told to connect to; empty: that of clients."""
    in_sync_replicas: int = 1
    slave_timeout_ms: int = 3_000
    slave_read: bool = True
    ha_gap_bytes_max: int = 256 * 1024 * 1024
    ha_gap_bytes_max_of_old: int = 0
    """The same under the name it had before 5.0."""
    ha_heartbeat_ms: int = 5_000
    ha_silence_ms_max: int = 15_000
    ha_batch_bytes: int = 32 * 1024
    ha_flow_control: bool = False
    ha_bytes_a_second_max: int = 100 * 1024 * 1024
    ha_secret: str = ""
    ha_tls: bool = False
    ha_allowed_peers: tuple[str, ...] = ()
    ha_links_max: int = 16
    ha_hide_unreplicated: bool = False
    ha_metadata_interval_ms: int = 3_000

    def check_replication(self) -> None:
        """Raises ConfigError when the settings contradict each other."""
        if self.broker_role == SLAVE and self.broker_id == 0:
            raise ConfigError(
                "brokerRole=SLAVE needs a brokerId of its own: brokerId 0 is the master's; set brokerId to "
                "1, or to another number that no other slave of this brokerName has"
            )
        if self.broker_role != SLAVE and self.broker_id != 0:
            raise ConfigError(
                f"brokerId {self.broker_id} with brokerRole={self.broker_role}: a master's is 0; leave "
                "brokerId out, or set brokerRole=SLAVE"
            )
        if self.ha_master_address:
            try:
                parse_address(self.ha_master_address)
            except ConfigError as error:
                raise ConfigError(f"haMasterAddress: {error}") from None
        if self.ha_host and (is_unspecified(self.ha_host) or not is_ip_address(self.ha_host)):
            raise ConfigError(f"brokerIP2 {self.ha_host} is not an address that slaves can connect to")


def _peers() -> Kind:
    def parse(given: str) -> tuple[str, ...]:
        return tuple(each for part in given.split(";") if (each := part.strip()))

    return Kind("addresses or networks, parted by ';', as in: 10.0.0.7;10.1.0.0/16", parse, ";".join)


_MILLISECONDS: Final = whole_number(1, 24 * 3600 * 1000)
_BYTES: Final = whole_number(1, 1 << 40)

REPLICATION_KEYS: Final = (
    Key("brokerRole", "broker_role", one_of(ASYNC_MASTER, SYNC_MASTER, SLAVE)),
    Key("brokerId", "broker_id", whole_number(0, BROKER_ID_MAX)),
    Key("haListenPort", "ha_port", whole_number(0, 65535)),
    Key("haMasterAddress", "ha_master_address", text("host:port of the master's HA port")),
    Key("brokerIP2", "ha_host", text("the address slaves are to connect to")),
    Key("inSyncReplicas", "in_sync_replicas", whole_number(1, 100)),
    Key("slaveTimeout", "slave_timeout_ms", _MILLISECONDS),
    Key("slaveReadEnable", "slave_read", yes_no(), remote=True),
    Key("haMaxGapNotInSync", "ha_gap_bytes_max", _BYTES),
    Key("haSlaveFallbehindMax", "ha_gap_bytes_max_of_old", whole_number(0, 1 << 40)),
    Key("haSendHeartbeatInterval", "ha_heartbeat_ms", _MILLISECONDS),
    Key("haHousekeepingInterval", "ha_silence_ms_max", _MILLISECONDS),
    Key("haTransferBatchSize", "ha_batch_bytes", whole_number(1024, 2 * 1024 * 1024)),
    Key("haFlowControlEnable", "ha_flow_control", yes_no()),
    Key("maxHaTransferByteInSecond", "ha_bytes_a_second_max", whole_number(1024, 1 << 40)),
    Key("haSecret", "ha_secret", text("what the nodes of a replica set share"), secret=True),
    Key("haTls", "ha_tls", yes_no()),
    Key("haAllowedPeers", "ha_allowed_peers", _peers()),
    Key("haConnectionsMax", "ha_links_max", whole_number(1, 1_000)),
    Key("haHideUnreplicated", "ha_hide_unreplicated", yes_no()),
    Key("haMetadataInterval", "ha_metadata_interval_ms", _MILLISECONDS),
)
