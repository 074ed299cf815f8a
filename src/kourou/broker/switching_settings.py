"""What can be set about switching by itself: who may lead, who votes, and how long a lease lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.doors.configuration import Key, Kind, whole_number
from kourou.errors import ConfigError
from kourou.remoting.address import parse_address
from kourou.replication.ballots import MEMBERS_MAX
from kourou.replication.config import SLAVE

MEMBERS_MIN: Final = 2
VOTERS_MIN: Final = 3
LEASE_MS_MIN: Final = 300


@dataclass(frozen=True, kw_only=True)
class SwitchingSettings:
    """The part of a broker's settings that is about electing a master."""

    election_members: tuple[str, ...] = ()
    """Every broker of the replica set, as clients reach it; none: nobody is elected."""
    election_witnesses: tuple[str, ...] = ()
    """Name servers that vote, too."""
    election_lease_ms: int = 1_000

    def check_switching(self, broker_role: str) -> None:
        """Raises ConfigError when the settings contradict each other."""
        members, witnesses = self.election_members, self.election_witnesses
        for address in (*members, *witnesses):
            try:
                parse_address(address)
            except ConfigError as error:
                raise ConfigError(f"electionMembers, electionWitnesses: {error}") from None
        if not members:
            if witnesses:
                raise ConfigError("electionWitnesses without electionMembers: name the brokers of the set")
            return
        if not MEMBERS_MIN <= len(members) <= MEMBERS_MAX or len({*members}) < len(members):
            raise ConfigError(
                f"electionMembers names {len(members)} brokers, {len({*members})} of them different: "
                f"a replica set has {MEMBERS_MIN} to {MEMBERS_MAX}"
            )
        if {*members} & {*witnesses}:
            raise ConfigError("electionWitnesses: a broker of the set votes already; name others")
        if broker_role == SLAVE:
            raise ConfigError(
                "brokerRole=SLAVE with electionMembers: brokerRole says what this broker is when it leads; "
                "set it to SYNC_MASTER or ASYNC_MASTER, and brokerId not at all"
            )

    @property
    def survives_nobody(self) -> bool:
        """Whether the loss of one voter leaves no majority."""
        return len(self.election_members) + len(self.election_witnesses) < VOTERS_MIN


def _addresses() -> Kind:
    def parse(given: str) -> tuple[str, ...]:
        return tuple(each for part in given.split(";") if (each := part.strip()))

    return Kind("host:port, several parted by ';'", parse, ";".join)


SWITCHING_KEYS: Final = (
    Key("electionMembers", "election_members", _addresses()),
    Key("electionWitnesses", "election_witnesses", _addresses()),
    Key("electionLease", "election_lease_ms", whole_number(LEASE_MS_MIN, 60_000)),
)
