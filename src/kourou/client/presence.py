"""Telling brokers that this client is there, and that it goes.

A heartbeat goes to a broker with the first request we send it, and again with the first one after 30 s: no
thread and no timer of its own, but one small one-way frame ahead of a request that goes there anyway. A
client that is idle for two minutes is forgotten by its brokers, and known again with its next request. (A
member that a broker must be able to call at any time, as a transaction's producer, needs more than this.)
"""

from __future__ import annotations

import os
from itertools import count

from kourou.client.steps import Call, Operation
from kourou.doors.clock import Clock
from kourou.errors import MQError
from kourou.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import FLAG_ONE_WAY, request
from kourou.protocol.headers import UnregisterClient

HEARTBEAT_SECONDS = 30.0
TIMEOUT_SECONDS = 3.0

_clients = count(1)


def client_id(clock: Clock) -> str:
    """What tells this client from all others: `host@process#moment-number`.

    The original has the machine's address in front. A host's name tells a person more, and behind NAT or
    in containers it is the one of the two that differs.
    """
    return f"{os.uname().nodename}@{os.getpid()}#{clock.now_ms()}-{next(_clients)}"


class Presence:
    """Who we are to the brokers: one client, member of one group."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        producer: ProducerData | None = None,
        consumer: ConsumerData | None = None,
    ) -> None:
        self.client_id = name
        self._clock = clock
        self._producer = producer
        self._consumer = consumer
        self._heartbeat = HeartbeatData(
            client_id=name,
            producer_data_set=[producer] if producer else [],
            consumer_data_set=[consumer] if consumer else [],
        ).encode()
        self._due: dict[str, float] = {}

    def announce(self, address: str) -> Operation[None]:
        """Send the broker at `address` a heartbeat, if one is due."""
        now = self._clock.monotonic()
        if self._due.get(address, now) <= now:
            # Before the step, so that another thread that comes by meanwhile does not send it, too.
            self._due[address] = now + HEARTBEAT_SECONDS
            command = request(RequestCode.HEART_BEAT, body=self._heartbeat, flag=FLAG_ONE_WAY)
            try:
                yield Call(address, command, TIMEOUT_SECONDS, one_way=True)
            except MQError:
                self._due.pop(address, None)
                raise

    def leave(self) -> Operation[None]:
        """Take leave of every broker that knows us; one that cannot be reached will notice by itself."""
        addresses, self._due = list(self._due), {}
        header = UnregisterClient(
            self.client_id,
            producer_group=self._producer.group_name if self._producer else None,
            consumer_group=self._consumer.group_name if self._consumer else None,
        )
        for address in addresses:
            command = request(RequestCode.UNREGISTER_CLIENT, header, flag=FLAG_ONE_WAY)
            try:
                yield Call(address, command, TIMEOUT_SECONDS, one_way=True)
            except MQError:
                continue
