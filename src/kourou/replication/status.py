"""How replication stands, to be looked at: by operators, metrics, whoever elects."""

from __future__ import annotations

import msgspec


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One slave that follows."""

    member: str
    """Where clients reach it; `ha:` and its peer address, when it does not say."""
    peer: str
    broker_id: int | None
    acked: int
    sent: int
    lag: int
    """Bytes it has not acknowledged."""
    is_in_sync: bool
    dialect: str
    since_ms: int


class FollowingStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The master that is followed."""

    address: str
    state: str
    reason: str
    lag: int | None
    """Bytes behind what the master was last known to have; None while that is unknown."""
    received_bytes: int
    dialect: str


class HaStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker's part in its replica set."""

    role: str
    broker_id: int
    term: int
    ha_address: str
    log_start: int
    log_end: int
    flushed: int
    replicated: int
    links: list[LinkStatus] = []
    following: FollowingStatus | None = None
    counters: dict[str, int] = {}
