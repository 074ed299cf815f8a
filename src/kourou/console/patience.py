"""HTTP connections of people in earnest: who does not get to the end of a request's head is hung up on.

The server waits for ever for a head that never ends, and counts such a connection among those it can have.
Here a clock runs from the moment a peer connects, or begins another request, until the head is whole.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS_MAX = 10.0


class ImpatientProtocol(H11Protocol):
    """As uvicorn's own, with a clock."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        if self._is_between_requests() and self._clock is None:
            self._start()
        super().data_received(data)
        if not self._is_between_requests():
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # there is none before the first request
        return cycle is None or cycle.response_complete

    def _start(self) -> None:
        self._clock = self.loop.call_later(HEAD_SECONDS_MAX, self.transport.close)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
