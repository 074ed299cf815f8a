"""One connection: bytes in, commands to the handler table, answers and requests of our own out.

The same class serves an accepted connection (`server.py`) and one we made (`client.py`): either side may
ask, either side answers. What all connections of one server or client have in common, sums and bounds
among it, is their `Switchboard` (`switchboard.py`).

    received -> frames -> handler(request, answer) … answer(reply) -> _out --(end of tick)--> one write
                    |\\-> reply -> pending.answer
                    \\--> run handler(frames, answers), with those of other connections if it likes

Reading stops for as long as one of these holds, so that a peer is slowed down by its own weight:

    BUSY       too many of its requests, or too many bytes of them, are unanswered
    UNREAD     it leaves too much of what we wrote unread
    CROWDED    all connections together have too many unanswered bytes
    BACKLOG    answers to what was read already fill the write buffer, or all that one tick may answer;
               the rest of it waits its turn
    PARKED     too many of its requests, or too many bytes of them, are parked (long polls)
    DRAINING   the server is about to stop
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

from kourou.errors import ConnectionLost, ProtocolError, TimedOut
from kourou.native import native
from kourou.protocol.command import FLAG_ONE_WAY, FLAG_REPLY, Command, decode
from kourou.protocol.frame import Frame, FrameReader
from kourou.protocol.pending import Pending, Settle
from kourou.remoting.address import format_address, pack_address, plain_host
from kourou.remoting.alarm import Alarm
from kourou.remoting.answer import (
    REQUEST_OVERHEAD_BYTES,
    Answer,
    RunAnswers,
    RunHandler,
    is_foreseen,
    not_supported,
    one_way,
    refusal,
    too_late,
)
from kourou.remoting.switchboard import (
    BACKLOG,
    BUSY,
    CROWDED,
    LIGHT_BYTES,
    LIGHT_REQUESTS,
    PARKED,
    UNREAD,
    Switchboard,
)
from kourou.remoting.watch import Watch

T = TypeVar("T")

RUN_KEY_BYTES = 12
"""How much of a header says which run handler takes it: `{"code":310,`, as every known client begins."""
TLS_HANDSHAKE = 0x16
WEIGH_BYTES = 16 * 1024
"""Answers are weighed when so much of them has gathered since the last time, or is left unread: most ticks
never get there. The sweep weighs the rest."""
PART_BYTES_MIN = 16 * 1024
"""Answers of so many bytes each are written as they are: to join four of 35 KiB takes 10 us; bench: pull."""


class Connection(asyncio.BufferedProtocol):
    """A peer, as handlers see it. Belongs to the event loop's thread."""

    __slots__ = (
        *("_alarm", "_backlog", "_board", "_is_writable", "_large_writes"),
        *("_on_close", "_out", "_out_bytes", "_paused", "_pending", "_put_off_at", "_reader"),
        "_reads_at_call",
        *("_transport", "_why", "backlog_bytes", "bytes_out", "facts", "frames", "gathered_bytes"),
        *("in_flight_bytes", "in_flight_requests", "is_gathered", "is_open"),
        *("local_host", "local_port", "packed_peer", "parked_bytes", "parked_requests", "partial_bytes"),
        *("peer", "peer_host", "peer_port", "reads", "unread_bytes", "watch", "writes"),
    )

    def __init__(self, board: Switchboard, host: str, port: int) -> None:
        self._board = board
        self._reader = FrameReader()
        self._backlog: list[Frame] = []
        self._put_off_at = 0.0
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._large_writes: list[tuple[int, int]] = []  # where in all bytes out they begin and end
        self._paused = 0
        self._pending = Pending()
        self._reads_at_call = 0
        self._is_writable = True
        self._alarm = Alarm(board.clock, self._expire)
        self._on_close: list[Callable[[Connection], None]] = []
        self._why = ""
        self._transport: asyncio.Transport | None = None
        self.peer_host = plain_host(host)
        self.peer_port = port
        self.peer = format_address(self.peer_host, port)
        self.packed_peer = pack_address(self.peer_host, port)
        self.local_host, self.local_port = "", 0
        self.is_open = True
        self.is_gathered = False
        """What it sent in this tick waits for what others send: see `Switchboard.gather`."""
        self.facts: dict[str, object] = {}
        """Whatever a handler wants to remember about this peer."""
        self.backlog_bytes = 0
        """Requests that were put off."""
        self.frames = self.reads = self.writes = self.bytes_out = 0
        self.in_flight_requests = self.in_flight_bytes = self.partial_bytes = 0
        self.parked_requests = self.parked_bytes = 0
        self.gathered_bytes = 0
        """What this tick has still to write, when last weighed."""
        self.unread_bytes = 0
        """What is kept here until the peer reads, when last weighed: answers, and requests put off."""
        self.watch = Watch(board.clock.monotonic())

    def __repr__(self) -> str:
        return f"<Connection {self.peer} {'open' if self.is_open else 'closed'}>"

    # ----------------------------------------------------------------------------- for handlers and owners

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Call once when the connection is gone; at once when it already is."""
        if self.is_open:
            self._on_close.append(callback)
        else:
            callback(self)

    def send_one_way(self, command: Command) -> None:
        """Send a request nobody answers; dropped when the connection is gone."""
        self.send_frame(one_way(command, self._pending.number()))

    def call(self, command: Command, timeout_ms: int, then: Settle) -> None:
        """Send a request; `then` is called once, with the reply or TimedOut or ConnectionLost."""
        if not self.is_open:
            then(self._lost())
            return
        pending = self._pending
        if not pending:
            self._reads_at_call = self.reads
        command.opaque = pending.number()
        frame = command.encode()
        deadline = self._board.clock.monotonic() + timeout_ms / 1000
        pending.add(command.opaque, deadline, partial(self._tell, then))
        self._alarm.ring_by(deadline)
        self.send_frame(frame)

    def close(self, reason: str) -> None:
        """Send what is waiting, then hang up."""
        if self.is_open and not self._why:
            self.flush()
            self._why = reason
            if self._transport is not None:
                self._transport.close()

    def abort(self, reason: str) -> None:
        """Hang up at once; what is waiting is lost, and counts no more."""
        self._why = self._why or reason
        self._drop_all()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    @property
    def is_writable(self) -> bool:
        """False while the peer leaves too much unread: hold back what can wait (a long poll, say)."""
        return self._is_writable

    @property
    def has_room(self) -> bool:
        """Not while the peer leaves too much unread, or this tick has answered all that one may."""
        return self._is_writable and not self._board.is_spent

    @property
    def is_held_back(self) -> bool:
        return self._paused != 0

    @property
    def write_buffer_bytes(self) -> int:
        transport = self._transport
        return 0 if transport is None else transport.get_write_buffer_size()

    @property
    def is_working(self) -> bool:
        """Whether anything that was asked is still to be answered, parked requests apart."""
        return self.in_flight_requests > 0 or bool(self._backlog) or self.is_gathered

    @property
    def is_light(self) -> bool:
        """Whether little of what it asked was put off."""
        return len(self._backlog) <= LIGHT_REQUESTS and self.backlog_bytes <= LIGHT_BYTES

    @property
    def pending_calls(self) -> int:
        """How many requests of ours wait for this peer's reply."""
        return len(self._pending)

    # --------------------------------------------------------------------------------------- bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._board.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received(bytes(self._board.read_buffer[:nbytes]))

    def received(self, data: bytes) -> None:
        """Handle every frame `data` completes. The hot path: about 1.5 µs a request is spent here."""
        if self._why:
            return
        board = self._board
        self.reads += 1
        board.bytes_in += len(data)
        if board.bytes_in > board.takes_until:
            board.count_read(len(data))
        try:
            frames = self._reader.feed(data)
            if frames:
                self.frames += len(frames)
                self._handle(frames)
            partial = self._reader.held_bytes
            if partial or self.partial_bytes:
                self._hold_partial(partial)
        except ProtocolError as error:
            self._hang_up_on(error, data)

    def _handle(self, frames: list[Frame]) -> None:
        board = self._board
        if self.is_gathered:
            board.handle_gathered()  # what came before comes first, whatever becomes of this
            if self._why:
                return
        if self._backlog:
            self._put_off(frames)
        elif board.is_spent or board.has_enough:
            self._put_off(frames)
            board.stand_in_line(self)
        elif not board.run_handlers:
            self._handle_one_by_one(frames)
        else:
            key = frames[0].header[:RUN_KEY_BYTES]
            handler = board.spanning_handlers.get(key)
            if handler is not None and _run_end(frames, 0, key) == len(frames):
                board.gather(handler, self, frames)
                return
            self._handle_runs(frames)

    def _handle_runs(self, frames: list[Frame]) -> None:
        """Hand over together what begins alike and follows each other, the rest one by one; all in order."""
        at = 0
        while at < len(frames) and not self._backlog:
            key = frames[at].header[:RUN_KEY_BYTES]
            end = _run_end(frames, at, key)
            run_handler = self._board.run_handlers.get(key)
            if run_handler is None:
                self._handle_one_by_one(frames[at:end])
                at = end
            else:
                at += self._handle_run(run_handler, frames[at:end])
        if at < len(frames):
            self._put_off(frames[at:])

    def _handle_run(self, run_handler: RunHandler, frames: list[Frame]) -> int:
        """How many it came to, until something had to be put off.

        A run handler may look at all of a run to find that it cannot take the first: so it is shown twice as
        many as were dealt with the last time, and looks at each no more than three times.
        """
        at, width = 0, len(frames)
        while at < len(frames) and not self._backlog:
            run = frames[at : at + width]
            done = run_handler(run, RunAnswers(((self, run),)))
            if done < len(run):
                self._handle_one_by_one(run[done : done + 1])
                done += 1
            at += done
            width = 2 * done
        return at

    def handle_unusual(self, frames: list[Frame]) -> None:
        """No run handler wants the first of `frames`; the others follow it."""
        try:
            self._handle_one_by_one(frames[:1])
            self._handle_runs(frames[1:])
        except ProtocolError as error:
            self._hang_up_on(error, b" ")

    def _handle_one_by_one(self, frames: list[Frame]) -> None:
        board = self._board
        handler_of = board.handlers.get
        limits = board.limits
        frame_bytes_max = limits.frame_bytes_max - 8
        out_bytes_max = board.out_bytes_max
        requests = requests_bytes = 0  # added up here: four counters less to touch for each request
        try:
            for number, frame in enumerate(frames):
                if self._out_bytes > out_bytes_max or self._why:
                    self._put_off(frames[number:])
                    break
                size = len(frame.header) + len(frame.body)
                if size > frame_bytes_max:
                    raise ProtocolError(
                        f"frame of {size + 8} bytes: at most {frame_bytes_max + 8} are taken here"
                    )
                command = decode(frame)
                flag = command.flag
                if flag and flag & FLAG_REPLY:
                    self._pending.answer(command)  # late or unasked for: dropped
                    continue
                size += REQUEST_OVERHEAD_BYTES
                requests += 1
                requests_bytes += size
                answer = Answer(self, size, flag and flag & FLAG_ONE_WAY)
                handler = handler_of(command.code)
                if handler is None:
                    answer(not_supported(command))
                    continue
                try:
                    handler(command, answer)
                except Exception as error:
                    self._failed(command, answer, error)
        finally:
            self.take_on(requests_bytes, requests)

    def take_on(self, size: int, requests: int) -> None:
        """Requests that count `size` together are being worked on from now on."""
        board = self._board
        limits = board.limits
        board.requests += requests
        board.in_flight_bytes += size
        self.in_flight_requests += requests
        self.in_flight_bytes += size
        if (
            self.in_flight_requests > limits.in_flight_requests_max
            or self.in_flight_bytes > limits.in_flight_bytes_max
        ):
            self.pause(BUSY)
        if board.in_flight_bytes > limits.total_in_flight_bytes_max and not board.is_crowded:
            board.hold_all_back()

    def answered_at_once(self, requests: int) -> None:
        """So many requests were answered before anything else could happen: they are counted, no more."""
        self._board.requests += requests

    def _put_off(self, frames: list[Frame]) -> None:
        """A few hundred bytes of pull requests may ask for megabytes: first see some of them go."""
        if self._why:
            return
        if not self._backlog:
            self._put_off_at = self._board.clock.monotonic()
        self._backlog += frames
        self.backlog_bytes += sum(
            len(each.header) + len(each.body) + REQUEST_OVERHEAD_BYTES for each in frames
        )
        self.pause(BACKLOG)
        self._weigh_and_check()

    def take_up_backlog(self) -> None:
        """Go on with what was put off, as far as there is room now."""
        if self._backlog and self._is_writable and self.is_open and not self._why:
            backlog, self._backlog = self._backlog, []
            since = self._put_off_at
            self.backlog_bytes = 0
            self.weigh()
            try:
                if backlog := self._without_stale(backlog, self._board.clock.monotonic() - since):
                    self._handle(backlog)
            except ProtocolError as error:
                self._hang_up_on(error, b" ")
            self._put_off_at = since  # whatever is left of it has waited since then
        if not self._backlog:
            self.resume(BACKLOG)

    def _without_stale(self, frames: list[Frame], waited: float) -> list[Frame]:
        """Refuse what was put off for longer than its sender is to wait; returns the rest."""
        board = self._board
        patience = board.limits.patience_seconds
        if not patience or waited <= min(patience.values()):
            return frames
        kept = []
        for frame in frames:
            command = decode(frame)
            allowed = patience.get(command.code, waited)
            if waited <= allowed or command.flag & FLAG_REPLY:
                kept.append(frame)
                continue
            board.requests += 1
            if not command.flag & FLAG_ONE_WAY:
                self.send_frame(too_late(command, waited, allowed, len(frames)).encode())
        if len(kept) < len(frames):
            refused = f"{len(frames) - len(kept)} requests from {self.peer}"
            board.complaints.warn("stale", f"refused {refused} that had to wait {waited * 1000:.0f} ms")
        return kept

    def _failed(self, request: Command, answer: Answer, error: Exception) -> None:
        if not is_foreseen(error):
            kind = f"handler {request.code} {type(error).__name__}"
            self._board.complaints.warn(kind, f"handling {request!r} from {self.peer} failed", error)
        answer(refusal(request, error))

    def _hold_partial(self, size: int) -> None:
        board = self._board
        board.partial_bytes += size - self.partial_bytes
        self.partial_bytes = size
        if size > board.limits.frame_bytes_max:
            raise ProtocolError(f"frame of more than {board.limits.frame_bytes_max} bytes")
        board.check_partial()

    def _hang_up_on(self, error: ProtocolError, data: bytes) -> None:
        what = str(error)
        if not self.frames and data[0] == TLS_HANDSHAKE:
            what = "it speaks TLS, which is disabled here"
        self._board.complaints.warn("protocol error", f"closing the connection from {self.peer}: {what}")
        self.close("protocol error")

    # -------------------------------------------------------------------------------------- answers out

    def send_frame(self, frame: bytes) -> None:
        """Let `frame` go out at the end of this tick."""
        out = self._out
        if not out:
            if not self.is_open or self._why:
                return
            self._board.tick.flush_at_end(self.flush)
        out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > self.gathered_bytes + WEIGH_BYTES:
            self._weigh_and_check()

    def send_parts(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        """As `send_frame`, for a large frame in parts, `size` bytes together: they are joined once, with what
        else goes out in this tick."""
        out = self._out
        if not out:
            if not self.is_open or self._why:
                return
            self._board.tick.flush_at_end(self.flush)
        out += parts
        self._out_bytes += size
        if self._out_bytes > self.gathered_bytes + WEIGH_BYTES:
            self._weigh_and_check()

    def flush(self) -> None:
        """One write for all that has gathered."""
        out = self._out
        transport = self._transport
        if not out or transport is None:
            return
        parts, size = out, self._out_bytes
        count = len(parts)
        if count > 1 and (size < PART_BYTES_MIN * count or not all(type(part) is bytes for part in parts)):
            parts = [b"".join(parts)]  # also because a view is not to be kept until it is written
        self._out = []
        self._out_bytes = 0
        if self.is_open and not self._why:
            self.writes += 1
            self.bytes_out += size
            self._board.bytes_out += size
            if size > WEIGH_BYTES:
                self._large_writes.append((self.bytes_out - size, self.bytes_out))
            if len(parts) == 1:
                transport.write(parts[0])
            else:
                transport.writelines(parts)
            if self._backlog and self._is_writable:
                self._board.tick.at_end(self.take_up_backlog)
        if self.unread_bytes or transport.get_write_buffer_size() > WEIGH_BYTES:
            self._weigh_and_check()

    def settle(self, size: int, requests: int = 1) -> None:
        """A request that counted `size`, or several that did so together, is answered."""
        board = self._board
        self.in_flight_requests -= requests
        self.in_flight_bytes -= size
        board.in_flight_bytes -= size
        if self._paused & BUSY:
            limits = board.limits
            if (
                self.in_flight_requests * 2 <= limits.in_flight_requests_max
                and self.in_flight_bytes * 2 <= limits.in_flight_bytes_max
            ):
                self.resume(BUSY)
        if board.is_crowded:
            board.thin_out_the_crowd()

    def park(self, size: int) -> None:
        """A request that counted `size` waits from now on, and counts among those that do."""
        self.settle(size)
        board = self._board
        self.parked_requests += 1
        self.parked_bytes += size
        board.parked_bytes += size
        limits = board.limits
        if (
            self.parked_requests > limits.parked_requests_max
            or self.parked_bytes > limits.in_flight_bytes_max
        ):
            self.pause(PARKED)
        board.check_parked()

    def unpark(self, size: int) -> None:
        """A parked request that counted `size` is answered."""
        self.parked_requests -= 1
        self.parked_bytes -= size
        self._board.parked_bytes -= size
        if self._paused & PARKED:
            limits = self._board.limits
            if (
                self.parked_requests * 2 <= limits.parked_requests_max
                and self.parked_bytes * 2 <= limits.in_flight_bytes_max
            ):
                self.resume(PARKED)

    def weigh(self) -> None:
        """Bring what the board knows of unread bytes up to date."""
        board = self._board
        gathered, transport = self._out_bytes, self._transport
        unread = 0 if transport is None else transport.get_write_buffer_size()
        if self._large_writes:
            unread = self._written_bytes(unread)
        unread += gathered + self.backlog_bytes
        board.gathered_bytes += gathered - self.gathered_bytes
        board.unread_bytes += unread - self.unread_bytes
        self.gathered_bytes = gathered
        self.unread_bytes = unread

    def _written_bytes(self, buffered: int) -> int:
        """What the transport keeps. uvloop's keeps a write whole until the last byte of it has gone."""
        writes, gone = self._large_writes, self.bytes_out - buffered
        while writes and writes[0][1] <= gone:
            del writes[0]
        return buffered + max(0, gone - writes[0][0]) if writes else buffered

    def _weigh_and_check(self) -> None:
        self.weigh()
        self._board.check_unread()

    # ------------------------------------------------------------------------------------- back-pressure

    def pause(self, reason: int) -> None:
        """Stop reading for `reason`, however many others there are."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._board.held_back[reason] += 1
        self._paused |= reason

    def resume(self, reason: int) -> None:
        """`reason` is gone; read again if it was the last."""
        if self._paused & reason:
            self._paused &= ~reason
            if not self._paused and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._is_writable = False
        if not self._board.is_client:  # if both sides did so, both would wait for ever
            self.pause(UNREAD)

    def resume_writing(self) -> None:
        self._is_writable = True
        self.resume(UNREAD)
        if self._backlog:
            self._board.tick.at_end(self.take_up_backlog)

    # ------------------------------------------------------------------------------- beginning and end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        pause_bytes = self._board.limits.write_buffer_pause_bytes
        transport.set_write_buffer_limits(high=pause_bytes, low=pause_bytes // 2)
        local = transport.get_extra_info("sockname") or ("", 0)
        self.local_host, self.local_port = plain_host(local[0]), local[1]
        self._transport = transport
        self._board.connections.add(self)
        if self._board.is_crowded:
            self.pause(CROWDED)
        if self._why or self._board.is_closed:  # over before it began
            transport.abort()

    def talk_through(self, transport: asyncio.Transport) -> None:
        """From now on the bytes go through `transport` (TLS, over the one we had)."""
        self._transport = transport

    def eof_received(self) -> None:
        """The peer has nothing more to say: close, after sending what was answered so far."""
        self.flush()
        self._why = self._why or "peer"

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        board = self._board
        board.connections.discard(self)
        self._transport = None
        self._drop_all()
        self._why = self._why or ("peer" if exc is None else "reset")
        board.closed_by_reason[self._why] += 1
        self._alarm.off()
        self._pending.fail_all(self._lost())
        board.closed(self)
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            self._tell(callback, self)
        if board.is_crowded:
            board.thin_out_the_crowd()

    def _drop_all(self) -> None:
        """Let go of all that is held for this peer, and count it no more."""
        self._out.clear()
        self._backlog = []
        self._large_writes.clear()
        self._out_bytes = self.backlog_bytes = 0
        board = self._board
        board.gathered_bytes -= self.gathered_bytes
        board.unread_bytes -= self.unread_bytes
        board.in_flight_bytes -= self.in_flight_bytes
        board.partial_bytes -= self.partial_bytes
        board.parked_bytes -= self.parked_bytes
        self.gathered_bytes = self.unread_bytes = self.partial_bytes = 0
        self.in_flight_bytes = self.in_flight_requests = self.parked_bytes = self.parked_requests = 0

    def _tell(self, callback: Callable[[T], None], what: T) -> None:
        """A callback that fails is its owner's trouble: not this connection's, nor the other callbacks'."""
        try:
            callback(what)
        except Exception as error:
            self._board.complaints.warn("callback", f"telling of {what!r} from {self.peer} failed", error)

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self.peer} is gone ({_REASONS.get(self._why, self._why)})")

    def _expire(self) -> float | None:
        """Tell those who waited too long; returns when to look again."""
        expired = self._pending.expire(self._board.clock.monotonic(), self._timed_out)
        if expired and self._board.is_client and self.reads == self._reads_at_call:
            # Not a byte since the overdue request was sent: rather a dead path than a slow handler.
            self.abort("silent")
        self._reads_at_call = self.reads
        return self._pending.next_deadline()

    def _timed_out(self, opaque: int) -> TimedOut:
        return TimedOut(f"{self.peer} did not answer request {opaque} in time")


def run_end_plainly(frames: list[Frame], at: int, key: bytes) -> int:
    """The first place after `at` where a frame begins otherwise."""
    at += 1
    while at < len(frames) and frames[at].header.startswith(key):
        at += 1
    return at


_run_end = run_end_plainly if native is None else native.run_end

_REASONS = {
    "peer": "closed by the peer",
    "reset": "reset by the peer",
    "silent": "no sign of life from the peer",
}
