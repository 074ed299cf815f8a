"""Telling brokers that this client is there, and that it goes.

A heartbeat goes to a broker with the first request we send it, and again with the first one after 30 s: one
small one-way frame ahead of a request that goes there anyway. A producer that is idle has a thread or a task
that does nothing else but `beat` every 30 s, where it is used in a `with` statement; a pull consumer that is
idle for two minutes is forgotten by its brokers, and known again with its next request.

A member that a broker must be able to call at any time, as a transaction's producer or one of several
consumers, has somebody `beat` for it, as a chore of its driver.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from kourou.client.steps import Call, Operation
from kourou.doors.clock import Clock
from kourou.errors import MQError, Unreachable
from kourou.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import FLAG_ONE_WAY, LANGUAGE, Command, request
from kourou.protocol.headers import UnregisterClient

HEARTBEAT_SECONDS = 30.0
TIMEOUT_SECONDS = 3.0
VERSION_5 = 413

_clients = count(1)


def client_id(clock: Clock) -> str:
    """What tells this client from all others: `host@process#moment-number`.

    The original has the machine's address in front. A host's name tells a person more, and behind NAT or
    in containers it is the one of the two that differs.
    """
    return f"{os.uname().nodename}@{os.getpid()}#{clock.now_ms()}-{next(_clients)}"


class BrokerVersion(NamedTuple):
    """What every answer says of who gives it."""

    language: str
    number: int
    """The place of its release among all releases of RocketMQ: 413 is 5.0.0."""

    @property
    def knows_any_delay(self) -> bool:
        """Whether it holds messages back for any number of seconds; a 4.x broker would not notice."""
        return self.number >= VERSION_5 or self.language == LANGUAGE


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
        self._due: dict[str, float] = {}
        self._versions: dict[str, BrokerVersion] = {}
        self.change(producer=producer, consumer=consumer)

    def change(self, *, producer: ProducerData | None = None, consumer: ConsumerData | None = None) -> None:
        """From now on say this of us; it is due at once everywhere."""
        self._producer = producer
        self._consumer = consumer
        self._heartbeat = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[producer] if producer else [],
            consumer_data_set=[consumer] if consumer else [],
        ).encode()
        self._due = dict.fromkeys(self._due, self._clock.monotonic())

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

    def beat(self, addresses: Iterable[str] | None = None) -> Operation[None]:
        """Announce us at these brokers, or at all that know us; who cannot be reached has to wait."""
        for address in list(self._due) if addresses is None else addresses:
            try:
                yield from self.announce(address)
            except Unreachable:
                continue

    def version_of(self, address: str) -> Operation[BrokerVersion]:
        """What runs at `address`: learnt from the answer to a heartbeat, once."""
        known = self._versions.get(address)
        if known is None:
            command = request(RequestCode.HEART_BEAT, body=self._heartbeat)
            reply: Command = yield Call(address, command, TIMEOUT_SECONDS)
            self._due[address] = self._clock.monotonic() + HEARTBEAT_SECONDS
            known = self._versions[address] = BrokerVersion(reply.language, reply.version)
        return known

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
