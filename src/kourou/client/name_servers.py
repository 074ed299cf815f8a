"""Several name servers, all equally good. One is kept for as long as it answers.

They come from the caller, or from an address server that is asked when the first request is made, 10 seconds
later and then every two minutes, with the next request after that: no thread and no timer. When it does not
answer, or its answer makes no sense, the last good list stays.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from kourou.client.finding import parse_address_list
from kourou.client.steps import Call, Fetch, Operation
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock
from kourou.errors import ConfigError, MQError, Unreachable
from kourou.protocol.command import Command

LOOKUP_SECONDS = 3.0
FIRST_AGAIN_SECONDS = 10.0
AGAIN_SECONDS = 120.0
FAILED_AGAIN_SECONDS = 1.0
"""Until the address server is asked again while there is no list at all."""

_log = logging.getLogger("kourou.client")


class NameServers:
    """Whom to ask: one of several, for as long as it answers."""

    def __init__(
        self,
        addresses: Sequence[str],
        chance: Chance,
        clock: Clock,
        *,
        address_server: str | None = None,
    ) -> None:
        self.addresses = tuple(chance.sample(addresses, len(addresses)))
        self.chance = chance
        self._clock = clock
        self._current = 0
        self._address_server = address_server
        self._fetches = 0
        self._fetch_due = clock.monotonic()

    @property
    def current(self) -> str | None:
        """The one that answered last, or will be asked first."""
        return self.addresses[self._current % len(self.addresses)] if self.addresses else None

    def ask(
        self, command: Command, timeout: float = LOOKUP_SECONDS, doubtful: Collection[int] = ()
    ) -> Operation[Command]:
        """The reply of the first one that gives any; raises Unreachable when none does.

        A reply with one of the `doubtful` codes is believed only after the others were asked as well:
        name servers do not talk to each other, and one that was just started knows less than the rest.
        `timeout` is for all of them together; each gets an even share of what is left of it.
        """
        deadline = self._clock.monotonic() + timeout
        if self._address_server is not None and self._clock.monotonic() >= self._fetch_due:
            yield from self._fetch(self._address_server, timeout)
        doubted: Command | None = None
        answering = self._current
        failures: list[str] = []
        addresses = self.addresses
        count = len(addresses)
        for turn in range(count):
            index = (self._current + turn) % count
            address = addresses[index]
            share = (deadline - self._clock.monotonic()) / (count - turn)
            try:
                reply: Command = yield Call(address, command, max(share, 0.001))
            except Unreachable as error:
                failures.append(f"{address}: {error}")
                continue
            if reply.code not in doubtful:
                self._current = index
                return reply
            if doubted is None:
                answering = index
            doubted = reply
        if doubted is not None:
            self._current = answering  # the first that said anything at all
            return doubted
        raise Unreachable(f"no name server answers ({'; '.join(failures)}); is one running there?")

    def turn_away(self) -> None:
        """The one that answered last talks nonsense, or cannot help: ask the next one first from now on."""
        self._current += 1

    def _fetch(self, url: str, timeout: float) -> Operation[None]:
        """Ask the address server; only without any list at all its silence is an error."""
        # Before the step, so that another thread that comes by meanwhile does not ask, too.
        self._fetch_due = self._clock.monotonic() + (AGAIN_SECONDS if self._fetches else FIRST_AGAIN_SECONDS)
        self._fetches += 1
        try:
            page: str = yield Fetch(url, timeout)
            self._take(parse_address_list(page), url)
        except MQError as error:
            if not self.addresses:
                self._fetches = 0
                self._fetch_due = self._clock.monotonic() + FAILED_AGAIN_SECONDS
                raise Unreachable(
                    f"the address server at {url} did not tell where the name servers are: {error}"
                ) from None
            _log.warning("the list of name servers stays as it is, the address server says: %s", error)

    def _take(self, addresses: tuple[str, ...], url: str) -> None:
        if not addresses:
            raise ConfigError(f"{url} lists no name server")
        if set(addresses) != set(self.addresses):
            self.addresses = tuple(self.chance.sample(addresses, len(addresses)))
            self._current = 0
