"""What can be set about a producer, and how it is checked before anything is sent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from kourou.client.cluster_settings import ClusterSettings
from kourou.client.sends import RETRIED_CODES, SendHook
from kourou.client.settings import checked_count, checked_hooks, checked_seconds, checked_trace
from kourou.errors import ConfigError
from kourou.protocol.compression import Compression

if TYPE_CHECKING:
    from kourou.client.transactions import EndTransactionHook

MESSAGE_BYTES_MAX = 4 * 1024 * 1024
COMPRESS_OVER_BYTES = 4096

CompressionName = Literal["zlib", "lz4", "zstd"]
Avoidance = Literal["4.9", "5"]


class ProducerSettings(ClusterSettings, frozen=True, kw_only=True):
    """The settings of a producer; names as in Java where Java has them, times in seconds."""

    send_timeout: float = 3.0
    """Seconds for one send with all its tries."""
    retries: int = 2
    """How often a send is tried again, at another broker."""
    retries_soon: int = 2
    """The same for `send_soon`, which tries again after network errors only."""
    retried_codes: Collection[int] = RETRIED_CODES
    """The refusals after which `send` tries again; 4.9's list lacks SYSTEM_BUSY (2), 5's has it."""
    retry_another_broker_when_not_stored: bool = False
    """Try another broker also when a message is stored and was not confirmed by disk or replica in time."""
    compress_over: int | None = COMPRESS_OVER_BYTES
    """Bodies from so many bytes on travel compressed, if that makes them smaller; None: never."""
    compression: CompressionName = "zlib"
    """zlib can be read by every consumer; lz4 and zstd need the extra `server`, and a Java consumer 4.9.4."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    vip_channel: bool = False
    """Send to the brokers' second port, two below the first."""
    hooks: Sequence[SendHook] = ()
    """Told of every try."""
    end_transaction_hooks: Sequence[EndTransactionHook] = ()
    """Told how each transaction ends."""
    trace: bool | str = False
    """Tell the topic RMQ_SYS_TRACE_TOPIC of every message, as Java's `enableMsgTrace`; or another topic, by
    its name."""
    avoid_slow_brokers: Avoidance | None = None
    """Send to brokers that were slow or failed only after a while, by the table of 4.9 or 5 (`faults.py`)."""
    probe_brokers: bool = False
    """With it: ask a broker that could not be reached every two seconds whether it is there again."""
    linger: float | None = None
    """Seconds `send_soon` waits for more messages of a topic, to send them in one request; None: none."""
    in_flight_max: int = 10_000
    """How many messages of `send_soon` may wait for their answer; who sends more waits."""
    in_flight_bytes_max: int = 100 * 1024 * 1024
    """The same for the bytes of their bodies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_seconds("send_timeout", self.send_timeout)
        checked_count("retries", self.retries)
        checked_count("retries_soon", self.retries_soon)
        if self.compress_over is not None:
            checked_count("compress_over", self.compress_over)
        checked_count("message_bytes_max", self.message_bytes_max, 1)
        checked_trace(self.trace)
        checked_hooks("hooks", self.hooks, "before_send", "after_send")
        checked_hooks("end_transaction_hooks", self.end_transaction_hooks, "end_transaction")
        if not isinstance(self.retried_codes, Collection):
            raise ConfigError(f"retried_codes is {self.retried_codes!r}, but must be a set of response codes")
        if self.compression not in get_args(CompressionName):
            raise ConfigError(f"compression is {self.compression!r}; it is one of zlib, lz4 and zstd")
        if self.avoid_slow_brokers is not None and self.avoid_slow_brokers not in get_args(Avoidance):
            raise ConfigError(f"avoid_slow_brokers is {self.avoid_slow_brokers!r}; it is '4.9', '5' or None")
        if self.linger is not None:
            checked_seconds("linger", self.linger)
        checked_count("in_flight_max", self.in_flight_max, 1)
        checked_count("in_flight_bytes_max", self.in_flight_bytes_max, 1)

    @property
    def compression_kind(self) -> Compression:
        return Compression[self.compression.upper()]
