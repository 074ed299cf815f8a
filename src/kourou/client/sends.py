"""Sending, as operations: which queue next, what a reply means, when another broker is tried.

One timeout is for all tries of a send together. Another broker is tried after a network error and after the
refusals in `RETRIED_CODES`, as the Java client does; every other refusal is raised at once.

    send --> route --> choose a queue --> greet its broker --> one request --> SendResult
                           ^                                        |
                           '------- another try, if any is left <---' failed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from kourou.client.refusals import accepted, explained
from kourou.client.routes import Route, Routes
from kourou.client.steps import Call, Operation
from kourou.doors.clock import Clock
from kourou.errors import MQError, NotFound, ProtocolError, Refused, TimedOut, Unreachable
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import FLAG_ONE_WAY, Command
from kourou.protocol.headers import SendReply
from kourou.protocol.names import DEFAULT_TOPIC
from kourou.remoting.address import format_address, parse_address

if TYPE_CHECKING:
    from kourou.client.telemetry import SendSpan

DEFAULT_TOPIC_QUEUES_TEXT = "4"
VIP_PORT_DISTANCE = 2

RETRIED_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""Refusals after which another broker may well say yes: the list of the Java client 5.3, less GO_AWAY (1500),
which nobody sends to a client of our version. The client of 4.9 lacks SYSTEM_BUSY."""


class SendStatus(Enum):
    """What became of a message that was accepted. Every one of these means: it is stored."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but the disk did not confirm in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, but the replica did not confirm in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, but there is no replica to confirm."""


_STATUSES: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(NamedTuple):
    """Where a message has gone."""

    status: SendStatus
    message_id: str
    """The unique id its producer gave it; of a batch, all of them, separated by commas."""
    offset_id: str
    """The id that names its place at the broker; of a batch, all of them, separated by commas."""
    queue: MessageQueue
    queue_offset: int
    """Its place in the queue; of a batch, that of the first."""
    transaction_id: str | None = None
    region: str | None = None
    recall_handle: str | None = None
    """What `recall` takes a delayed message back with; only for delays by seconds or a moment."""
    is_traced: bool = True
    """Whether the broker wants the message trace to tell of it."""

    @property
    def broker_name(self) -> str:
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        return self.queue.queue_id


class Outgoing(NamedTuple):
    """A message (or a batch of them) as it will travel, whichever queue it goes to."""

    group: str
    topic: str
    body: bytes
    properties: str
    message_id: str
    sys_flag: int = 0
    flag: int = 0
    born_ms: int = 0
    batch: bool = False
    reply: bool = False
    """It answers a request: the broker pushes it to who asked."""
    span: SendSpan | None = None
    """What tells OpenTelemetry of this send."""

    def request(self, queue: MessageQueue, *, one_way: bool = False) -> Command:
        # The fields of `SendMessageV2`, written out: a sixth of the time of a send goes into the struct and
        # its texts otherwise. A test compares the two.
        fields = {
            "a": self.group,
            "b": self.topic,
            "c": DEFAULT_TOPIC,
            "d": DEFAULT_TOPIC_QUEUES_TEXT,
            "e": str(queue.queue_id),
            "f": str(self.sys_flag),
            "g": str(self.born_ms),
            "h": str(self.flag),
            "i": self.properties,
            "j": "0",
            "k": "false",
            "m": "true" if self.batch else "false",
        }
        code = RequestCode.SEND_MESSAGE_V2
        if self.batch:
            code = RequestCode.SEND_BATCH_MESSAGE
        elif self.reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return Command(code, fields, self.body, flag=FLAG_ONE_WAY if one_way else 0)


Choose: TypeAlias = Callable[[Route, MessageQueue | None], MessageQueue]
"""Picks a queue of a route; the second is the one where the last try failed, if there was a try."""

Greet: TypeAlias = Callable[[str], Operation[None]]
"""Lets the broker at this address know who is about to ask."""


class Observer(Protocol):
    """Learns how each try went."""

    def tried(self, broker_name: str, seconds: float, failed: bool, unreachable: bool) -> None: ...


class SendAttempt:
    """One try of one send, as hooks see it."""

    __slots__ = ("address", "began_ms", "error", "outgoing", "queue", "result")

    def __init__(self, outgoing: Outgoing, queue: MessageQueue, address: str, began_ms: int) -> None:
        self.outgoing = outgoing
        self.queue = queue
        self.address = address
        self.began_ms = began_ms
        self.result: SendResult | None = None
        """None before it was answered, after it failed, and for one-way sends."""
        self.error: MQError | None = None


class SendHook(Protocol):
    """Is told of every try, before and after. What it raises is logged, and does not stop the send."""

    def before_send(self, attempt: SendAttempt) -> None: ...
    def after_send(self, attempt: SendAttempt) -> None: ...


class Plan(NamedTuple):
    """How a message is to be sent."""

    choose: Choose
    greet: Greet
    timeout: float
    """Seconds, for all tries together."""
    retries: int = 0
    retried_codes: frozenset[int] = RETRIED_CODES
    another_when_not_stored: bool = False
    """Try another broker, too, when a message is stored and not confirmed as it should be."""
    vip_channel: bool = False
    observer: Observer | None = None
    around: Callable[[SendAttempt, bool], None] | None = None
    """Told of every try: (attempt, whether it is over)."""


