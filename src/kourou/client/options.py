"""The keywords of clients, for type checkers; what they mean is said with the settings of the same names.

Only imported where types are checked: to make a TypedDict every annotation in it is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from kourou.access.credentials import Credentials
from kourou.client.assignment import Assign
from kourou.client.consume_hooks import ConsumeHook
from kourou.client.consumer_settings import OrderedFailure
from kourou.client.held_keys import KeyOf
from kourou.client.operations import Start
from kourou.client.producer_settings import Avoidance, CompressionName
from kourou.client.sends import SendHook
from kourou.client.telemetry import Telemetry
from kourou.client.transactions import EndTransactionHook
from kourou.remoting.config import ClientTls


class ClusterOptions(TypedDict, total=False):
    """The keywords all clients take; `ClusterSettings` says what they mean."""

    properties: Mapping[str, str] | None
    namespace: str | None
    tls: ClientTls | None
    access: Credentials | None
    address_map: Mapping[str, str] | None
    route_cache: str | os.PathLike[str] | None
    telemetry: Telemetry | None


class ProducerOptions(ClusterOptions, total=False):
    """The keywords all forms of producers take; `ProducerSettings` says what they mean."""

    send_timeout: float
    retries: int
    retries_soon: int
    retried_codes: Collection[int]
    retry_another_broker_when_not_stored: bool
    compress_over: int | None
    compression: CompressionName
    message_bytes_max: int
    vip_channel: bool
    hooks: Sequence[SendHook]
    end_transaction_hooks: Sequence[EndTransactionHook]
    trace: bool | str
    avoid_slow_brokers: Avoidance | None
    probe_brokers: bool
    linger: float | None
    in_flight_max: int
    in_flight_bytes_max: int


class ConsumerOptions(ClusterOptions, total=False):
    """The keywords all forms of such consumers take; `ConsumerSettings` says what they mean."""

    broadcast: bool
    start: Start
    retries: int | None
    threads: int
    pull_messages: int
    queue_messages_max: int
    queue_bytes_max: int
    queue_span_max: int
    assign: Assign
    consume_timeout: float
    ordered_pause: float
    ordered_failure: OrderedFailure
    ordered_key: KeyOf | None
    commit_seconds: float
    heartbeat_seconds: float
    rebalance_seconds: float
    drain_seconds: float
    offsets_file: str | os.PathLike[str] | None
    hooks: Sequence[ConsumeHook]
    trace: bool | str
