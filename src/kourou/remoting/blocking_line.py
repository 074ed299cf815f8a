"""The one socket of a blocking client to one address, shared by all its threads.

Whoever waits for a reply and finds nobody reading becomes the reader: it hands replies to those they
belong to, and passes the office on to one of those that wait when it has its own. The others sleep, each at
a bell of its own: one bell for all would wake every thread for every reply. Sending is shared in the same
way: whoever finds somebody else sending leaves its frame there, and goes on to wait for the reply. What the
server asks of us is handled by whoever read it, after it has left the office: a handler may call, too.

    caller --outgoing--> the one sender --> socket --> the one reader --reply--> caller, other callers
                                                     --request--> handler --answer--> socket
"""

from __future__ import annotations

import contextlib
import logging
import math
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from kourou.doors.clock import Clock
from kourou.errors import ConnectionLost, MQError, ProtocolError, TimedOut, Unreachable
from kourou.protocol.codes import request_name
from kourou.protocol.command import FLAG_ONE_WAY, FLAG_REPLY, Command, decode
from kourou.protocol.frame import FrameReader
from kourou.protocol.pending import Pending, Settle
from kourou.remoting.address import format_address
from kourou.remoting.answer import Answer, Handler, is_foreseen, not_supported, one_way, refusal
from kourou.remoting.backoff import Backoff
from kourou.remoting.failures import in_words

if TYPE_CHECKING:
    from kourou.remoting.connection import Connection

logger = logging.getLogger(__name__)

READ_BYTES_MAX = 256 * 1024
READ_BYTES_AFTER_LARGE = 16 * 1024
"""Behind a frame that was received in its place there is often another: its first bytes are to show."""

HEARD_BYTES_MAX = 1024 * 1024
"""Whoever reads does so for a while, and then sees to what was read, however fast more comes."""

SHARED_BYTES_MAX = 64 * 1024
"""Longer frames are sent by whose they are: nobody else is to wait until the peer has taken them."""

