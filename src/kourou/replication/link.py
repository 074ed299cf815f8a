"""One slave, seen from its master.

    NEW ── 8 bytes ──┬── -1: one of ours ──▶ TALKING ── "begin" ──▶ STREAMING
                     └── a place: the original's ─────────────────▶ STREAMING

A slave is sent what the log gains as soon as it is written, as much as its socket takes; what it acknowledges
is believed only up to what it was sent. Everything else ends the connection, with a reason that is counted.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final, Protocol, cast

from kourou.doors.clock import Clock
from kourou.doors.failpoints import ARMED, reached
from kourou.errors import ProtocolError
from kourou.protocol.checksum import crc32
from kourou.replication import handshake, stream
from kourou.replication.config import ReplicationConfig
from kourou.replication.handshake import MasterHello, SlaveHello

OUR_BATCH_BYTES: Final = 1024 * 1024
UNSENT_BYTES_MAX: Final = 4 * 1024 * 1024
FIRST_WORDS_SECONDS: Final = 10.0
OUR_HEARTBEAT_SECONDS: Final = 1.0
OUR_SILENCE_SECONDS_MAX: Final = 6.0
FLOW_LOOK_SECONDS: Final = 0.05
SAMPLE_BYTES_MAX: Final = 16 * 1024 * 1024


class Log(Protocol):
    """What a link needs of the store."""

    @property
    def start(self) -> int: ...
    @property
    def wrote(self) -> int: ...
    def raw(self, place: int, size: int) -> bytes: ...


class Listener(Protocol):
    """Who is told of what happens on a link."""

    def why_not(self, link: Link, hello: SlaveHello | None) -> str | None:
        """Why this slave may not follow; None when it may."""

    @property
    def visible(self) -> int:
        """Readers may see what ends before this."""

    def hello(self) -> MasterHello: ...
    def streaming(self, link: Link) -> None: ...
    def acknowledged(self, link: Link) -> None: ...
    def copied(self, link: Link) -> None: ...
    def refused(self, link: Link, kind: str, reason: str) -> None: ...
    def closed(self, link: Link) -> None: ...


class State(Enum):
    NEW = "new"
    TALKING = "talking"
    STREAMING = "streaming"
    CLOSED = "closed"


class Link(asyncio.Protocol):
    def __init__(
        self, peer: str, config: ReplicationConfig, log: Log, clock: Clock, listener: Listener
    ) -> None:
        self.peer = peer
        self.member = f"ha:{peer}"
        """Where clients reach this slave; what stands here of one of the original's, which does not say."""
        self.broker_id: int | None = None
        self.state = State.NEW
        self.is_ours = False
        self.term = 0
        self.next = 0
        """The place of the next byte to be sent."""
        self.acked = 0
        """This slave has everything before it."""
        self.copied = 0
        """It has the topics and groups up to this change; of one of the original's nobody knows."""
        self.since = clock.monotonic()
        self._config = config
        self._log = log
        self._clock = clock
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._received = b""
        self._words = stream.WordsReader()
        self._reports = stream.ReportReader(stream.REPORT)
        self._hello: MasterHello | None = None
        self._is_accepted = False
        self._heard_at = self._wrote_at = clock.monotonic()
        self._waiting_since: float | None = None  # something sent is not acknowledged
        self._shown = -1  # what this slave was told readers may see
        self._change = 0  # of topics and groups: the newest
        self._change_told = 0
        self._change_seen = 0  # what it had been told when it was last looked at
        self._budget = 0.0
        self._budget_at = clock.monotonic()
        self._is_flow_limited = False

    # ---------------------------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        if self.state is State.CLOSED:  # closed while TLS was being agreed on
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self._listener.closed(self)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._tell_change()
        self.push()

    def close(self) -> None:
        """Hang up; nobody is told but the slave."""
        self.state = State.CLOSED
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, kind: str, reason: str) -> None:
        """Hang up because of what the slave is or does; one of ours is told why."""
        if self.state is State.CLOSED:
            return
        was_talking = self.state is State.TALKING
        self.state = State.CLOSED
        if self._transport is not None:
            if was_talking:
                self._transport.write(stream.words(handshake.encode(handshake.Refusal(reason))))
                self._transport.close()
            else:
                self._transport.abort()
        self._listener.refused(self, kind, reason)
        self._listener.closed(self)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._clock.monotonic()
        try:
            if self.state is State.NEW:
                self._first(data)
            elif self.state is State.TALKING:
                self._talk(data)
            elif self.state is State.STREAMING:
                self._report(data)
        except ProtocolError as error:
            self.refuse("protocol", str(error))

    def look(self) -> None:
        """Once a second: is it still there, and does it know that we are?"""
        now = self._clock.monotonic()
        silent = now - self._heard_at
        if self.state is not State.STREAMING:
            if silent > FIRST_WORDS_SECONDS or (not self.is_ours and now - self.since > FIRST_WORDS_SECONDS):
                self.refuse("silent", f"it said nothing for {silent:.0f} s")
            return
        silent_max = self._config.silence_ms_max / 1000
        if silent > (min(silent_max, OUR_SILENCE_SECONDS_MAX) if self.is_ours else silent_max):
            self.refuse("silent", f"it said nothing for {silent:.0f} s")
            return
        interval = self._config.heartbeat_ms / 1000
        if now - self._wrote_at >= (min(interval, OUR_HEARTBEAT_SECONDS) if self.is_ours else interval):
            self._heartbeat()
        if self.copied < self._change_told <= self._change_seen:  # it has had its time: once more
            self._change_told = 0
            self._tell_change()
        self._change_seen = self._change_told

    # --------------------------------------------------------------------------------------- greeting

    def _first(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < stream.REPORT.size:
            return
        first, rest = self._received[: stream.REPORT.size], self._received[stream.REPORT.size :]
        self._received = b""
        if first == stream.GREETING:
            self.is_ours = True
            self.state = State.TALKING
            self._hello = self._listener.hello()
            self._say(self._hello)
            self._talk(rest)
            return
        reason = self._listener.why_not(self, None)
        if reason is not None:
            self.refuse("refused", reason)
            return
        reports = self._reports.feed(rest)
        (reported,) = reports[-1] if reports else stream.REPORT.unpack(first)
        self._begin(self._place_for(reported))
        self.acked = min(reported, self.next)
        self._listener.streaming(self)
        self.push()

    def _place_for(self, reported: int) -> int:
        """Where to begin for a slave of the original's. An empty one gets the newest file, as there."""
        start, end = self._log.start, self._log.wrote
        if reported == 0:
            return max(start, end - end % self._config.segment_bytes)
        if not 0 < reported <= end:
            raise ProtocolError(
                f"it reports {reported}, and this log ends at {end}: it is ahead, or no slave"
            )
        if reported < start:
            raise ProtocolError(
                f"it reports {reported}, and this log begins at {start}: what it lacks is gone; "
                "empty its folder and start it again"
            )
        return reported

    def _talk(self, data: bytes) -> None:
        self._words.feed(data)
        while self.state is State.TALKING and (text := self._words.next()) is not None:
            self._answer(handshake.decode(text))

    def _answer(self, said: handshake.Words) -> None:
        if isinstance(said, SlaveHello) and not self._is_accepted:
            self._meet(said)
        elif isinstance(said, handshake.Compare) and self._is_accepted:
            self._compare(said)
        elif isinstance(said, handshake.Begin) and self._is_accepted:
            self._begin_ours(said.place)
        else:
            raise ProtocolError(f"{type(said).__name__} is not what is due")

    def _meet(self, said: SlaveHello) -> None:
        assert self._hello is not None
        secret = self._config.secret
        if secret and not handshake.is_proof(said.proof, handshake.proof(secret, "slave", self._hello, said)):
            self.refuse("secret", "its haSecret is not the one of this master")
            return
        self.member, self.broker_id = said.member, said.broker_id
        reason = self._listener.why_not(self, said)
        if reason is not None:
            self.refuse("refused", reason)
            return
        self._is_accepted = True
        self.term = self._hello.term
        self._say(handshake.Accepted(handshake.proof(secret, "master", self._hello, said)))

    def _compare(self, said: handshake.Compare) -> None:
        samples = said.samples
        if len(samples) > handshake.SAMPLES_MAX or sum(size for _, size, _ in samples) > SAMPLE_BYTES_MAX * 4:
            raise ProtocolError(f"{len(samples)} samples at once")
        self._say(handshake.Compared([self._has(*sample) for sample in samples]))

    def _has(self, place: int, size: int, crc: int) -> bool:
        if not (0 <= size <= SAMPLE_BYTES_MAX and self._log.start <= place <= self._log.wrote - size):
            return False
        data = self._log.raw(place, size)
        return len(data) == size and crc32(data) == crc

    def _begin_ours(self, place: int) -> None:
        if not self._log.start <= place <= self._log.wrote:
            raise ProtocolError(
                f"it wants to begin at {place}; this log has {self._log.start} to {self._log.wrote}"
            )
        self._reports = stream.ReportReader(stream.OUR_REPORT)
        self._begin(place)
        self._listener.streaming(self)
        self._report(self._words.rest())
        self.push()

    def _begin(self, place: int) -> None:
        self.state = State.STREAMING
        self.next = place
        self.since = self._wrote_at = self._clock.monotonic()

    def _say(self, said: handshake.Words) -> None:
        if self._transport is not None:
            self._transport.write(stream.words(handshake.encode(said)))

    # ---------------------------------------------------------------------------------- acknowledging

    def _report(self, data: bytes) -> None:
        for report in self._reports.feed(data):
            if self.state is not State.STREAMING:
                break  # the one before made no sense
            if self.is_ours and report[0] != self.term:
                self.refuse("term", f"it reports in term {report[0]}, this is term {self.term}")
            elif self.is_ours and report[-1] < 0:
                self._has_copied(-report[-1])
            else:
                self._reached(report[-1])

    def _has_copied(self, change: int) -> None:
        if change > self._change_told:
            self.refuse("ack beyond the end", f"it has change {change} of the topics, of {self._change_told}")
        elif change > self.copied:
            self.copied = change
            self._listener.copied(self)

    def _reached(self, place: int) -> None:
        if not 0 <= place <= self.next:
            kind = "ack beyond the end" if place > self._log.wrote else "ack beyond what was sent"
            self.refuse(kind, f"it acknowledges {place}, and was sent the log up to {self.next}")
        elif place > self.acked:
            self.acked = place
            self._waiting_since = None if place >= self.next else self._clock.monotonic()
            self._listener.acknowledged(self)

    @property
    def lag(self) -> int:
        return max(0, self._log.wrote - self.acked)

    def is_in_sync(self, end: int) -> bool:
        """Whether it is worth waiting for: there, close enough, and not stuck."""
        if self.state is not State.STREAMING or end - self.acked >= self._config.gap_bytes_max:
            return False
        waiting = self._waiting_since
        return waiting is None or self._clock.monotonic() - waiting <= self._config.slave_timeout_ms / 1000

    # ---------------------------------------------------------------------------------------- sending

    def push(self) -> None:
        """Send what it lacks, as much as goes."""
        transport = self._transport
        if self.state is not State.STREAMING or self._is_paused or transport is None:
            return
        end, log = self._log.wrote, self._log
        batch = OUR_BATCH_BYTES if self.is_ours else self._config.batch_bytes
        while self.next < end and not transport.is_closing():
            parts: list[bytes] = []
            gathered = 0
            while self.next < end and gathered < OUR_BATCH_BYTES:
                allowed = self._allowed(batch)
                data = log.raw(self.next, allowed) if allowed else b""
                if not data:
                    break
                parts += (self._header(len(data)), data)
                self.next += len(data)
                gathered += len(data)
            if not parts:
                if self.next < self._log.start:
                    self.refuse("gone", f"what it lacks, from {self.next} on, is gone here")
                break
            if ARMED:
                reached("before-ha-send")
            self._write(b"".join(parts))
            if ARMED:
                reached("after-ha-send")
            if self._has_enough():
                break

    def _has_enough(self) -> bool:
        """Whether the socket has been given all it wants for now (`resume_writing` goes on)."""
        return self._is_paused

    def _allowed(self, size: int) -> int:
        """How much of `size` may be sent now."""
        if not self._config.flow_control:
            return size
        now, rate = self._clock.monotonic(), self._config.bytes_a_second_max
        self._budget = min(rate / 10, self._budget + (now - self._budget_at) * rate)
        self._budget_at = now
        allowed = int(min(size, self._budget))
        if allowed <= 0:
            self._push_later()
            return 0
        self._budget -= allowed
        return allowed

    def _push_later(self) -> None:
        if not self._is_flow_limited:
            self._is_flow_limited = True
            self._clock.later(FLOW_LOOK_SECONDS, self._push_again)

    def _push_again(self) -> None:
        self._is_flow_limited = False
        self.push()

    def _header(self, size: int) -> bytes:
        if not self.is_ours:
            return stream.FRAME.pack(self.next, size)
        self._shown = self._listener.visible
        return stream.OUR_FRAME.pack(self.next, size, self.term, self._shown)

    def show(self) -> None:
        """Tell it what readers may see, if that is news."""
        if self.is_ours and self.state is State.STREAMING and self._shown < self._listener.visible:
            self._heartbeat()

    def tables_changed(self, change: int) -> None:
        """Tell it to copy topics and groups now, and to say when it has them."""
        self._change = change
        self._tell_change()

    def _tell_change(self) -> None:
        if self._change == self._change_told or self._is_paused:
            return
        if self.is_ours and self.state is State.STREAMING:
            self._change_told, self._shown = self._change, self._listener.visible
            header = (self._change, stream.METADATA_CHANGED, self.term, self._shown)
            self._write(stream.OUR_FRAME.pack(*header), is_data=False)

    def _heartbeat(self) -> None:
        if not self._is_paused:
            self._write(self._header(0), is_data=False)

    def _write(self, data: bytes, *, is_data: bool = True) -> None:
        assert self._transport is not None
        self._wrote_at = self._clock.monotonic()
        if is_data and self._waiting_since is None:
            self._waiting_since = self._wrote_at
        self._transport.write(data)