def send(outgoing: Outgoing, routes: Routes, plan: Plan, clock: Clock) -> Operation[SendResult]:
    """Send to a queue of the plan's choice; when that fails, up to `retries` times again.

    Raises what the last try failed with.
    """
    began = clock.monotonic()
    deadline = began + plan.timeout
    route = yield from routes.to_publish(outgoing.topic, deadline)
    tried: list[MessageQueue] = []
    failure: MQError | None = None
    unconfirmed: SendResult | None = None
    for _ in range(1 + plan.retries):
        queue = plan.choose(route, tried[-1] if tried else None)  # also when it is too late, as in Java
        if deadline - clock.monotonic() <= 0:
            break
        tried.append(queue)
        try:
            remaining = deadline - clock.monotonic()
            trying = send_to(queue, outgoing, routes, route, plan, clock, remaining)
            result = yield from (
                trying if plan.observer is None else _observed(trying, plan.observer, queue, clock)
            )
        except Unreachable as error:
            failure = error
        except Refused as error:
            if error.code not in plan.retried_codes:
                if unconfirmed is not None:
                    return unconfirmed
                raise
            failure = error
        else:
            if result.status is SendStatus.SEND_OK or not plan.another_when_not_stored:
                return result
            unconfirmed = result
            continue
        routes.doubt(outgoing.topic)
        if route.has_replicas(queue.broker_name) and deadline > clock.monotonic():
            route = yield from routes.to_publish(outgoing.topic, deadline)  # another may lead by now
    if unconfirmed is not None:
        return unconfirmed
    raise _gave_up(outgoing.topic, tried, clock.monotonic() - began, failure) from failure


def _observed(
    trying: Operation[SendResult], observer: Observer, queue: MessageQueue, clock: Clock
) -> Operation[SendResult]:
    began = clock.monotonic()
    failed = unreachable = False
    try:
        return (yield from trying)
    except MQError as error:
        failed, unreachable = True, isinstance(error, Unreachable)
        raise
    finally:
        observer.tried(queue.broker_name, clock.monotonic() - began, failed, unreachable)


def send_to(
    queue: MessageQueue,
    outgoing: Outgoing,
    routes: Routes,
    route: Route,
    plan: Plan,
    clock: Clock,
    timeout: float,
) -> Operation[SendResult]:
    """Send to this queue and no other, once."""
    address = yield from _greeted(queue, routes, route, plan)
    attempt = None
    if plan.around is not None:
        attempt = SendAttempt(outgoing, queue, address, clock.now_ms())
        plan.around(attempt, False)
    try:
        reply: Command = yield Call(address, outgoing.request(queue), timeout)
        result = _sent(reply, queue, outgoing, address)
    except MQError as error:
        if attempt is not None and plan.around is not None:
            attempt.error = error
            plan.around(attempt, True)
        raise
    if attempt is not None and plan.around is not None:
        attempt.result = result
        plan.around(attempt, True)
    return result


def _greeted(queue: MessageQueue, routes: Routes, route: Route, plan: Plan) -> Operation[str]:
    """Let the queue's broker know who sends; where to send to, which may not be where it says it is."""
    address = master_of(queue, route)
    try:
        yield from plan.greet(address)
    except Unreachable as error:
        found = yield from routes.elsewhere_after(error, queue.broker_name, address)
        if found is None:
            raise
        address = found
        yield from plan.greet(address)
    return vip_address(address) if plan.vip_channel else address


def _sent(reply: Command, queue: MessageQueue, outgoing: Outgoing, address: str) -> SendResult:
    asked = f"{queue.broker_name} ({address}) refused a message for queue {queue.queue_id} of '{queue.topic}'"
    accepted(reply, asked, _STATUSES)
    header = reply.parse(SendReply)
    return SendResult(
        _STATUSES[reply.code],
        outgoing.message_id,
        header.message_id,
        MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=header.queue_id),
        header.queue_offset,
        header.transaction_id,
        header.region,
        header.recall_handle,
        header.trace_on is not False,
    )


def send_one_way(outgoing: Outgoing, routes: Routes, plan: Plan, clock: Clock) -> Operation[None]:
    """Hand a message to the network and do not look back: whether it was stored stays unknown."""
    deadline = clock.monotonic() + plan.timeout
    route = yield from routes.to_publish(outgoing.topic, deadline)
    queue = plan.choose(route, None)
    try:
        address = yield from _greeted(queue, routes, route, plan)
        remaining = max(deadline - clock.monotonic(), 0.001)
        yield Call(address, outgoing.request(queue, one_way=True), remaining, one_way=True)
    except Unreachable:
        routes.doubt(outgoing.topic)
        raise


def master_of(queue: MessageQueue, route: Route) -> str:
    """Where a queue is written to; raises Unreachable when its broker is away, and is expected back."""
    try:
        return route.master(queue.broker_name)
    except NotFound as error:
        raise Unreachable(f"queue {queue.queue_id} of '{queue.topic}' cannot be reached: {error}") from None


def vip_address(address: str) -> str:
    """The second port of a broker, which pulls do not share: two below the first."""
    host, port = parse_address(address)
    return format_address(host, port - VIP_PORT_DISTANCE)


def _gave_up(topic: str, tried: Sequence[MessageQueue], seconds: float, failure: MQError | None) -> MQError:
    spent = f"{seconds * 1000:.0f} ms"
    if failure is None:
        return TimedOut(
            f"no time was left to send to '{topic}': finding its brokers, and whatever else is done here, "
            f"took {spent}; give more, or send fewer at once"
        )
    where = ", ".join(f"{queue.broker_name} queue {queue.queue_id}" for queue in tried)
    tries = "1 try" if len(tried) == 1 else f"{len(tried)} tries"
    text = f"sending to '{topic}' failed: {tries} in {spent} ({where}); last: {failure}"
    if isinstance(failure, Refused):
        return explained(type(failure)(failure.code, failure.remark), text)
    assert not isinstance(failure, ProtocolError), failure
    return type(failure)(text)
