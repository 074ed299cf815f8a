"""What listens: accepts peers within bounds, watches over them, and drains when it stops.

The road of a request is in `connection.py`; here is everything that happens per connection, not per
message. Extra listeners (a fast port) are another `Server` with the same handlers and the same `Tick`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kourou.doors.clock import Clock, Timer
from kourou.doors.network import Listener, Network
from kourou.errors import AddressTaken, ConfigError, MQError
from kourou.remoting.address import format_address, plain_host
from kourou.remoting.admission import Admission
from kourou.remoting.answer import Answer, Handler, RunHandler
from kourou.remoting.config import ServerConfig
from kourou.remoting.connection import Connection
from kourou.remoting.first_byte import FirstByte
from kourou.remoting.switchboard import DRAINING, HELD_BACK_NAMES, Switchboard
from kourou.remoting.tick import Tick
from kourou.remoting.tls import Certificates

__all__ = ["Answer", "Connection", "Counters", "Handler", "Server"]

logger = logging.getLogger(__name__)

_NO_RUN_HANDLERS: Mapping[bytes, RunHandler] = {}

CERTIFICATE_LOOK_SECONDS = 10.0
DRAIN_LOOK_SECONDS = 0.01


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What a server has seen since it started."""

    accepted: int
    refused: Mapping[str, int]
    """By the bound that refused them; `files` when the process had none left."""
    closed: Mapping[str, int] = field(default_factory=dict)
    """By reason: peer, reset, idle, frame, first frame, stalled, protocol error, …"""
    held_back: Mapping[str, int] = field(default_factory=dict)
    """How often a peer was not read from for a while, by reason."""
    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    in_flight_bytes: int = 0
    parked_bytes: int = 0
    unread_bytes: int = 0


