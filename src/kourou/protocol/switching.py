"""Requests of operators who switch masters, and how a broker's replica set stands; only ours answer them."""

from __future__ import annotations

import msgspec

from kourou.protocol.headers import WireHeader
from kourou.protocol.numbers import Int64


class Switch(WireHeader, frozen=True):
    """KOUROU_SWITCH (30011).

    `what`       asked of      means
    hand-over    the master    stop taking messages, wait until `heir` has everything, lead no more
    master       a replica     lead, in `term`; with an election: although others may have more; as `role`, or
                               as the master did that it followed
    slave        a broker      follow the master at `master`, whose log is at `ha_address`
    """

    what: str
    heir: str = ""
    term: Int64 = 0
    master: str = ""
    ha_address: str = ""
    role: str = ""


class SwitchReply(WireHeader, frozen=True):
    term: Int64 = 0
    log_end: Int64 = 0


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Body of the reply to KOUROU_REPLICA_SET_STATE (30012): one broker's view."""

    role: str
    """ASYNC_MASTER, SYNC_MASTER or SLAVE."""
    term: int
    log_end: int
    ha_address: str
    acked: dict[str, int] = {}
    """Of a master: how far each replica is."""
    following: str = ""
    """Of a slave: what it does, and why not."""
    lag: int | None = None
    """Of a slave: bytes behind what its master was last known to have."""
    is_elected: bool = False
    """The set elects its master."""
    master: str = ""
    in_sync: list[str] = []
    members: list[str] = []
    witnesses: list[str] = []
    may_acknowledge: bool = True