Dial = Callable[[str, int, float], socket.socket]
WouldBlock = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BlockingLine:
    """Connects when it must, sends, reads, and tells everybody what is theirs.

    Locks, always taken in this order: `_sending` (one frame at a time goes out), `_state` (everything
    else), `_io` (a TLS socket must not be read and written at once). None is held while waiting for the
    peer, but `_sending` while the peer does not take the frame.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        handlers: Mapping[int, Handler],
        dial: Dial,
        connect_timeout: float,
        clock: Clock,
        backoff: Backoff,
        connected: Callable[[], None],
    ) -> None:
        self.peer_host, self.peer_port = host, port
        self.peer = format_address(host, port)
        self._handlers = handlers
        self._dial = dial
        self._connect_timeout = connect_timeout
        self._clock = clock
        self._backoff = backoff
        self._connected = connected
        self._failure = Unreachable(f"{self.peer} was not tried yet")
        self._sending = threading.Lock()
        self._state = threading.Condition()
        self._io = threading.Lock()
        self._socket: socket.socket | None = None
        self._watching = 0  # how many threads wait for a socket's bytes, or room
        self._lost: list[socket.socket] = []  # to be closed by the last of them
        self._outgoing: list[tuple[float, bytes]] = []  # for this socket, by whoever sends: until when, what
        self._reader = FrameReader()
        self._pending = Pending()
        self._requests: deque[Command] = deque()
        self._this_thread = threading.local()
        self._launched: dict[int, _Launched] = {}
        self._settled: deque[tuple[Settle, Command | Exception]] = deque()
        self._asleep: dict[_Waiting, None] = {}  # in order; who takes one out rings its bell
        self._is_being_read = False
        self._is_connecting = False
        self._is_closed = False
        self._reads = 0

    # ----------------------------------------------------------------------------------- asking

    def call(self, command: Command, deadline: float, timeout: float) -> Command:
        waiting = _Waiting(self._asleep)
        self._connect(deadline)
        with self._state:
            sending = self._socket
            if sending is None:
                raise self._gone()
            reads = self._reads
            opaque = command.opaque = self._pending.number()
            frame = command.encode()
            self._pending.add(opaque, deadline, waiting.settle)
            is_shared = len(frame) <= SHARED_BYTES_MAX
            if is_shared:
                self._outgoing.append((deadline, frame))
        try:
            self._send_outgoing(deadline) if is_shared else self._send_alone(sending, frame, deadline)
        except BaseException:
            self._forget(opaque)
            raise
        if not self._wait(waiting, deadline):
            self._forget(opaque)
            if self._take_back(frame):  # another's frame is still on its way: no reason to hang up
                raise TimedOut(f"{self.peer} did not take the request in time")
            if self._reads == reads:
                self._lose(self._socket, ConnectionLost(f"no sign of life from {self.peer}"))
            name = request_name(command.code)
            raise TimedOut(f"{self.peer} did not answer {name} within {timeout:g} s")
        if isinstance(waiting.result, Command):
            return waiting.result
        assert waiting.result is not None
        raise waiting.result

    def call_soon(self, command: Command, deadline: float, then: Settle, *, in_place: bool = False) -> None:
        with self._state:
            if self._socket is None and self._backoff.not_before > self._clock.monotonic():
                raise self._failure  # who does not wait for a reply does not wait for this, either
        self._connect(deadline)
        with self._state:
            sending = self._socket
            opaque = command.opaque = self._pending.number()
            frame = command.encode()
            name = request_name(command.code)
            self._launched[opaque] = _Launched(deadline, name, self._reads, then, in_place)
            self._pending.add(opaque, deadline, partial(self._settle_launched, opaque))
        try:
            self._send_alone(sending, frame, deadline)
        except BaseException:
            with self._state:
                self._launched.pop(opaque, None)
                self._pending.forget(opaque)
            raise

    def _settle_launched(self, opaque: int, result: Command | Exception) -> None:
        """Called with `_state` held, so the telling is left to `_tell_settled`."""
        launched = self._launched.pop(opaque, None)
        if launched is not None:
            self._settled.append((launched.then, result))

    def _tell_settled(self) -> bool:
        """Tell those whose request is settled, if any. Called where no lock is held."""
        told = False
        while self._settled:
            try:
                then, result = self._settled.popleft()
            except IndexError:  # another thread was faster
                break
            told = True
            try:
                then(result)
            except Exception:
                logger.exception("what waited for an answer of %s failed", self.peer)
        return told

    def seconds_to_deadline(self) -> float:
        """Until the first request nobody waits for is overdue; infinite when there is none."""
        with self._state:
            deadlines = [each.deadline for each in self._launched.values()]
        return self._left(min(deadlines)) if deadlines else math.inf

    def expire(self) -> None:
        """Tell those whose `call_soon` is overdue; hang up when the peer gave no sign of life meanwhile."""
        now = self._clock.monotonic()
        with self._state:
            overdue = [opaque for opaque, each in self._launched.items() if each.deadline <= now]
            is_silent = any(self._launched[opaque].reads == self._reads for opaque in overdue)
            for opaque in overdue:
                self._pending.forget(opaque)
                name = self._launched[opaque].name
                self._settle_launched(opaque, TimedOut(f"{self.peer} did not answer {name} in time"))
        if is_silent:
            self._lose(self._socket, ConnectionLost(f"no sign of life from {self.peer}"))
        self._tell_settled()

    def send_one_way(self, command: Command, deadline: float) -> None:
        self._connect(deadline)
        with self._state:
            sending, frame = self._socket, one_way(command, self._pending.number())
        self._send_alone(sending, frame, deadline)

    def close(self) -> None:
        with self._state:
            self._is_closed = True
        self._lose(self._socket, ConnectionLost(f"the connection to {self.peer} was closed here"))
        self._tell_settled()

    def watch(self) -> int:
        """The number of our socket, which it keeps until `unwatch`; -1 when there is none to be watched."""
        with self._state:
            if self._socket is None:
                return -1
            self._watching += 1
            return self._socket.fileno()

    def unwatch(self) -> None:
        with self._state:
            self._watching -= 1
            self._close_lost()

    def _forget(self, opaque: int) -> None:
        with self._state:
            self._pending.forget(opaque)

    def _wait(self, waiting: _Waiting, deadline: float) -> bool:
        """Wait for the result, as the reader when there is no other; False when time is up."""
        try:
            while True:
                with self._state:
                    if waiting.result is not None:
                        return True
                    left = self._left(deadline)
                    if not left:
                        return False
                    is_reader = not self._is_being_read
                    if is_reader:
                        self._is_being_read = True
                    else:
                        self._asleep[waiting] = None
                if is_reader:
                    try:
                        self._read_until(waiting, deadline)
                    finally:
                        self._leave_office()
                    self.tell_others()
                else:
                    waiting.bell.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            with self._state:
                self._asleep.pop(waiting, None)
                self._wake_a_reader()  # we may have been woken to be it

    def _leave_office(self) -> None:
        with self._state:
            self._is_being_read = False
            self._wake_a_reader()

    def _wake_a_reader(self) -> None:
        """When nobody reads, let one of those that sleep do it. Called with `_state` held."""
        if self._asleep and not self._is_being_read:
            waiting = next(iter(self._asleep))
            del self._asleep[waiting]
            waiting.bell.release()

    def tell_others(self) -> bool:
        """Whatever was read for others, if anything: replies nobody waits for, requests. Holds no lock."""
        told = self._tell_settled()
        return self._handle_requests() or told

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock.monotonic())

    # -------------------------------------------------------------------------------- connecting

    def _connect(self, deadline: float) -> None:
        """Return with an open socket, which one thread makes for all that want it."""
        if self._is_being_read and self._socket is not None and not self._is_closed:
            return  # whoever reads would notice that it is gone
        with self._state:
            while self._is_connecting and self._left(deadline):
                self._state.wait(self._left(deadline))
            if self._is_closed:
                raise ConnectionLost(f"cannot call {self.peer}: this client is closed")
            if self._is_connecting:
                raise Unreachable(f"no connection to {self.peer} in time")
            self._is_connecting = True
        try:
            if not self._is_alive():
                self._dial_when_allowed(deadline)
        finally:
            with self._state:
                self._is_connecting = False
                self._state.notify_all()

    def _is_alive(self) -> bool:
        """Whether the socket we have is still good: an idle one may have been closed by the server."""
        self.read_what_is_there()
        with self._state:
            return self._socket is not None

    def _dial_when_allowed(self, deadline: float) -> None:
        pause = self._backoff.not_before - self._clock.monotonic()
        if pause > 0:
            if self._backoff.not_before > deadline:
                raise self._failure
            threading.Event().wait(pause)
        try:
            connected = self._dial(
                self.peer_host, self.peer_port, max(0.001, min(self._connect_timeout, self._left(deadline)))
            )
            connected.setblocking(False)
        except OSError as error:
            self._backoff.failed(self._clock.monotonic())
            self._failure = Unreachable(f"cannot reach {self.peer}: {in_words(error)}")
            raise self._failure from None
        with self._state:
            self._backoff.succeeded()
            is_closed = self._is_closed
            if not is_closed:
                self._socket, self._reader = connected, FrameReader()
        if is_closed:  # meanwhile, and nobody would close this one
            connected.close()
            raise ConnectionLost(f"cannot call {self.peer}: this client is closed")
        self._connected()

    def _lose(self, lost: socket.socket | None, error: ConnectionLost) -> None:
        """Give up `lost`, unless another thread did, and has perhaps made a new one."""
        with self._state:
            if lost is None or lost is not self._socket:
                return
            self._socket = None
            self._outgoing.clear()
            self._pending.fail_all(error)
            self._lost.append(lost)
            with self._io, contextlib.suppress(OSError):
                lost.shutdown(socket.SHUT_RDWR)  # wakes those who watch it, which `close` would not
            self._close_lost()

    def _close_lost(self) -> None:
        """Unless somebody watches: the number of a socket that is closed is given to the next file that is
        opened, and its watcher would wait for that one. Called with `_state` held."""
        if self._lost and not self._watching:
            with self._io:
                while self._lost:
                    self._lost.pop().close()

    def _ready(self, what: socket.socket, event: int, seconds: float) -> bool:
        """Wait until `what` can be read or written, or is lost. (`select.select` ends at file 1023.)"""
        with self._state:
            if what is not self._socket:
                return True
            number = self.watch()
        try:
            poller = select.poll()
            poller.register(number, event)
            return bool(poller.poll(seconds * 1000))
        finally:
            self.unwatch()

    # ----------------------------------------------------------------------------------- bytes out

    def _send_outgoing(self, deadline: float) -> None:
        """Send what waits to be sent, of whichever thread, unless somebody is at it, who looks again when
        that is done. When the connection breaks, those who wait for replies are told; so it does when the
        peer takes nothing until `deadline`, or that of one of them."""
        while self._outgoing and self._sending.acquire(blocking=False):
            sending = None
            try:
                with self._state:
                    sending, waiting = self._socket, self._outgoing
                    self._outgoing = []
                if waiting:
                    first = min(deadline, min(waiting)[0])
                    self._send(sending, b"".join([frame for _, frame in waiting]), first)
            except MQError:
                pass
            except BaseException:  # interrupted: what others left here may have gone in part
                self._lose(sending, self._gone())
                raise
            finally:
                self._sending.release()

    def _take_back(self, frame: bytes) -> bool:
        """Whether it waited to be sent until now."""
        with self._state:
            left = [each for each in self._outgoing if each[1] is not frame]
            is_there = len(left) < len(self._outgoing)
            self._outgoing[:] = left
        return is_there

    def _send_alone(self, sending: socket.socket | None, frame: bytes, deadline: float) -> None:
        """Send `frame` there, and know that it went."""
        if not self._sending.acquire(timeout=min(self._left(deadline), threading.TIMEOUT_MAX)):
            raise TimedOut(f"{self.peer} did not take the request in time")
        try:
            self._send(sending, frame, deadline)
        except MQError:
            raise
        except BaseException:  # interrupted: nothing can follow half a frame
            self._lose(sending, self._gone())
            raise
        finally:
            self._sending.release()
            self._send_outgoing(deadline)

    def _send(self, sending: socket.socket | None, frames: bytes, deadline: float) -> None:
        """Send all of `frames`. Called by the holder of `_sending`."""
        unsent = memoryview(frames)
        while unsent:
            if sending is None or sending is not self._socket:
                raise self._gone()
            try:
                with self._io:
                    unsent = unsent[sending.send(unsent) :]
            except WouldBlock:
                left = self._left(deadline)
                if not self._ready(sending, select.POLLOUT, left) and not self._left(deadline):
                    # Half a frame is out: nothing can follow it on this connection.
                    self._lose(sending, ConnectionLost(f"{self.peer} does not take what is sent"))
                    raise TimedOut(f"{self.peer} did not take the request in time") from None
            except OSError as error:
                lost = ConnectionLost(f"the connection to {self.peer} broke: {in_words(error)}")
                self._lose(sending, lost)
                raise lost from None

    def _gone(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self.peer} is gone")

    # ------------------------------------------------------------------------------------ bytes in

    def _read_until(self, waiting: _Waiting, deadline: float) -> None:
        """Read for everybody until `waiting` has its result, its time is up, or others are to be told."""
        while waiting.result is None and not self._settled and not (self._requests and self._may_handle):
            reading, left = self._socket, self._left(deadline)
            if reading is None or not left:
                return
            if self._ready(reading, select.POLLIN, left):
                self._read()

    def read_what_is_there(self) -> None:
        """Take in what has arrived, without waiting; nothing when somebody else reads already."""
        with self._state:
            if self._is_being_read or self._socket is None:
                return
            self._is_being_read = True
            reading = self._socket
        try:
            if self._ready(reading, select.POLLIN, 0):
                self._read(to_the_end=True)  # after the last word of a server there may be its farewell
        finally:
            self._leave_office()

    def _read(self, *, to_the_end: bool = False) -> None:
        """Take in all that has arrived, and with `to_the_end` notice that nothing will follow. Called by the
        one reader."""
        with self._state:
            reading, reader = self._socket, self._reader  # as long as we read here another may make new ones
        bytes_max = READ_BYTES_MAX
        taken = 0
        while reading is not None and taken < HEARD_BYTES_MAX:
            try:
                room = reader.room()
                with self._io:
                    data = reading.recv(bytes_max) if room is None else b""
                    size = len(data) if room is None else reading.recv_into(room)
                if not size:
                    raise ConnectionResetError("closed by the peer")
                self._reads += 1
                taken += size
                frames = reader.feed(data) if room is None else reader.filled(size)
                self._take([decode(frame) for frame in frames])
                wanted = bytes_max if room is None else len(room)
                bytes_max = READ_BYTES_MAX if room is None else READ_BYTES_AFTER_LARGE
                if size < wanted and not to_the_end and not isinstance(reading, ssl.SSLSocket):
                    return  # that was all; TLS gives one record at a time, however much there is
            except WouldBlock:
                return
            except (OSError, ProtocolError) as error:
                why = in_words(error) if isinstance(error, OSError) else str(error)
                self._lose(reading, ConnectionLost(f"the connection to {self.peer} is gone: {why}"))
                return

    def _take(self, commands: list[Command]) -> None:
        with self._state:
            for command in commands:
                if command.flag & FLAG_REPLY:
                    launched = self._launched.get(command.opaque)
                    if type(command.body) is not bytes and (launched is None or not launched.in_place):
                        command.body = bytes(command.body)
                    self._pending.answer(command)
                else:
                    if type(command.body) is not bytes:
                        command.body = bytes(command.body)
                    self._requests.append(command)

    @property
    def _may_handle(self) -> bool:
        """A handler that calls, and reads another request meanwhile, leaves it for later: no recursion."""
        return not getattr(self._this_thread, "is_handling", False)

    def _handle_requests(self) -> bool:
        handled = False
        while self._requests and self._may_handle:
            try:
                request = self._requests.popleft()
            except IndexError:  # another thread was faster
                break
            self._this_thread.is_handling = handled = True
            try:
                self._handle(request)
            finally:
                self._this_thread.is_handling = False
        return handled

    def _handle(self, command: Command) -> None:
        answer = Answer(cast("Connection", self), 0, command.flag & FLAG_ONE_WAY)
        handler = self._handlers.get(command.code)
        if handler is None:
            answer(not_supported(command))
            return
        try:
            handler(command, answer)
        except Exception as error:
            if not is_foreseen(error):
                logger.exception("handling %r from %s failed", command, self.peer)
            answer(refusal(command, error))

    # ------------------------------------------------------------------- what an `Answer` asks of us

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def settle(self, size: int) -> None:
        """Nothing is counted here."""

    def send_frame(self, frame: bytes) -> None:
        with contextlib.suppress(Unreachable):  # who asked is gone: so is the answer
            self._send_alone(self._socket, frame, self._clock.monotonic() + self._connect_timeout)


class _Waiting:
    """One caller, what it has got, and the bell that wakes it."""

    __slots__ = ("_asleep", "bell", "result")

    def __init__(self, asleep: dict[_Waiting, None]) -> None:
        self.result: Command | Exception | None = None
        self.bell = threading.Lock()
        self.bell.acquire()
        self._asleep = asleep

    def settle(self, result: Command | Exception) -> None:
        """Called with the line's `_state` held."""
        self.result = result
        if self in self._asleep:
            del self._asleep[self]
            self.bell.release()


class _Launched(NamedTuple):
    """A request nobody waits for: when it is overdue, what it asks, how much had been read, whom to tell, and
    whether that takes a large body as a view of where it was received."""

    deadline: float
    name: str
    reads: int
    then: Settle
    in_place: bool
