"""Being a member of a consumer group: heartbeats, who else is there, locks on queues, taking leave.

Other than the heartbeats of `presence.py` these are answered: who asks for the members of a group must be one
of them first, and a broker may handle two requests of one connection in any order. `Membership` sees to it
that every broker knows us; each function is an operation with one broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from kourou.client.brokers import Brokers
from kourou.client.operations import SQL92, TIMEOUT_SECONDS, Subscription
from kourou.client.refusals import accepted
from kourou.client.routes import Route
from kourou.client.steps import Call, Operation
from kourou.doors.clock import Clock
from kourou.errors import ConfigError, MQError, Refused
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import (
    CheckClient,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    LockedQueues,
    LockQueues,
    MessageQueue,
    SubscriptionData,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import FLAG_ONE_WAY, Command, request
from kourou.protocol.headers import GroupNamed, SendBack, UnregisterClient
from kourou.protocol.java_hash import tag_code
from kourou.remoting.complaints import Complaints

SEND_BACK_SECONDS = 5.0

_log = logging.getLogger("kourou.client")


class Membership:
    """Keeps every broker of the topics in use knowing that we are there. Belongs to the event loop."""

    def __init__(
        self,
        group: str,
        client_id: str,
        brokers: Brokers,
        clock: Clock,
        *,
        seconds: float,
        consumer_data: Callable[[], ConsumerData],
        forgotten: Callable[[], None],
    ) -> None:
        """A heartbeat every `seconds`. `forgotten` is told when a broker may have lost sight of us."""
        self._group = group
        self._client_id = client_id
        self._brokers = brokers
        self._clock = clock
        self._seconds = seconds
        self._consumer_data = consumer_data
        self._forgotten = forgotten
        self._due: dict[str, float] = {}
        self.refusal: Refused | None = None
        """What the last broker said that does not want us, if the last one did not."""
        self._complaints = Complaints(_log, clock)

    async def join(self, addresses: Iterable[str]) -> None:
        """Be a member at these brokers, where that is not sure; return when all have heard, or cannot."""
        now = self._clock.monotonic()
        due = [address for address in sorted(addresses) if self._due.get(address, 0.0) <= now]
        await asyncio.gather(*(self._beat(address) for address in due))

    async def beat(self) -> None:
        """A heartbeat to every broker."""
        await asyncio.gather(*(self._beat(address) for address in self._brokers.addresses()))

    def say_again(self) -> None:
        """What we want has changed, or somebody does not know us: the next `join` tells everybody."""
        self._due.clear()

    async def everybody(self, route: Route) -> list[str]:
        """All members, as the first broker tells that can: all ask the same one first, so that all agree."""
        failure: MQError | None = None
        for broker_name in sorted({queue.broker_name for queue in route.read_queues}):
            try:
                return await self._brokers.run(members(route.reader(broker_name), self._group))
            except MQError as error:
                failure = error
        if failure is not None:
            raise failure
        return [self._client_id]

    async def leave(self) -> None:
        """Take leave of everybody; who cannot be reached will notice by itself."""
        for address in self._brokers.addresses():
            if address in self._due:
                try:
                    await self._brokers.run(leave(address, self._client_id, self._group))
                except MQError:
                    continue

    async def _beat(self, address: str) -> None:
        is_new = address not in self._due
        # At half time it is still good, and nobody else need send one meanwhile.
        self._due[address] = self._clock.monotonic() + self._seconds / 2
        try:
            await self._brokers.run(heartbeat(address, self._client_id, self._consumer_data()))
            self.refusal = None
            if is_new:
                connection = await self._brokers.client.connect(address)
                connection.on_close(lambda _: self._lost(address))
        except MQError as error:
            self._due.pop(address, None)
            if (found := await self._brokers.find_elsewhere(error, address)) is not None:
                await self._beat(found)
                return
            if isinstance(error, Refused):
                self.refusal = error
            self._complaints.warn(address, f"no heartbeat of group {self._group} to {address}: {error}")
            self._forgotten()

    def _lost(self, address: str) -> None:
        """That broker has forgotten us with the connection."""
        if self._due.pop(address, None) is not None:
            self._forgotten()


def subscription_data(subscription: Subscription) -> SubscriptionData:
    """As a heartbeat tells it."""
    tags = sorted(subscription.tags)
    return SubscriptionData(
        topic=subscription.topic,
        expression_type=subscription.kind,
        sub_string=subscription.expression,
        tags_set=tags,
        code_set=[tag_code(tag) for tag in tags],
        sub_version=subscription.version,
    )


def heartbeat(address: str, client_id: str, consumer: ConsumerData) -> Operation[None]:
    """Be, or stay, a member at this broker."""
    body = HeartbeatData(client_id=client_id, consumer_data_set=[consumer]).encode()
    reply: Command = yield Call(address, request(RequestCode.HEART_BEAT, body=body), TIMEOUT_SECONDS)
    accepted(reply, f"heartbeat of group '{consumer.group_name}' at {address}")


def members(address: str, group: str) -> Operation[list[str]]:
    """The client ids of all members this broker knows, sorted."""
    command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupNamed(group))
    reply: Command = yield Call(address, command, TIMEOUT_SECONDS)
    listed = ConsumerList.decode(accepted(reply, f"members of group '{group}' at {address}").body)
    return sorted(set(listed.consumer_id_list))


def leave(address: str, client_id: str, group: str) -> Operation[None]:
    """No longer a member at this broker; whether it heard is not waited for."""
    header = UnregisterClient(client_id, consumer_group=group)
    command = request(RequestCode.UNREGISTER_CLIENT, header, flag=FLAG_ONE_WAY)
    yield Call(address, command, TIMEOUT_SECONDS, one_way=True)


def lock(
    address: str, client_id: str, group: str, queues: Iterable[MessageQueue]
) -> Operation[set[MessageQueue]]:
    """Those of the queues that are ours alone for the next minute."""
    body = LockQueues(client_id=client_id, consumer_group=group, mq_set=list(queues)).encode()
    reply: Command = yield Call(address, request(RequestCode.LOCK_BATCH_MQ, body=body), TIMEOUT_SECONDS)
    return set(LockedQueues.decode(accepted(reply, f"locking queues of '{group}' at {address}").body).locked)


def unlock(address: str, client_id: str, group: str, queues: Sequence[MessageQueue]) -> Operation[None]:
    """Others may have them at once, and need not wait for our lock to expire."""
    body = LockQueues(client_id=client_id, consumer_group=group, mq_set=list(queues)).encode()
    reply: Command = yield Call(address, request(RequestCode.UNLOCK_BATCH_MQ, body=body), TIMEOUT_SECONDS)
    accepted(reply, f"unlocking queues of '{group}' at {address}")


def send_back(
    address: str, group: str, message: ReceivedMessage, level: int, retries: int | None
) -> Operation[None]:
    """The broker shall deliver the message to the group once more, or lay it with the dead letters.

    Without `retries` the group's own setting at the broker says how often.
    """
    header = SendBack(
        physical_offset=message.physical_offset,
        group=group,
        delay_level=level,
        origin_message_id=message.offset_id,
        origin_topic=message.topic,
        unit_mode=False,
        max_reconsume_times=retries,
    )
    command = request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    reply: Command = yield Call(address, command, SEND_BACK_SECONDS)
    accepted(reply, f"handing back a message of '{message.topic}' to {address}")


def check_expression(address: str, client_id: str, group: str, subscription: Subscription) -> Operation[None]:
    """Raises ConfigError when the broker cannot filter by this SQL expression."""
    if subscription.kind != SQL92:
        return
    body = CheckClient(client_id=client_id, group=group, subscription_data=subscription_data(subscription))
    command = request(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
    reply: Command = yield Call(address, command, TIMEOUT_SECONDS)
    try:
        accepted(reply, f"filter {subscription.expression!r} of topic '{subscription.topic}'")
    except Refused as error:
        raise ConfigError(
            f"{error}; see that the expression is right, and that the broker has enablePropertyFilter=true"
        ) from None
