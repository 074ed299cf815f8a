"""How many messages may be on their way at once, and how many bytes: who wants to send more waits.

First come, first served. A message that alone is larger than all that is allowed goes when nothing else does.
"""

from __future__ import annotations

import threading
from collections import deque

from kourou.client.steps import Arrival, Operation, Wait
from kourou.doors.clock import Clock
from kourou.errors import Busy, ConfigError
from kourou.protocol.codes import ResponseCode


class Gate:
    """Counts what is on its way. Any number of threads or tasks may come and go."""

    def __init__(self, count_max: int, bytes_max: int, clock: Clock) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, Arrival]] = deque()
        self._until_empty: list[Arrival] = []
        self._is_shut = False

    def enter(self, size: int, timeout: float) -> Operation[None]:
        """Go through when there is room; raises Busy when there is none for `timeout` seconds."""
        arrival = Arrival()
        with self._lock:
            if self._is_shut:
                raise ConfigError("this producer is closed; make a new one")
            if not self._waiting and self._has_room(size):
                self._take(size)
                return
            self._waiting.append((size, arrival))
        try:
            admitted = yield Wait(arrival, timeout, from_broker=False)
        except (
            BaseException
        ):  # cancelled, or interrupted: nobody is there any more to go through, or to leave
            if self._give_up(size, arrival):
                self.leave(size)
            raise
        if admitted is None and not self._give_up(size, arrival):
            raise Busy(
                ResponseCode.SYSTEM_BUSY,
                f"{self._count} messages with {self._bytes} bytes are on their way, and none was answered in "
                f"{timeout:g} s; send slower, or raise in_flight_max and in_flight_bytes_max",
            )

    def leave(self, size: int) -> None:
        """A message is answered, or given up."""
        admitted = []
        with self._lock:
            self._count -= 1
            self._bytes -= size
            while self._waiting and self._has_room(self._waiting[0][0]):
                waiting_size, arrival = self._waiting.popleft()
                self._take(waiting_size)
                admitted.append(arrival)
            if self._count == 0:
                admitted, self._until_empty = self._until_empty, []
        for arrival in admitted:
            arrival.put(True)

    def shut(self) -> None:
        """Nobody comes to it any more; who waits already still goes through."""
        with self._lock:
            self._is_shut = True

    def empty(self, timeout: float) -> Operation[None]:
        """Wait until nothing is on its way any more, or time is up."""
        arrival = Arrival()
        with self._lock:
            if self._count == 0:
                return
            self._until_empty.append(arrival)
        yield Wait(arrival, timeout, from_broker=False)

    def _has_room(self, size: int) -> bool:
        return self._count == 0 or (self._count < self._count_max and self._bytes + size <= self._bytes_max)

    def _take(self, size: int) -> None:
        self._count += 1
        self._bytes += size

    def _give_up(self, size: int, arrival: Arrival) -> bool:
        """Wait no longer; True when we were let through at this very moment."""
        with self._lock:
            try:
                self._waiting.remove((size, arrival))
            except ValueError:
                return True
        return False
