"""Access control in front of every handler of a port.

Whoever wants it wraps its tables with a `Guard`, once, when it starts; without one nothing is asked of a
request, and nothing is paid. Requests that nobody handles are guarded too: who is not known here does not
learn what this server can do.

Somebody who is not known waits for the answer: 0.1 s, doubled with each further failure from that address
up to 1 s, which is less than clients wait; with too many such answers under way the connection is closed. A
right signature is served at once whatever others from its address do, so that nobody can lock anybody out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec

from kourou.access.accounts import Account
from kourou.access.control import AccessControl, Sender, Unauthenticated
from kourou.access.needs import Needs, pull_needs, send_needs
from kourou.access.rules import Need
from kourou.doors.clock import Clock
from kourou.errors import Denied, MQError
from kourou.protocol.codes import RequestCode, request_name
from kourou.protocol.command import JSON, Command
from kourou.protocol.frame import Frame
from kourou.remoting.answer import Answer, Handler, RunAnswers, RunHandler, not_supported, refusal
from kourou.remoting.complaints import Complaints
from kourou.remoting.connection import Connection
from kourou.remoting.tls import CERTIFICATE_NAME

DELAY_SECONDS: Final = 0.1
DELAY_SECONDS_MAX: Final = 1.0
FORGET_SECONDS: Final = 60.0
WAITING_PER_ADDRESS_MAX: Final = 64
ADDRESSES_MAX: Final = 10_000

_SENDER: Final = "sender"

logger = logging.getLogger(__name__)


class Guard:
    """Asks `control` before it lets a request through."""

    def __init__(self, control: AccessControl, clock: Clock) -> None:
        self.control = control
        self._clock = clock
        self._complaints = Complaints(logger, clock)
        self._failures: dict[str, _Failures] = {}
        self.unauthenticated = self.denied = 0

    def handlers(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same table, guarded; with an entry for every code there is."""
        unknown = {int(code): _unsupported for code in RequestCode}
        return {code: self._guarded(handler) for code, handler in {**unknown, **handlers}.items()}

    def run_handlers(self, run_handlers: Mapping[bytes, RunHandler]) -> dict[bytes, RunHandler]:
        return {key: _GuardedRun(handler, _RUN_NEEDS[key], self) for key, handler in run_handlers.items()}

    def require(self, request: Command, answer: Answer, need: Need) -> None:
        """For handlers that find out what a request is about when they look. Raises Denied."""
        self.control.require(request, sender_of(answer.connection), need)

    def _guarded(self, handler: Handler) -> Handler:
        check = self.control.check

        def guarded(request: Command, answer: Answer) -> None:
            try:
                check(request, sender_of(answer.connection))
            except Denied as error:
                self._refuse(request, answer, error)
            else:
                handler(request, answer)

        return guarded

    def _refuse(self, request: Command, answer: Answer, error: Denied) -> None:
        connection = answer.connection
        kind = "unauthenticated" if isinstance(error, Unauthenticated) else "denied"
        said = f"{request_name(request.code)} from {connection.peer} refused: {error.remark}"
        self._complaints.warn(f"{kind} {connection.peer_host}", said)
        if not isinstance(error, Unauthenticated):
            self.denied += 1
            raise error
        self.unauthenticated += 1
        failures = self._failures_of(connection.peer_host)
        if failures.waiting >= WAITING_PER_ADDRESS_MAX:
            connection.abort("too many refusals")
            return
        failures.waiting += 1
        self._clock.later(
            failures.next_delay(self._clock.monotonic()),
            partial(self._answer_late, failures, answer, refusal(request, error)),
        )

    def _answer_late(self, failures: _Failures, answer: Answer, reply: Command) -> None:
        failures.waiting -= 1
        answer(reply)

    def _failures_of(self, address: str) -> _Failures:
        failures = self._failures.get(address)
        if failures is None:
            if len(self._failures) >= ADDRESSES_MAX:
                now = self._clock.monotonic()
                self._failures = {
                    host: each for host, each in self._failures.items() if not each.is_over(now)
                }
                if len(self._failures) >= ADDRESSES_MAX:
                    self._failures.clear()
            failures = self._failures[address] = _Failures()
        return failures


class _Failures:
    """How often one address was not known lately."""

    __slots__ = ("_count", "_last", "waiting")

    def __init__(self) -> None:
        self._count = 0
        self._last = 0.0
        self.waiting = 0

    def next_delay(self, now: float) -> float:
        if now - self._last > FORGET_SECONDS:
            self._count = 0
        self._last = now
        self._count += 1
        return min(DELAY_SECONDS * 2.0 ** min(self._count - 1, 10), DELAY_SECONDS_MAX)

    def is_over(self, now: float) -> bool:
        return not self.waiting and now - self._last > FORGET_SECONDS


def sender_of(connection: Connection) -> Sender:
    """Who is at the other end, remembered with the connection."""
    sender = connection.facts.get(_SENDER)
    if sender is None:
        name = connection.facts.get(CERTIFICATE_NAME)
        sender = Sender(connection.peer_host, name if isinstance(name, str) else "")
        connection.facts[_SENDER] = sender
    assert isinstance(sender, Sender)
    return sender


def _unsupported(request: Command, answer: Answer) -> None:
    answer(not_supported(request))


# ------------------------------------------------------------------------------------------- many at once


class _Head(msgspec.Struct, gc=False):
    fields: dict[str, str] = msgspec.field(name="extFields")


_decode = msgspec.json.Decoder(_Head).decode


class _RunNeeds(NamedTuple):
    """Where the topic and the group of a request are, and what it needs then."""

    topic_field: str
    group_field: str
    needs: Callable[[str, str], Needs]


_RUN_NEEDS: Final[Mapping[bytes, _RunNeeds]] = {
    b'{"code":310,': _RunNeeds("b", "a", send_needs),
    b'{"code":11,"': _RunNeeds("topic", "consumerGroup", pull_needs),
}


class _GuardedRun:
    """A run up to the first request that is not to be served: that one takes the plain way, to be refused."""

    def __init__(self, handler: RunHandler, needs: _RunNeeds, guard: Guard) -> None:
        self._handler = handler
        self._needs = needs
        self._control = guard.control
        self.spans_connections = handler.spans_connections

    def __call__(self, frames: list[Frame], answers: RunAnswers) -> int:
        allowed = self._allowed(frames, answers.connections)
        if not allowed:
            return 0
        if allowed == len(frames):
            return self._handler(frames, answers)
        return self._handler(frames[:allowed], answers.first(allowed))

    def _allowed(self, frames: list[Frame], connections: list[Connection]) -> int:
        """How many of the first ones may be served."""
        control, (topic_field, group_field, needs) = self._control, self._needs
        if control.refuses_replays:
            return 0  # what was seen once is a repetition: the plain way looks once
        allowed = 0
        last: tuple[Account, str, str, Sender] | None = None  # most of a run need the same
        try:
            for frame, connection in zip(frames, connections, strict=True):
                if frame.serialization != JSON:
                    break
                fields = _decode(frame.header).fields
                sender = sender_of(connection)
                account = control.authenticated(fields, frame.body, sender)
                if account is not None:
                    about = (account, fields[topic_field], fields[group_field], sender)
                    if about != last:
                        control.authorise(account, needs(about[1], about[2]), sender)
                        last = about
                allowed += 1
        except (MQError, msgspec.MsgspecError, KeyError, RecursionError, UnicodeError):
            pass  # the plain way says why
        return allowed