class Server:
    """One listening port, its connections and its handler table."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        config: ServerConfig,
        *,
        network: Network,
        clock: Clock,
        tick: Tick,
        name: str,
        run_handlers: Mapping[bytes, RunHandler] = _NO_RUN_HANDLERS,
    ) -> None:
        self.name = name
        self._config = config
        self._network = network
        self._clock = clock
        self._board = Switchboard(
            handlers,
            config,
            clock=clock,
            tick=tick,
            logger=logger,
            closed=self._on_closed,
            run_handlers=run_handlers,
        )
        self._admission = Admission(config)
        self._certificates: Certificates | None = None
        self._listener: Listener | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._timers: list[Timer] = []
        self._accepted = 0
        self._refused: Counter[str] = Counter()

    async def start(self) -> None:
        """Listen. Raises ConfigError, naming the way out, when the address or a certificate is unusable."""
        config = self._config
        if config.tls is not None and config.tls.mode != "disabled":
            self._certificates = Certificates(config.tls)
        try:
            self._listener = await self._network.listen(
                config.host, config.port, self._accept, backlog=config.backlog, exhausted=self._on_exhausted
            )
        except OSError as error:
            raise self._cannot_listen(error) from None
        self._timers = [self._clock.every(_sweep_seconds(config), self._sweep)]
        if self._certificates is not None:
            self._timers.append(self._clock.every(CERTIFICATE_LOOK_SECONDS, self._look_at_certificates))

    async def stop(self, drain_seconds: float = 3.0) -> None:
        """Accept and read no more, send what is being worked on (for so long at most), and hang up.

        Parked requests are not waited for: answer them first if they are to be answered.
        """
        self._stop_accepting()
        self._board.is_closed = True
        for connection in list(self.connections):
            connection.pause(DRAINING)
        deadline = self._clock.monotonic() + drain_seconds
        await self._until(lambda: not any(each.is_working for each in self.connections), deadline)
        for connection in list(self.connections):
            connection.close("server stops")
        await self._until(lambda: not self.connections, deadline)
        for connection in list(self.connections):
            connection.abort("server stops")
        if not self._admission.is_empty:  # some are still being opened, some hear of their end one turn later
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens, as (host, port)."""
        return [] if self._listener is None else self._listener.addresses

    @property
    def port(self) -> int:
        """The real one, when 0 was asked for."""
        addresses = self.addresses
        return addresses[0][1] if addresses else self._config.port

    @property
    def connections(self) -> Collection[Connection]:
        """A live view of those that are open."""
        return self._board.connections

    @property
    def counters(self) -> Counters:
        board = self._board
        return Counters(
            accepted=self._accepted,
            refused=dict(self._refused),
            closed=dict(board.closed_by_reason),
            held_back={HELD_BACK_NAMES[reason]: count for reason, count in board.held_back.items()},
            requests=board.requests,
            bytes_in=board.bytes_in,
            bytes_out=board.bytes_out,
            in_flight_bytes=board.in_flight_bytes,
            parked_bytes=board.parked_bytes,
            unread_bytes=board.unread_bytes,
        )

    def reload_certificates(self) -> None:
        """Use the files as they are now for new handshakes; ConfigError, and no change, when they are bad."""
        if self._certificates is not None:
            self._certificates.reload()

    # -------------------------------------------------------------------------------------- accepting

    def _accept(self, host: str, port: int) -> asyncio.BaseProtocol | None:
        host = plain_host(host)
        bound = self._admission.enter(host, self._clock.monotonic())
        if bound is not None:
            self._refused[bound] += 1
            value = getattr(self._config, bound)
            self._warn(bound, f"connection from {format_address(host, port)} refused: {bound} is {value}")
            return None
        self._accepted += 1
        connection = Connection(self._board, host, port)
        tls = self._config.tls
        if tls is None or self._certificates is None:
            return connection
        return FirstByte(connection, self._certificates, tls.mode == "permissive", self._warn)

    def _on_exhausted(self) -> None:
        self._refused["files"] += 1
        self._warn("files", "connection refused: no file descriptor is left; raise the limit (ulimit -n)")

    def _on_closed(self, connection: Connection) -> None:
        self._admission.leave(connection.peer_host)
        if self._emptied is not None and self._admission.is_empty and not self._emptied.done():
            self._emptied.set_result(None)

    def _cannot_listen(self, error: OSError) -> ConfigError:
        address = format_address(self._config.host, self._config.port)
        kind = AddressTaken if error.errno == errno.EADDRINUSE else ConfigError
        return kind(
            f"{self.name} cannot listen on {address}: {error.strerror or error}; "
            "stop what holds that address, or choose another one"
        )

    # --------------------------------------------------------------------------------------- watching

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        for connection in list(self.connections):
            reason = connection.watch.overdue(connection, now, self._config)
            if reason is not None:
                logger.debug("%s closes the connection from %s: %s", self.name, connection.peer, reason)
                connection.abort(reason)
            else:
                connection.weigh()
        self._board.check_unread()

    def _look_at_certificates(self) -> None:
        assert self._certificates is not None
        try:
            if self._certificates.reload_if_changed():
                logger.info("%s uses the changed certificate from now on", self.name)
        except MQError as error:
            self._warn("certificate", f"{self.name} keeps its certificate, the changed one is bad: {error}")

    def _warn(self, kind: str, text: str) -> None:
        self._board.complaints.warn(kind, text)

    # --------------------------------------------------------------------------------------- stopping

    def _stop_accepting(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        if self._listener is not None:
            self._listener.close()

    async def _until(self, is_done: Callable[[], bool], deadline: float) -> None:
        """Wait until it is so, or until `deadline`."""
        while not is_done() and self._clock.monotonic() < deadline:
            woken = asyncio.Event()
            self._clock.later(DRAIN_LOOK_SECONDS, woken.set)
            await woken.wait()


def _sweep_seconds(config: ServerConfig) -> float:
    """A second, or a quarter of the shortest patience when that is less."""
    patience = min(
        config.first_frame_seconds, config.frame_seconds, config.idle_seconds, config.write_stall_seconds
    )
    return min(1.0, patience / 4)
