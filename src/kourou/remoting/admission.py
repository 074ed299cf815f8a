"""Who may connect: so many in all, so many from one host, so many a second from one host."""

from __future__ import annotations

from collections import Counter

from kourou.remoting.config import ServerConfig

HOSTS_REMEMBERED_MAX = 10_000


class Admission:
    """Counts peers by host. Knows no clock: `now` is given, in seconds."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._open = 0
        self._open_by_host: Counter[str] = Counter()
        self._allowance: dict[str, tuple[float, float]] = {}  # host -> (when, accepts left then)

    def enter(self, host: str, now: float) -> str | None:
        """Count one more from `host`, or say which bound it would break."""
        config = self._config
        if self._open >= config.connections_max:
            return "connections_max"
        if self._open_by_host[host] >= config.connections_per_peer_max:
            return "connections_per_peer_max"
        if not self._spend(host, now):
            return "accepts_per_second_max"
        self._open += 1
        self._open_by_host[host] += 1
        return None

    def leave(self, host: str) -> None:
        self._open -= 1
        self._open_by_host[host] -= 1
        if not self._open_by_host[host]:
            del self._open_by_host[host]

    @property
    def is_empty(self) -> bool:
        return self._open == 0

    def _spend(self, host: str, now: float) -> bool:
        """A bucket that refills by `accepts_per_second_max` a second and holds one second's worth."""
        rate = self._config.accepts_per_second_max
        when, left = self._allowance.get(host, (now, float(rate)))
        left = min(float(rate), left + (now - when) * rate)
        if len(self._allowance) >= HOSTS_REMEMBERED_MAX:
            self._forget_the_quiet(now)
        self._allowance[host] = (now, left - 1 if left >= 1 else left)
        return left >= 1

    def _forget_the_quiet(self, now: float) -> None:
        """Whoever has been quiet for a second has a full bucket again: nothing to remember."""
        self._allowance = {host: spent for host, spent in self._allowance.items() if now - spent[0] < 1.0}
