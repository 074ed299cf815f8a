"""The console as a server: it listens at once, and is built when somebody first knocks.

start()   bound and listening: a socket, nothing more
knock     a thread with an event loop of its own is made, the application built in it, and the one who
          knocked answered; whatever the console does, a broker in the same process goes on undisturbed
stop()    no more requests; those being answered have a moment to end
"""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING

from kourou.console.config import ConsoleConfig
from kourou.console.ending import Ending
from kourou.console.login import first_password
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.doors.private_folder import PrivateFolder
from kourou.errors import AddressTaken
from kourou.remoting.doorbell import Doorbell

if TYPE_CHECKING:
    import uvicorn

    from kourou.console.desk import Desk

STOP_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 256
HEADER_BYTES_MAX = 32 * 1024

_log = logging.getLogger("kourou.console")


class ConsoleServer:
    """Start and stop it on a running event loop."""

    def __init__(self, config: ConsoleConfig, *, any_port: bool = False) -> None:
        self._config = config
        self._any_port = any_port
        self._folder = PrivateFolder(config.folder)
        self._chance = Chance()
        self._bell: Doorbell | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._ending = Ending()
        self.first_password: str | None = None
        """For `admin`, as long as there is no account."""

    @property
    def address(self) -> str:
        """`http://host:port`."""
        assert self._bell is not None, "it is not started"
        return f"{'https' if self._config.is_tls else 'http'}://{self._bell.address}"

    async def start(self) -> None:
        """Raises AddressTaken when the port is taken (unless any will do)."""
        self.first_password = first_password(self._folder, self._chance)
        try:
            self._bell = Doorbell(self._config.host, self._config.port)
        except AddressTaken:
            if not self._any_port:
                raise
            self._bell = Doorbell(self._config.host, 0)
        self._bell.on_first_knock(self._answer)

    async def stop(self) -> None:
        import asyncio

        self._is_stopping = True
        if self._bell is not None:
            self._bell.close()
        self._ending.tell()
        if self._server is not None:
            self._server.should_exit = True
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.join, STOP_SECONDS_MAX)

    def _answer(self, listening: socket.socket) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(listening,), name="kourou-console", daemon=True
        )
        self._thread.start()

    def _run(self, listening: socket.socket) -> None:
        try:
            import uvicorn

            from kourou.console.app import application
            from kourou.console.patience import ImpatientProtocol

            settings = uvicorn.Config(
                application(self.desk()),
                loop="asyncio",
                http=ImpatientProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=CONNECTIONS_MAX,
                h11_max_incomplete_event_size=HEADER_BYTES_MAX,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=1,
                ssl_certfile=self._config.certificate,
                ssl_keyfile=self._config.key,
            )
            self._server = uvicorn.Server(settings)
            if self._is_stopping:
                self._server.should_exit = True
            self._server.run(sockets=[listening])
        except Exception:  # the top of a thread: the broker beside it goes on
            _log.exception("the console could not be started")
            listening.close()

    def desk(self) -> Desk:
        """Everything requests need; what is not in the folder yet is made there when first written."""
        from kourou.admin import Connection
        from kourou.console.attempts import Attempts
        from kourou.console.audit import Audit
        from kourou.console.desk import Desk
        from kourou.console.login import Accounts
        from kourou.console.receivers import Receivers
        from kourou.console.samples import Sampler
        from kourou.console.sessions import Sessions

        config, clock, chance = self._config, RealClock(), self._chance
        accounts = Accounts(self._folder, clock=clock, chance=chance, first_password=self.first_password)
        connection = Connection(config.name_server, access=config.access, tls=config.tls, clock=clock)
        return Desk(
            config=config,
            clock=clock,
            connection=connection,
            accounts=accounts,
            sessions=Sessions(accounts, clock=clock, chance=chance),
            attempts=Attempts(clock),
            audit=Audit(self._folder, clock),
            sampler=Sampler(connection, clock),
            receivers=Receivers(config, clock=clock, chance=chance),
            ending=self._ending,
        )
